// Models of object's own methods, properties of classes, functools, operator, copy.
#include "braze/capture/execute/types.h"
#include "braze/capture/natives/arity.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

Owned new_object(Executor& x, Value type, const Arguments& a);

// T.__new__(cls, ...) of a builtin T.
Owned model_native_new(Executor& x, Value, const Arguments& a) {
  if (a.n == 0 || !PyType_Check(a.objects[0])) x.fail("__new__ without a class");
  x.prov.use_constant(a[0]);
  ArgumentList rest;
  rest.add(a, 1);
  rest.set_keyword_names(a.kwnames);
  return new_object(x, a[0], rest.get());
}

namespace {

Owned object_init(Executor&, Value, const Arguments&) { return Owned::none(); }

Owned object_setattr(Executor& x, Value, const Arguments& a) {
  require_arity("__setattr__", a, 3, 3);
  x.prov.use_constant(a[1]);
  return x.generic_set_attribute(a[0], a.objects[1], a[2]) ? Owned::none() : Owned();
}

Owned object_delattr(Executor& x, Value, const Arguments& a) {
  require_arity("__delattr__", a, 2, 2);
  x.prov.use_constant(a[1]);
  return x.generic_set_attribute(a[0], a.objects[1], {}) ? Owned::none() : Owned();
}

Owned object_getattribute(Executor& x, Value, const Arguments& a) {
  require_arity("__getattribute__", a, 2, 2);
  x.prov.use_constant(a[1]);
  return x.generic_attribute(a[0], a.objects[1], false);
}

Owned object_eq(Executor& x, Value, const Arguments& a) {
  if (x.is_same(a[0], a[1]) == 1) return Owned::boolean(true);
  return Owned::borrow(Py_NotImplemented);
}

Owned object_init_subclass(Executor&, Value, const Arguments&) { return Owned::none(); }

Owned type_instancecheck(Executor& x, Value, const Arguments& a) {
  x.prov.use_constant(a[0]);
  x.prov.use_type(a[1]);
  const int r = PyObject_IsInstance(a.objects[1], a.objects[0]) ;
  return r < 0 ? Owned() : Owned::boolean(r == 1);
}

Owned type_subclasscheck(Executor& x, Value, const Arguments& a) {
  x.prov.use_constant(a[0]);
  x.prov.use_constant(a[1]);
  auto* type = reinterpret_cast<PyTypeObject*>(a.objects[1]);
  return Owned::boolean(PyType_Check(a.objects[1]) &&
                        PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(a.objects[0])));
}

Owned type_call(Executor& x, Value, const Arguments& a) {   // type.__call__(cls, ...), through super()
  ArgumentList rest;
  rest.add(a, 1);
  rest.set_keyword_names(a.kwnames);
  return x.instantiate(a[0], rest.get());
}

// The abc machinery caches; the answer depends on classes and registrations only, and no registration takes a yes back.
Owned abc_answer(Executor& x, Value callable, const Arguments& a) {
  const Ref answer = Ref::steal(PyObject_Vectorcall(callable.object, a.objects, 2, nullptr));
  if (answer.get() != Py_True) x.prov.guards().abc_token();
  return answer;
}

Owned abc_instancecheck(Executor& x, Value callable, const Arguments& a) {
  x.prov.use_constant(a[0]);
  x.prov.use_type(a[1]);
  return abc_answer(x, callable, a);
}

Owned abc_subclasscheck(Executor& x, Value callable, const Arguments& a) {
  x.prov.use_constant(a[0]);
  x.prov.use_constant(a[1]);
  return abc_answer(x, callable, a);
}

Owned model_partial(Executor& x, Value callable, const Arguments& a) {
  const Ref made = Ref::steal(PyObject_Vectorcall(callable.object, a.objects, static_cast<size_t>(a.n_positional()),
                                                  a.kwnames));
  if (!made) return {};
  x.prov.add_fresh(made.get());
  const Ref args = Ref::steal(PyObject_GetAttrString(made.get(), "args"));
  const Ref keywords = Ref::steal(PyObject_GetAttrString(made.get(), "keywords"));
  x.prov.add_fresh(keywords.get());
  for (int64_t i = 0; i < a.n; i++) {
    x.prov.stored(made.get(), a[i]);
    if (i > 0 && i < a.n_positional()) x.prov.stored(args.get(), a[i]);
    if (i >= a.n_positional()) x.prov.stored(keywords.get(), a[i]);
  }
  return Owned(made);
}

