#include "braze/capture/exits/step.h"

#include <vector>

#include "braze/capture/execute/handled.h"

namespace braze::capture {

namespace {

using Operator = PyObject* (*)(PyObject*, PyObject*);

PyObject* power(PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }
PyObject* in_place_power(PyObject* a, PyObject* b) { return PyNumber_InPlacePower(a, b, Py_None); }

// In the order of enum Binary, then the in-place forms.
constexpr Operator kBinary[] = {
    PyNumber_Add, PyNumber_And, PyNumber_FloorDivide, PyNumber_Lshift, PyNumber_MatrixMultiply, PyNumber_Multiply,
    PyNumber_Remainder, PyNumber_Or, power, PyNumber_Rshift, PyNumber_Subtract, PyNumber_TrueDivide, PyNumber_Xor,
    PyNumber_InPlaceAdd, PyNumber_InPlaceAnd, PyNumber_InPlaceFloorDivide, PyNumber_InPlaceLshift,
    PyNumber_InPlaceMatrixMultiply, PyNumber_InPlaceMultiply, PyNumber_InPlaceRemainder, PyNumber_InPlaceOr,
    in_place_power, PyNumber_InPlaceRshift, PyNumber_InPlaceSubtract, PyNumber_InPlaceTrueDivide, PyNumber_InPlaceXor};

class Stepper {
 public:
  explicit Stepper(StepFrame& f) : f_(f) {}
  Step run();

 private:
  PyObject* top(int64_t depth = 1) const { return f_.sp[-depth]; }
  PyObject* name(uint32_t i) const { return PyTuple_GET_ITEM(f_.code.names, i); }
  void push(PyObject* owned) { *f_.sp++ = owned; }
  void drop(int64_t n) {
    for (; n > 0; n--) Ref::steal(*--f_.sp);
  }
  Step next() { return f_.pc++, Step::Done; }
  Step go(bool jump) {
    f_.pc = jump ? insn().target : f_.pc + 1;
    return Step::Done;
  }
  const Insn& insn() const { return f_.code.insns[f_.pc]; }
  // The top n entries give way to the result, if there is one.
  Step replace(int64_t n, PyObject* result) {
    if (result == nullptr) return Step::Raised;
    drop(n);
    push(result);
    return next();
  }
  Step replace_by_truth(int64_t n, int truth, bool negated) {
    if (truth < 0) return Step::Raised;
    return replace(n, Ref::borrow((truth == 1) != negated ? Py_True : Py_False).release());
  }
  Step done(int64_t n, int rc) {
    if (rc < 0) return Step::Raised;
    drop(n);
    return next();
  }
  Step unary(PyObject* (*op)(PyObject*)) { return replace(1, op(top())); }
  Step branch(bool jump_if, bool keep);
  void push_callable(PyObject* owned) {
    if (!kNullAboveCallable) push(nullptr);
    push(owned);
    if (kNullAboveCallable) push(nullptr);
  }
  bool load(uint32_t slot) {
    if (f_.view.slots[slot] == nullptr) return false;
    return push(Ref::borrow(f_.view.slots[slot]).release()), true;
  }
  void store(uint32_t slot) {
    const Ref old = Ref::steal(f_.view.slots[slot]);
    f_.view.slots[slot] = *--f_.sp;
  }
  Step store_slice();
  Step load_super_attr(uint32_t arg);
  Step compare(uint32_t arg);
  // `kwnames` stand on the stack, or elsewhere.
  Step call(uint32_t n, PyObject* kwnames, bool names_on_stack);
  Step call_spread(bool with_keywords);
  Step load_global(uint32_t arg);
  Step load_method(PyObject* attribute);
  Step for_iter();
  Step unpack(uint32_t n);
  Step format(uint32_t flags);
  Step before_with();
  Step import_name();
  Step import_from();
  Step make_function(uint32_t flags);
  Step build(uint32_t n);
  Step raise(uint32_t n);
  Step raise_again(uint32_t arg);
  Step push_exc_info();
  Step check_exc_match();
  Step with_except_start();

