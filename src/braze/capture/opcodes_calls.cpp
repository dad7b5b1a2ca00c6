// Calls, function objects and generators.
#include "braze/capture/opcodes.h"

namespace braze::capture {

bool Opcodes::load_method(Executor& x, Frame& f, PyObject* name) {
  Method m = x.load_method(f.top(), name);
  if (!m.function) return false;
  f.drop(1);
  if (m.self) {
    f.push(std::move(m.function));
    f.push(std::move(m.self));
  } else {
    f.push_null();
    f.push(std::move(m.function));
  }
  return true;
}

// Stack: function, self, arguments; or NULL, callable, arguments.
bool Opcodes::call(Executor& x, Frame& f, uint32_t n) {
  PyObject* kwnames = std::exchange(f.kwnames, nullptr);
  const bool is_method = f.top(n + 2).object != nullptr;
  const Value callable = f.top(is_method ? n + 2 : n + 1);
  const int64_t count = static_cast<int64_t>(n) + (is_method ? 1 : 0);
  const Arguments arguments{f.sp - count, f.src + (f.sp - f.slots - count), count, kwnames};
  expect_result(x, f, static_cast<int64_t>(n) + 2);
  Owned result = x.call(callable, arguments);
  if (!result) return false;
  f.drop(static_cast<int64_t>(n) + 2);
  f.push(std::move(result));
  return true;
}

bool Opcodes::call_ex(Executor& x, Frame& f, uint32_t flags) {
  const bool with_keywords = (flags & 1) != 0;
  const Value keywords = with_keywords ? f.top() : Value{};
  const Value positional = f.top(with_keywords ? 2 : 1);
  const Value callable = f.top(with_keywords ? 3 : 2);
  const int64_t n = with_keywords ? 4 : 3;   // and the NULL below
  expect_result(x, f, n);
  Owned result = x.call_spread(callable, positional, keywords);
  if (!result) return false;
  f.drop(n);
  f.push(std::move(result));
  return true;
}

bool Opcodes::make_function(Executor& x, Frame& f, uint32_t flags) {
  const Owned code = f.pop();
  for (int i = 1; i <= __builtin_popcount(flags & 0xf); i++) {
    if (f.top(i).src != kNoSource) end_segment("a function of parts that were made before the segment");
  }
  const Ref made = Ref::steal(PyFunction_New(code.ref.get(), f.view.globals));
  if (!made) return false;
  auto* function = reinterpret_cast<PyFunctionObject*>(made.get());
  x.prov.add_fresh(made.get());
  // Sources of captured cells and defaults stay with the tuples that hold them.
  if (flags & 0x08) function->func_closure = f.pop().ref.release();
  if (flags & 0x04) function->func_annotations = f.pop().ref.release();
  if (flags & 0x02) function->func_kwdefaults = f.pop().ref.release();
  if (flags & 0x01) function->func_defaults = f.pop().ref.release();
  f.push(Owned(made));
  return true;
}

// Stack: iterator, value to send. The value is popped by the caller.
Owned Opcodes::send(Executor& x, Frame& f) {
  finished = false;
  const Value sent = f.top(), iterator = f.top(2);
  if (PyGen_CheckExact(iterator.object)) return x.send(iterator, sent, finished);
  if (sent.object != Py_None) x.fail("sending into an iterator that is no generator");
  Owned item = x.next(iterator);
  if (!item && !PyErr_Occurred()) {
    finished = true;
    return Owned::none();
  }
  return item;
}

}  // namespace braze::capture