// Function and method objects.
Owned function_get(Executor& x, Value, const Arguments& a) {   // f.__get__(object, type)
  if (a.n >= 2 && a.objects[1] != Py_None) {
    return x.bind(a[0], a[1], Py_TYPE(a.objects[1]), interned("__get__"));
  }
  return Owned::borrow(a[0]);
}

Owned model_method(Executor& x, Value, const Arguments& a) {   // types.MethodType(f, self)
  require_arity("method", a, 2, 2);
  const Ref made = Ref::steal(PyMethod_New(a.objects[0], a.objects[1]));
  if (!made) return {};
  x.prov.add_fresh(made.get());
  x.prov.stored(made.get(), a[0]);
  x.prov.stored(made.get(), a[1]);
  return Owned(made);
}

Owned model_property(Executor& x, Value callable, const Arguments& a) { return x.call_natively(callable.object, a); }

template <uint32_t op>
Owned operator_binary(Executor& x, Value, const Arguments& a) {
  require_arity("operator", a, 2, 2);
  return x.binary(op, a[0], a[1]);
}

template <int op>
Owned operator_compare(Executor& x, Value, const Arguments& a) {
  require_arity("operator", a, 2, 2);
  return x.compare(op, a[0], a[1]);
}

Owned operator_neg(Executor& x, Value, const Arguments& a) { return x.unary(Op::UnaryNegative, a[0]); }
Owned operator_pos(Executor& x, Value, const Arguments& a) { return x.unary(Op::UnaryPositive, a[0]); }
Owned operator_invert(Executor& x, Value, const Arguments& a) { return x.unary(Op::UnaryInvert, a[0]); }
Owned operator_not(Executor& x, Value, const Arguments& a) { return x.unary(Op::UnaryNot, a[0]); }

Owned operator_truth(Executor& x, Value, const Arguments& a) {
  const int t = x.truth(a[0]);
  return t < 0 ? Owned() : Owned::boolean(t == 1);
}

Owned operator_is(Executor& x, Value, const Arguments& a) { return Owned::boolean(x.is_same(a[0], a[1]) == 1); }
Owned operator_is_not(Executor& x, Value, const Arguments& a) { return Owned::boolean(x.is_same(a[0], a[1]) == 0); }

Owned operator_contains(Executor& x, Value, const Arguments& a) {
  const int r = x.contains(a[0], a[1]);
  return r < 0 ? Owned() : Owned::boolean(r == 1);
}

Owned operator_getitem(Executor& x, Value, const Arguments& a) { return x.subscript(a[0], a[1]); }

Owned operator_setitem(Executor& x, Value, const Arguments& a) {
  return x.set_subscript(a[0], a[1], a[2]) ? Owned::none() : Owned();
}

// itemgetter(...), attrgetter(...), methodcaller(...): what they hold is read through their __reduce__.
Owned make_getter(Executor& x, Value callable, const Arguments& a) {
  for (int64_t i = 0; i < a.n; i++) x.prov.use_deep(a[i]);
  Owned r = x.call_natively(callable.object, a);
  if (r) x.prov.add_fresh(r.ref.get());
  return r;
}

Owned generator_send(Executor& x, Value, const Arguments& a) {
  bool finished = false;
  Owned v = x.send(a[0], a[1], finished);
  if (!finished) return v;
  x.prov.use_constant(v.get());   // the exception does not remember where it came from
  _PyGen_SetStopIterationValue(v.ref.get());
  return {};
}

// throw and close enter the frame with an error set, by CPython's own code.
Owned generator_native(Executor& x, Value callable, const Arguments& a) {
  for (int64_t i = 1; i < a.n; i++) {
    if (PyExceptionInstance_Check(a.objects[i])) x.require_fresh_exception(a[i]);
  }
  return x.resume_natively(callable.object, a);
}