  StepFrame& f_;
};

Step Stepper::branch(bool jump_if, bool keep) {
  const int truth = PyObject_IsTrue(top());
  if (truth < 0) return Step::Raised;
  const bool jump = (truth == 1) == jump_if;
  if (!jump || !keep) drop(1);
  return go(jump);
}

Step Stepper::compare(uint32_t arg) {
  PyObject* result = PyObject_RichCompare(top(2), top(), static_cast<int>(arg & ~kCompareToBool));
  if (result == nullptr) return Step::Raised;
  if ((arg & kCompareToBool) == 0) return replace(2, result);
  const Ref compared = Ref::steal(result);
  return replace_by_truth(2, PyObject_IsTrue(result), false);
}

// Stack: value, container, start, stop.
Step Stepper::store_slice() {
  const Ref slice = Ref::steal(PySlice_New(top(2), top(), nullptr));
  if (!slice) return Step::Raised;
  return done(4, PyObject_SetItem(top(3), slice.get(), top(4)));
}

// Stack: callable and self (callee_of), arguments.
Step Stepper::call(uint32_t n, PyObject* kwnames, bool names_on_stack) {
  const int64_t n_arguments = static_cast<int64_t>(n), all = n_arguments + (names_on_stack ? 3 : 2);
  PyObject** const bottom = f_.sp - all;
  const Callee callee = callee_of(bottom);
  const size_t has_self = callee.has_self ? 1 : 0, count = static_cast<size_t>(n) + has_self;
  const size_t n_keywords = kwnames == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(kwnames));
  PyObject* result = PyObject_Vectorcall(bottom[callee.at], bottom + 2 - has_self, count - n_keywords, kwnames);
  drop(all);
  if (result == nullptr) return Step::Raised;
  push(result);
  return next();
}

Step Stepper::call_spread(bool with_keywords) {
  PyObject* const keywords = with_keywords ? top() : nullptr;
  PyObject* const positional = top(with_keywords ? 2 : 1);
  const int64_t all = with_keywords ? 4 : 3;
  PyObject** const bottom = f_.sp - all;
  // CPython words the errors for others.
  if (!PyTuple_CheckExact(positional) || (keywords != nullptr && !PyDict_CheckExact(keywords))) return Step::HandOver;
  PyObject* result = PyObject_Call(bottom[callee_of(bottom).at], positional, keywords);
  drop(all);
  if (result == nullptr) return Step::Raised;
  push(result);
  return next();
}

// Stack: what `super` is, the class, self.
Step Stepper::load_super_attr(uint32_t arg) {
  PyObject* const arguments[] = {top(2), top()};
  const Ref super = Ref::steal(PyObject_Vectorcall(top(3), arguments, arg & kSuperWithArguments, nullptr));
  if (!super) return Step::Raised;
  PyObject* const found = PyObject_GetAttr(super.get(), name(arg >> 2));
  if (found == nullptr) return Step::Raised;
  drop(3);
  if (arg & kSuperMethod) push_callable(found);
  else push(found);
  return next();
}

Step Stepper::load_global(uint32_t arg) {
  PyObject* const key = name(arg >> 1);
  PyObject* value = PyDict_GetItemWithError(f_.view.globals, key);
  if (value == nullptr && !PyErr_Occurred() && PyDict_CheckExact(f_.view.builtins)) {
    value = PyDict_GetItemWithError(f_.view.builtins, key);
  }
  if (value == nullptr) return PyErr_Clear(), Step::HandOver;
  if (arg & 1) push_callable(Ref::borrow(value).release());
  else push(Ref::borrow(value).release());
  return next();
}

Step Stepper::load_method(PyObject* attribute) {
  PyObject* method = nullptr;
  const int bound = _PyObject_GetMethod(top(), attribute, &method);
  if (method == nullptr) return Step::Raised;
  if (bound) {
    PyObject* const self = *--f_.sp;
    push(method);
    push(self);
  } else {
    drop(1);
    push_callable(method);
  }
  return next();
}

Step Stepper::for_iter() {
  PyObject* const iterator = top();
  PyObject* const item = Py_TYPE(iterator)->tp_iternext(iterator);
  if (item != nullptr) {
    push(item);
    return next();
  }
  if (PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_StopIteration)) return Step::Raised;
    PyErr_Clear();
  }
  drop(1);
  return go(true);
}

// Lists and tuples of the right length, and what else can be iterated: CPython words the errors.
Step Stepper::unpack(uint32_t n) {
  PyObject* const sequence = top();
  if (!PyTuple_CheckExact(sequence) && !PyList_CheckExact(sequence) && Py_TYPE(sequence)->tp_iter == nullptr) {
    return Step::HandOver;
  }
  const Ref iterator = Ref::steal(PyObject_GetIter(sequence));
  if (!iterator) return Step::Raised;
  std::vector<Ref> items;
  while (items.size() <= n) {
    Ref item = Ref::steal(Py_TYPE(iterator.get())->tp_iternext(iterator.get()));
    if (!item) break;
    items.push_back(std::move(item));
  }
  if (PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_StopIteration)) return Step::Raised;
    PyErr_Clear();
  }
  if (items.size() != n) {
    if (items.size() < n) {
      PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %d, got %d)", static_cast<int>(n),
                   static_cast<int>(items.size()));
    } else {
      PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", static_cast<int>(n));
    }
    return Step::Raised;
  }
  drop(1);
  for (auto item = items.rbegin(); item != items.rend(); ++item) push(item->release());
  return next();
}

