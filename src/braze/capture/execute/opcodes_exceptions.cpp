// raise, except, finally and with.
#include "braze/capture/execute/handled.h"
#include "braze/capture/execute/opcodes.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

namespace {

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

Value Executor::handled() {
  PyObject* const now = handled_in(present_place());
  if (present_place() == place_at_start_ && now == handled_at_start_) {
    return prov.found(handled_or_none(false), prov.intern(SourceKind::Handled, kNoSource, 0));
  }
  return now == nullptr ? Value{Py_None, kNoSource} : Value{now, prov.recall(now, now)};
}

Value Executor::exception_to_reraise() {
  const _PyErr_StackItem* place = present_place();
  while (place != place_at_start_ && handled_in(place) == nullptr) place = place->previous_item;
  PyObject* const now = handled_in(place);
  if (place == place_at_start_ && now == handled_at_start_) {
    return prov.found(handled_or_none(true), prov.intern(SourceKind::Handled, kNoSource, 1));
  }
  return {now, prov.recall(now, now)};
}

// Raising an exception object changes it.
void Executor::require_fresh_exception(Value exception) {
  if (exception.src != kNoSource) fail("raising an exception object that existed before");
}

Owned Executor::traceback_of(Value exception) {
  const Ref traceback = Ref::steal(PyException_GetTraceback(exception.object));
  PyObject* const object = traceback ? traceback.get() : Py_None;
  if (exception.src == kNoSource) return Owned::borrow(object);
  return Owned::borrow(prov.found(object, prov.intern(SourceKind::Member, exception.src, 0, interned("__traceback__"))));
}

bool Opcodes::raise(Executor& x, Frame& f, uint32_t n) {
  if (n == 0) {
    const Value handled = x.exception_to_reraise();
    if (handled.object == Py_None) {
      x.prov.use_constant(handled);
      PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
      return false;
    }
    x.require_fresh_exception(handled);
    raise_again(Ref::borrow(handled.object));
    return true;
  }
  const Value raised = f.top(n);
  Owned exception = exception_instance(x, raised);
  if (!exception) return false;
  x.require_fresh_exception(exception.get());
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

void Opcodes::reraise(Executor& x, Frame& f, const Insn& insn) {
  x.require_fresh_exception(f.top());
  if (insn.arg > 0) {
    f.view.run(static_cast<uint32_t>(PyLong_AsLong(f.top(insn.arg + 1).object)));
  }
  raise_again(f.pop().ref);
}

bool Opcodes::push_exc_info(Executor& x, Frame& f) {
  Owned exception = f.pop();
  Owned before = Owned::borrow(x.handled());
  exchange_handled(present_place(), exception.ref);
  f.push(std::move(before));
  f.push(std::move(exception));
  return true;
}

bool Opcodes::pop_except(Frame& f) {
  Ref before = f.pop().ref;
  exchange_handled(present_place(), before.get() == Py_None ? Ref() : std::move(before));
  return true;
}

bool Opcodes::check_exc_match(Executor& x, Frame& f) {
  const Value pattern = f.top(), exception = f.top(2);
  x.prov.use_deep(pattern);
  x.prov.use_type(exception);
  if (!is_except_pattern(pattern.object)) return false;
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
  x.prov.use_type(exception);
  if (!PyErr_GivenExceptionMatches(exception.object, PyExc_StopIteration)) return true;
  const Ref error = Ref::steal(PyObject_CallFunction(PyExc_RuntimeError, "s", "generator raised StopIteration"));
  if (!error) return false;
  x.prov.add_fresh(error.get());
  PyException_SetCause(error.get(), Ref::borrow(exception.object).release());
  PyException_SetContext(error.get(), Ref::borrow(exception.object).release());
  return replace(f, 1, Owned(error));
}

// Stack: iterator, value that was sent, what throw() into the iterator raised. A StopIteration has the iterator's result.
bool Opcodes::cleanup_throw(Executor& x, Frame& f) {
  const Value exception = f.top();
  x.require_fresh_exception(exception);
  if (!PyErr_GivenExceptionMatches(exception.object, PyExc_StopIteration)) {
    raise_again(Ref::borrow(exception.object));
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
  const Owned traceback = x.traceback_of(exception);
  x.prov.use_type(exception);
  expect_result(x, f, 0);
  Owned result = x.call(f.top(4), {{reinterpret_cast<PyObject*>(Py_TYPE(exception.object)), kNoSource},
                                   exception, traceback.get()});
  if (!result) return false;
  f.push(std::move(result));
  return true;
}

}  // namespace braze::capture