// BaseException.__init__ keeps its arguments.
Owned exception_init(Executor& x, Value, const Arguments& a) {
  x.require_fresh(a[0], "changing");
  const Ref args = Ref::steal(PyTuple_New(a.n_positional() - 1));
  for (int64_t i = 1; i < a.n_positional(); i++) {
    PyTuple_SET_ITEM(args.get(), i - 1, Ref::borrow(a.objects[i]).release());
    x.prov.stored(a.objects[0], a[i]);
    x.prov.stored(args.get(), a[i]);
  }
  // Past the __init__ in Python that may have called this one.
  return native_base(Py_TYPE(a.objects[0]))->tp_init(a.objects[0], args.get(), nullptr) < 0 ? Owned() : Owned::none();
}

Owned exception_init_native(Executor& x, Value callable, const Arguments& a) {
  if (a.n_keywords() > 0) x.fail("an exception with keyword arguments");
  x.require_fresh(a[0], "changing");
  for (int64_t i = 1; i < a.n; i++) x.prov.stored(a.objects[0], a[i]);
  return x.call_natively(callable.object, a);
}

// object.__reduce_ex__(4) of an instance with a plain __dict__: how copy takes it apart.
Owned object_reduce_ex(Executor& x, Value, const Arguments& a) {
  if (a.n != 2) x.fail("__reduce_ex__ with unusual arguments");
  PyTypeObject* type = Py_TYPE(a.objects[0]);
  x.prov.use_type(a[0]);
  x.prov.use_constant(a[1]);
  for (const char* hook : {"__reduce__", "__getstate__", "__getnewargs__", "__getnewargs_ex__"}) {
    PyObject* own = _PyType_Lookup(type, interned(hook));
    x.prov.use_type_attribute(type, interned(hook), own);
    if (own != _PyType_Lookup(&PyBaseObject_Type, interned(hook))) x.fail(std::string("copying through ") + hook);
  }
  if (type->tp_itemsize != 0 || PyDict_Check(a.objects[0]) || PyList_Check(a.objects[0]) || type->tp_dictoffset == 0 ||
      static_cast<size_t>(type->tp_basicsize) > sizeof(PyObject) + 2 * sizeof(void*)) {
    x.fail(std::string("copying an object of type ") + type->tp_name);
  }
  static PyObject* const make = [] {
    const Ref module = Ref::steal(PyImport_ImportModule("copyreg"));
    return module ? PyObject_GetAttrString(module.get(), "__newobj__") : nullptr;
  }();
  const Owned state = x.get_attribute(a[0], interned("__dict__"));
  if (!state) return {};
  const Value type_argument[] = {{reinterpret_cast<PyObject*>(type), kNoSource}};
  const Owned arguments = x.make_tuple(type_argument, 1);
  const bool empty = PyDict_Size(state.ref.get()) == 0;
  x.prov.use_truth(state.get(), !empty);
  const Value none{Py_None, kNoSource};
  const Value parts[] = {{make, kNoSource}, arguments.get(), empty ? none : state.get(), none, none};
  return x.make_tuple(parts, 5);
}

Owned model_pow(Executor& x, Value callable, const Arguments& a) {
  if (a.n == 2 && a.n_keywords() == 0) return x.binary(static_cast<uint32_t>(Binary::Power), a[0], a[1]);
  return x.call_pure(callable.object, a);
}

Owned exception_with_traceback(Executor& x, Value callable, const Arguments& a) {
  x.require_fresh(a[0], "changing");
  return x.call_natively(callable.object, a);
}

}  // namespace