PyObject* converted(PyObject* value, uint32_t conversion) {
  switch (conversion) {
    case 0: return Ref::borrow(value).release();
    case 1: return PyObject_Str(value);
    case 2: return PyObject_Repr(value);
    default: return PyObject_ASCII(value);
  }
}

Step Stepper::format(uint32_t flags) {
  PyObject* const spec = (flags & kFormatWithSpec) != 0 ? top() : nullptr;
  PyObject* const value = top(spec != nullptr ? 2 : 1);
  const Ref text = Ref::steal(converted(value, flags & 3));
  if (!text) return Step::Raised;
  const bool ready = PyUnicode_CheckExact(text.get()) && spec == nullptr;
  return replace(spec != nullptr ? 2 : 1, ready ? Ref(text).release() : PyObject_Format(text.get(), spec));
}

Ref bound_special(PyObject* object, const char* attribute) {
  const Ref key = Ref::steal(PyUnicode_InternFromString(attribute));
  PyObject* const found = key ? _PyType_Lookup(Py_TYPE(object), key.get()) : nullptr;
  if (found == nullptr) return {};
  const descrgetfunc get = Py_TYPE(found)->tp_descr_get;
  return get == nullptr ? Ref::borrow(found)
                        : Ref::steal(get(found, object, reinterpret_cast<PyObject*>(Py_TYPE(object))));
}

Step Stepper::before_with() {
  PyObject* const manager = top();
  const Ref enter = bound_special(manager, "__enter__");
  Ref exit = enter ? bound_special(manager, "__exit__") : Ref();
  if (!exit) return PyErr_Clear(), Step::HandOver;
  PyObject* const entered = PyObject_CallNoArgs(enter.get());
  if (entered == nullptr) return Step::Raised;
  drop(1);
  push(exit.release());
  push(entered);
  return next();
}

Step Stepper::import_name() {
  PyObject* const import = PyDict_GetItemString(f_.view.builtins, "__import__");
  if (import == nullptr) return Step::HandOver;
  PyObject* const locals = f_.view.locals == nullptr ? Py_None : f_.view.locals;
  PyObject* const arguments[] = {name(insn().arg), f_.view.globals, locals, top(), top(2)};
  return replace(2, PyObject_Vectorcall(import, arguments, 5, nullptr));
}

Step Stepper::import_from() {
  PyObject* const value = PyObject_GetAttr(top(), name(insn().arg));
  if (value == nullptr) return PyErr_Clear(), Step::HandOver;
  push(value);
  return next();
}

Step Stepper::make_function(uint32_t flags) {
  Ref made = Ref::steal(PyFunction_New(top(), f_.view.globals));
  if (!made) return Step::Raised;
  drop(1);
  for (const uint32_t part : {kClosure, kAnnotations, kKeywordDefaults, kDefaults}) {
    if (flags & part) function_part(made.get(), part) = *--f_.sp;
  }
  push(made.release());
  return next();
}

Step Stepper::build(uint32_t n) {
  PyObject* const made = insn().op == Op::BuildTuple ? PyTuple_New(n) : PyList_New(n);
  if (made == nullptr) return Step::Raised;
  for (uint32_t i = n; i > 0; i--) {
    PyObject* const item = *--f_.sp;
    if (insn().op == Op::BuildTuple) PyTuple_SET_ITEM(made, i - 1, item);
    else PyList_SET_ITEM(made, i - 1, item);
  }
  push(made);
  return next();
}

// An instance of what is raised: the object itself, or its class called. Empty: an error is set.
Ref exception_instance(PyObject* raised, const char* what) {
  if (PyExceptionInstance_Check(raised)) return Ref::borrow(raised);
  if (!PyExceptionClass_Check(raised)) {
    PyErr_Format(PyExc_TypeError, "%s derive from BaseException", what);
    return {};
  }
  Ref made = Ref::steal(PyObject_CallNoArgs(raised));
  if (made && !PyExceptionInstance_Check(made.get())) {
    PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", raised,
                 Py_TYPE(made.get()));
    return {};
  }
  return made;
}

