// raise, except, finally and with.
#include "braze/capture/opcodes.h"

namespace braze::capture {

namespace {

PyObject** handled_exception() { return &PyThreadState_Get()->exc_info->exc_value; }

void restore(PyObject* exception) {   // takes the reference
  PyErr_Restore(Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(exception))).release(), exception,
                PyException_GetTraceback(exception));
}

PyObject* enter_name() {
  static PyObject* const name = PyUnicode_InternFromString("__enter__");
  return name;
}

PyObject* exit_name() {
  static PyObject* const name = PyUnicode_InternFromString("__exit__");
  return name;
}

Owned exception_instance(Executor& x, Value v) {
  if (PyExceptionClass_Check(v.object)) {
    Owned made = x.call(v, {});
    if (made && !PyExceptionInstance_Check(made.ref.get())) {
      PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", v.object,
                   Py_TYPE(made.ref.get()));
      return {};
    }
    return made;
  }
  if (PyExceptionInstance_Check(v.object)) return Owned::borrow(v);
  PyErr_SetString(PyExc_TypeError, "exceptions must derive from BaseException");
  return {};
}

}  // namespace

bool Opcodes::raise(Executor& x, Frame& f, uint32_t n) {
  if (n == 0) {
    PyObject* handled = *handled_exception();
    if (handled == nullptr || handled == Py_None) {
      PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
      return false;
    }
    restore(Ref::borrow(handled).release());
    return false;
  }
  const Value raised = f.top(n);
  Owned exception = exception_instance(x, raised);
  if (!exception) return false;
  if (exception.src != kNoSource) x.fail("raising an exception object that existed before the call");
  if (n == 2) {
    const Value cause = f.top();
    Owned c;
    if (cause.object != Py_None) {
      if (!PyExceptionClass_Check(cause.object) && !PyExceptionInstance_Check(cause.object)) {
        PyErr_SetString(PyExc_TypeError, "exception causes must derive from BaseException");
        return false;
      }
      c = exception_instance(x, cause);
      if (!c) return false;
    }
    PyException_SetCause(exception.ref.get(), c.ref.release());
  }
  PyObject* object = exception.ref.get();
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(object)), object);   // sets __context__
  return false;
}

void Opcodes::reraise(Executor&, Frame& f, const Insn& insn) {
  if (insn.arg > 0) {
    f.view.run(static_cast<uint32_t>(PyLong_AsLong(f.top(insn.arg + 1).object)));
  }
  restore(f.pop().ref.release());
}

bool Opcodes::push_exc_info(Frame& f) {
  PyObject** handled = handled_exception();
  Owned exception = f.pop();
  PyObject* before = *handled;
  *handled = Ref(exception.ref).release();
  f.push(before != nullptr ? Owned::steal(before) : Owned::none());
  f.push(std::move(exception));
  return true;
}

bool Opcodes::pop_except(Frame& f) {
  PyObject** handled = handled_exception();
  const Ref old = Ref::steal(*handled);
  Ref before = f.pop().ref;
  *handled = before.get() == Py_None ? nullptr : before.release();
  return true;
}

bool Opcodes::check_exc_match(Executor& x, Frame& f) {
  const Value pattern = f.top(), exception = f.top(2);
  x.prov.use_deep(pattern);
  const auto is_class = [](PyObject* c) { return PyExceptionClass_Check(c) != 0; };
  bool ok = is_class(pattern.object);
  if (PyTuple_Check(pattern.object)) {
    ok = true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pattern.object); i++) {
      ok = ok && is_class(PyTuple_GET_ITEM(pattern.object, i));
    }
  }
  if (!ok) {
    PyErr_SetString(PyExc_TypeError, "catching classes that do not inherit from BaseException is not allowed");
    return false;
  }
  const bool match = PyErr_GivenExceptionMatches(exception.object, pattern.object) != 0;
  return replace(f, 1, Owned::boolean(match));
}

bool Opcodes::before_with(Executor& x, Frame& f) {
  const Value manager = f.top();
  const Method enter = x.special(manager, enter_name());
  const Method leave = enter.function ? x.special(manager, exit_name()) : Method{};
  if (!enter.function || !leave.function) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object does not support the context manager protocol%s",
                 Py_TYPE(manager.object)->tp_name, enter.function ? " (missed __exit__ method)" : "");
    return false;
  }
  // __exit__ is kept as a bound object, as CPython does.
  Owned exit = leave.self ? x.bind(leave.function.get(), manager, Py_TYPE(manager.object), exit_name())
                          : Owned::borrow(leave.function.get());
  if (!exit) return false;
  f.drop(1);
  f.push(std::move(exit));
  expect_result(x, f, 0);
  Owned entered = x.call_method(enter, {});
  if (!entered) return false;
  f.push(std::move(entered));
  return true;
}

// What leaves a generator's frame: a StopIteration would look like its end.
bool Opcodes::stop_iteration_error(Executor& x, Frame& f) {
  const Value exception = f.top();
  if (!PyErr_GivenExceptionMatches(exception.object, PyExc_StopIteration)) return true;
  const Ref error = Ref::steal(PyObject_CallFunction(PyExc_RuntimeError, "s", "generator raised StopIteration"));
  if (!error) return false;
  x.prov.add_fresh(error.get());
  PyException_SetCause(error.get(), Ref::borrow(exception.object).release());
  PyException_SetContext(error.get(), Ref::borrow(exception.object).release());
  return replace(f, 1, Owned(error));
}

// Stack: iterator, value that was sent, what throw() into the iterator raised. A StopIteration has the iterator's result.
bool Opcodes::cleanup_throw(Frame& f) {
  const Value exception = f.top();
  if (!PyErr_GivenExceptionMatches(exception.object, PyExc_StopIteration)) {
    restore(Ref::borrow(exception.object).release());
    return false;
  }
  PyObject* const value = reinterpret_cast<PyStopIterationObject*>(exception.object)->value;
  Owned result = Owned::borrow(value == nullptr ? Py_None : value);
  f.drop(3);
  f.push(Owned::none());
  f.push(std::move(result));
  return true;
}

// Stack: __exit__, last instruction, previous exception, exception.
bool Opcodes::with_except_start(Executor& x, Frame& f) {
  const Value exception = f.top();
  const Ref traceback = Ref::steal(PyException_GetTraceback(exception.object));
  Owned result = x.call(f.top(4), {{reinterpret_cast<PyObject*>(Py_TYPE(exception.object)), kNoSource},
                                   exception,
                                   {traceback ? traceback.get() : Py_None, kNoSource}});
  if (!result) return false;
  f.push(std::move(result));
  return true;
}

}  // namespace braze::capture