const std::vector<ModelRow>& object_models() {
  constexpr auto in_place = [](Binary op) { return static_cast<uint32_t>(op) + kFirstInPlace; };
  static const std::vector<ModelRow> rows = {
      {"builtins.object.__init__", object_init}, {"builtins.object.__setattr__", object_setattr},
      {"builtins.object.__delattr__", object_delattr}, {"builtins.object.__getattribute__", object_getattribute},
      {"builtins.object.__eq__", object_eq}, {"builtins.object.__init_subclass__", object_init_subclass},
      {"builtins.type.__instancecheck__", type_instancecheck}, {"builtins.type.__subclasscheck__", type_subclasscheck},
      {"builtins.type.__call__", type_call}, {"_abc._abc_instancecheck", abc_instancecheck},
      {"_abc._abc_subclasscheck", abc_subclasscheck}, {"functools.partial", model_partial},
      {"types.FunctionType.__get__", function_get}, {"types.MethodType", model_method},
      {"builtins.property", model_property},
      {"_operator.add", operator_binary<static_cast<uint32_t>(Binary::Add)>},
      {"_operator.sub", operator_binary<static_cast<uint32_t>(Binary::Subtract)>},
      {"_operator.mul", operator_binary<static_cast<uint32_t>(Binary::Multiply)>},
      {"_operator.matmul", operator_binary<static_cast<uint32_t>(Binary::MatrixMultiply)>},
      {"_operator.truediv", operator_binary<static_cast<uint32_t>(Binary::TrueDivide)>},
      {"_operator.floordiv", operator_binary<static_cast<uint32_t>(Binary::FloorDivide)>},
      {"_operator.mod", operator_binary<static_cast<uint32_t>(Binary::Remainder)>},
      {"_operator.pow", operator_binary<static_cast<uint32_t>(Binary::Power)>},
      {"_operator.and_", operator_binary<static_cast<uint32_t>(Binary::And)>},
      {"_operator.or_", operator_binary<static_cast<uint32_t>(Binary::Or)>},
      {"_operator.xor", operator_binary<static_cast<uint32_t>(Binary::Xor)>},
      {"_operator.lshift", operator_binary<static_cast<uint32_t>(Binary::LeftShift)>},
      {"_operator.rshift", operator_binary<static_cast<uint32_t>(Binary::RightShift)>},
      {"_operator.concat", operator_binary<static_cast<uint32_t>(Binary::Add)>},
      {"_operator.iadd", operator_binary<in_place(Binary::Add)>},
      {"_operator.isub", operator_binary<in_place(Binary::Subtract)>},
      {"_operator.imul", operator_binary<in_place(Binary::Multiply)>},
      {"_operator.itruediv", operator_binary<in_place(Binary::TrueDivide)>},
      {"_operator.lt", operator_compare<Py_LT>}, {"_operator.le", operator_compare<Py_LE>},
      {"_operator.eq", operator_compare<Py_EQ>}, {"_operator.ne", operator_compare<Py_NE>},
      {"_operator.gt", operator_compare<Py_GT>}, {"_operator.ge", operator_compare<Py_GE>},
      {"_operator.neg", operator_neg}, {"_operator.pos", operator_pos}, {"_operator.invert", operator_invert},
      {"_operator.inv", operator_invert}, {"_operator.not_", operator_not}, {"_operator.truth", operator_truth},
      {"_operator.is_", operator_is}, {"_operator.is_not", operator_is_not},
      {"_operator.contains", operator_contains}, {"_operator.getitem", operator_getitem},
      {"_operator.setitem", operator_setitem}, {"operator.itemgetter", make_getter},
      {"operator.attrgetter", make_getter}, {"operator.methodcaller", make_getter},
      {"types.GeneratorType.send", generator_send, true}, {"types.GeneratorType.throw", generator_native},
      {"types.GeneratorType.close", generator_native},
      {"builtins.BaseException.__init__", exception_init}, {"builtins.Exception.__init__", exception_init},
      {"builtins.ValueError.__init__", exception_init_native}, {"builtins.TypeError.__init__", exception_init_native},
      {"builtins.RuntimeError.__init__", exception_init_native}, {"builtins.KeyError.__init__", exception_init_native},
      {"builtins.LookupError.__init__", exception_init_native}, {"builtins.IndexError.__init__", exception_init_native},
      {"builtins.NotImplementedError.__init__", exception_init_native},
      {"builtins.object.__reduce_ex__", object_reduce_ex}, {"builtins.pow", model_pow},
      {"builtins.BaseException.with_traceback", exception_with_traceback},
  };
  return rows;
}

}  // namespace braze::capture