Step Stepper::raise(uint32_t n) {
  if (n == 0) {
    PyObject* const handled = innermost_handled();
    if (handled != nullptr) return capture::raise_again(Ref::borrow(handled)), Step::RaisedAgain;
    PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
    return Step::Raised;
  }
  const Ref exception = exception_instance(top(n), "exceptions must");
  if (!exception) return Step::Raised;
  if (n == 2) {
    Ref cause;
    if (top() != Py_None && !(cause = exception_instance(top(), "exception causes must"))) return Step::Raised;
    PyException_SetCause(exception.get(), cause.release());
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())), exception.get());
  return Step::Raised;
}

// Stack: the instruction that raised, further down, and the exception.
Step Stepper::raise_again(uint32_t arg) {
  if (arg > 0) f_.view.run(static_cast<uint32_t>(PyLong_AsLong(top(arg + 1))));
  capture::raise_again(Ref::steal(*--f_.sp));
  return Step::RaisedAgain;
}

Step Stepper::push_exc_info() {
  PyObject* const exception = *--f_.sp;
  Ref before = exchange_handled(present_place(), Ref::borrow(exception));
  push(before ? before.release() : Ref::borrow(Py_None).release());
  push(exception);
  return next();
}

Step Stepper::check_exc_match() {
  if (!is_except_pattern(top())) return Step::Raised;
  return replace_by_truth(1, PyErr_GivenExceptionMatches(top(2), top()), false);
}

// Stack: __exit__, last instruction, previous exception, exception.
Step Stepper::with_except_start() {
  const Ref traceback = Ref::steal(PyException_GetTraceback(top()));
  PyObject* const arguments[] = {reinterpret_cast<PyObject*>(Py_TYPE(top())), top(),
                                 traceback ? traceback.get() : Py_None};
  PyObject* const result = PyObject_Vectorcall(top(4), arguments, 3, nullptr);
  if (result == nullptr) return Step::Raised;
  push(result);
  return next();
}

