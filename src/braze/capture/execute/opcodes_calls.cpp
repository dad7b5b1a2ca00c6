// Calls, function objects and generators.
#include "braze/capture/execute/opcodes.h"

namespace braze::capture {

namespace {

void push_method(Frame& f, Method m) {
  if (m.self) {
    f.push(std::move(m.function));
    f.push(std::move(m.self));
  } else {
    f.push_callable(std::move(m.function));
  }
}

}  // namespace

bool Opcodes::to_bool(Executor& x, Frame& f) {
  if (PyBool_Check(f.top().object)) return true;   // guarded where it decides
  const int truth = x.truth(f.top());
  return truth >= 0 && replace(f, 1, Owned::boolean(truth == 1));
}

bool Opcodes::compare(Executor& x, Frame& f, uint32_t arg) {
  Owned result = x.compare(static_cast<int>(arg & ~kCompareToBool), f.top(2), f.top());
  return replace(f, 2, std::move(result)) && ((arg & kCompareToBool) == 0 || to_bool(x, f));
}

bool Opcodes::load_method(Executor& x, Frame& f, PyObject* name) {
  Method m = x.load_method(f.top(), name);
  if (!m.function) return false;
  f.drop(1);
  push_method(f, std::move(m));
  return true;
}

// Stack: what `super` is, the class, self.
bool Opcodes::load_super_attr(Executor& x, Frame& f, uint32_t arg) {
  const Value super = f.top(3);
  PyObject* const name = f.name(arg >> 2);
  // super() without arguments means these two, where it is Python's own.
  const bool with_arguments =
      (arg & kSuperWithArguments) != 0 || super.object == reinterpret_cast<PyObject*>(&PySuper_Type);
  const Owned bound = with_arguments ? x.call(super, {f.top(2), f.top()}) : x.call(super, {});
  if (!bound) return false;
  if ((arg & kSuperMethod) == 0) return replace(f, 3, x.get_attribute(bound.get(), name));
  Method m = x.load_method(bound.get(), name);
  if (!m.function) return false;
  f.drop(3);
  push_method(f, std::move(m));
  return true;
}

// Stack: callable and self (callee_of), arguments; the keywords' names, unless an instruction before gave them.
bool Opcodes::call(Executor& x, Frame& f, uint32_t n, bool names_on_stack) {
  PyObject* const kwnames = names_on_stack ? f.top().object : std::exchange(f.kwnames, nullptr);
  const int64_t n_arguments = static_cast<int64_t>(n), all = n_arguments + (names_on_stack ? 3 : 2);
  const Callee callee = callee_of(f.sp - all);
  const Value callable = f.top(all - callee.at);
  const int64_t count = n_arguments + (callee.has_self ? 1 : 0);
  PyObject** const first = f.sp - all + 2 - (callee.has_self ? 1 : 0);
  const Arguments arguments{first, f.src + (first - f.slots), count, kwnames};
  expect_result(x, f, all);
  Owned result = x.call(callable, arguments);
  if (!result) return false;
  f.drop(all);
  f.push(std::move(result));
  return true;
}

// Stack: callable and NULL (callee_of), positional arguments, keywords.
bool Opcodes::call_ex(Executor& x, Frame& f, uint32_t flags) {
  const bool with_keywords = (flags & 1) != 0;
  const int64_t n = with_keywords ? 4 : 3;
  const Value keywords = with_keywords ? f.top() : Value{};
  const Value positional = f.top(with_keywords ? 2 : 1);
  const Value callable = f.top(n - callee_of(f.sp - n).at);
  expect_result(x, f, n);
  Owned result = x.call_spread(callable, positional, keywords);
  if (!result) return false;
  f.drop(n);
  f.push(std::move(result));
  return true;
}

// Sources of captured cells and defaults stay with the tuples that hold them.
bool Opcodes::make_function(Executor& x, Frame& f, uint32_t flags) {
  const Owned code = f.pop();
  for (int i = 1; i <= __builtin_popcount(flags & 0xf); i++) {
    if (f.top(i).src != kNoSource) end_segment("a function of parts that were made before the segment");
  }
  const Ref made = Ref::steal(PyFunction_New(code.ref.get(), f.view.globals));
  if (!made) return false;
  x.prov.add_fresh(made.get());
  for (const uint32_t part : {kClosure, kAnnotations, kKeywordDefaults, kDefaults}) {
    if (flags & part) function_part(made.get(), part) = f.pop().ref.release();
  }
  f.push(Owned(made));
  return true;
}

// Stack: the part, the function.
bool Opcodes::set_function_attribute(Executor&, Frame& f, uint32_t flag) {
  if (f.top().src != kNoSource || f.top(2).src != kNoSource) {
    end_segment("a function of parts that were made before the segment");
  }
  Owned function = f.pop();
  function_part(function.ref.get(), flag) = f.pop().ref.release();
  f.push(std::move(function));
  return true;
}

// Stack: iterator, its result.
bool Opcodes::end_send(Frame& f) {
  Owned result = f.pop();
  f.drop(1);
  f.push(std::move(result));
  return true;
}

// Stack: iterator, value to send. The value is popped by the caller.
Owned Opcodes::send(Executor& x, Frame& f) {
  finished = false;
  const Value sent = f.top(), iterator = f.top(2);
  if (PyGen_CheckExact(iterator.object)) {
    expect_result(x, f, 0, After::Send);
    return x.send(iterator, sent, finished);
  }
  if (sent.object != Py_None) x.fail("sending into an iterator that is no generator");
  Owned item = x.next(iterator);
  if (!item && !PyErr_Occurred()) {
    finished = true;
    return Owned::none();
  }
  return item;
}

}  // namespace braze::capture