Step Stepper::run() {
  const uint32_t arg = insn().arg;
  switch (insn().op) {
    case Op::Nop: return next();
    case Op::PopTop: return drop(1), next();
    case Op::PushNull: return push(nullptr), next();
    case Op::Copy: return push(Ref::borrow(top(arg)).release()), next();
    case Op::Swap: return std::swap(f_.sp[-1], f_.sp[-static_cast<int64_t>(arg)]), next();
    case Op::UnaryPositive: return unary(PyNumber_Positive);
    case Op::UnaryNegative: return unary(PyNumber_Negative);
    case Op::UnaryInvert: return unary(PyNumber_Invert);
    case Op::UnaryNot: return replace_by_truth(1, PyObject_IsTrue(top()), true);
    case Op::BinaryOp: return replace(2, kBinary[arg](top(2), top()));
    case Op::BinarySubscr: return replace(2, PyObject_GetItem(top(2), top()));
    case Op::StoreSubscr: return done(3, PyObject_SetItem(top(2), top(), top(3)));
    case Op::DeleteSubscr: return done(2, PyObject_DelItem(top(2), top()));
    case Op::ToBool: return replace_by_truth(1, PyObject_IsTrue(top()), false);
    case Op::BinarySlice: {
      const Ref slice = Ref::steal(PySlice_New(top(2), top(), nullptr));
      return replace(3, slice ? PyObject_GetItem(top(3), slice.get()) : nullptr);
    }
    case Op::StoreSlice: return store_slice();
    case Op::CompareOp: return compare(arg);
    case Op::IsOp: return replace_by_truth(2, top(2) == top() ? 1 : 0, arg == 1);
    case Op::ContainsOp: return replace_by_truth(2, PySequence_Contains(top(), top(2)), arg == 1);
    case Op::LoadConst: return push(Ref::borrow(PyTuple_GET_ITEM(f_.code.constants, arg)).release()), next();
    case Op::LoadFast: return load(arg) ? next() : Step::HandOver;
    case Op::LoadFastLoadFast:
      if (f_.view.slots[arg & 15] == nullptr || !load(arg >> 4)) return Step::HandOver;
      return load(arg & 15), next();
    case Op::StoreFast: return store(arg), next();
    case Op::StoreFastLoadFast:
      if (f_.view.slots[arg & 15] == nullptr && arg >> 4 != (arg & 15)) return Step::HandOver;
      return store(arg >> 4), load(arg & 15), next();
    case Op::StoreFastStoreFast: return store(arg >> 4), store(arg & 15), next();
    case Op::LoadFastAndClear: return push(std::exchange(f_.view.slots[arg], nullptr)), next();
    case Op::LoadGlobal: return load_global(arg);
    case Op::StoreGlobal: return done(1, PyDict_SetItem(f_.view.globals, name(arg), top()));
    case Op::LoadDeref: {
      PyObject* const content = PyCell_GET(f_.view.slots[arg]);
      if (content == nullptr) return Step::HandOver;
      return push(Ref::borrow(content).release()), next();
    }
    case Op::StoreDeref: return done(1, PyCell_Set(f_.view.slots[arg], top()));
    case Op::LoadAttr: return replace(1, PyObject_GetAttr(top(), name(arg)));
    case Op::LoadMethod: return load_method(name(arg));
    case Op::StoreAttr: return done(2, PyObject_SetAttr(top(), name(arg), top(2)));
    case Op::DeleteAttr: return done(1, PyObject_SetAttr(top(), name(arg), nullptr));
    case Op::BuildTuple:
    case Op::BuildList: return build(arg);
    case Op::FormatValue: return format(arg);
    case Op::ConvertValue: return replace(1, converted(top(), arg));
    case Op::LoadSuperAttr: return load_super_attr(arg);
    case Op::ListAppend: return done(1, PyList_Append(top(arg + 1), top()));
    case Op::SetAdd: return done(1, PySet_Add(top(arg + 1), top()));
    case Op::MapAdd: return done(2, PyDict_SetItem(top(arg + 2), top(2), top()));
    case Op::UnpackSequence: return unpack(arg);
    case Op::GetIter: return replace(1, PyObject_GetIter(top()));
    case Op::ForIter: return for_iter();
    case Op::Jump: return go(true);
    case Op::PopJumpIfFalse: return branch(false, false);
    case Op::PopJumpIfTrue: return branch(true, false);
    case Op::JumpIfFalseOrPop: return branch(false, true);
    case Op::JumpIfTrueOrPop: return branch(true, true);
    case Op::PopJumpIfNone:
    case Op::PopJumpIfNotNone: {
      const bool none = top() == Py_None;
      drop(1);
      return go(none == (f_.code.insns[f_.pc].op == Op::PopJumpIfNone));
    }
    case Op::KwNames: {
      PyObject* const kwnames = PyTuple_GET_ITEM(f_.code.constants, arg);
      f_.pc++;
      return call(insn().arg, kwnames, false);
    }
    case Op::Call: return call(arg, nullptr, false);
    case Op::CallKw: {
      const Ref kwnames = Ref::borrow(top());
      return call(arg, kwnames.get(), true);
    }
    case Op::CallFunctionEx: return call_spread((arg & 1) != 0);
    case Op::MakeFunction: return make_function(arg);
    case Op::SetFunctionAttribute: {
      PyObject* const function = *--f_.sp;
      function_part(function, arg) = *--f_.sp;
      return push(function), next();
    }
    case Op::LoadBuildClass: {
      PyObject* const build_class = PyDict_GetItemString(f_.view.builtins, "__build_class__");
      if (build_class == nullptr) return Step::HandOver;
      return push(Ref::borrow(build_class).release()), next();
    }
    case Op::ImportName: return import_name();
    case Op::ImportFrom: return import_from();
    case Op::BeforeWith: return before_with();
    case Op::RaiseVarargs: return raise(arg);
    case Op::Reraise: return raise_again(arg);
    case Op::PushExcInfo: return push_exc_info();
    case Op::PopExcept: {
      Ref before = Ref::steal(*--f_.sp);
      exchange_handled(present_place(), before.get() == Py_None ? Ref() : std::move(before));
      return next();
    }
    case Op::CheckExcMatch: return check_exc_match();
    case Op::WithExceptStart: return with_except_start();
    case Op::Unknown: case Op::DeleteFast: case Op::LoadName: case Op::StoreName: case Op::DeleteName:
    case Op::DeleteGlobal: case Op::MakeCell: case Op::DeleteDeref: case Op::LoadClassDeref: case Op::CopyFreeVars:
    case Op::BuildSet: case Op::BuildMap: case Op::BuildConstKeyMap: case Op::BuildString: case Op::BuildSlice:
    case Op::ListExtend: case Op::SetUpdate: case Op::DictUpdate: case Op::DictMerge: case Op::ListToTuple:
    case Op::UnpackEx: case Op::GetYieldFromIter: case Op::GetLen: case Op::MatchMapping: case Op::MatchSequence:
    case Op::MatchKeys: case Op::MatchClass: case Op::LoadAssertionError: case Op::ReturnValue:
    case Op::ReturnGenerator: case Op::YieldValue: case Op::Send: case Op::ReturnConst: case Op::EndSend:
    case Op::CleanupThrow: case Op::StopIterationError:
      return Step::HandOver;
  }
  return Step::HandOver;
}

}  // namespace

Step step_instruction(StepFrame& frame) { return Stepper(frame).run(); }

}  // namespace braze::capture
