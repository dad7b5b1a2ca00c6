// Calling classes: type(x), exceptions, builtin constructors, and classes written in Python.
#include "braze/capture/execute/generic_types.h"
#include "braze/capture/execute/types.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

namespace {

PyTypeObject* as_type(PyObject* object) { return reinterpret_cast<PyTypeObject*>(object); }

bool is_enum(PyTypeObject* type) {
  return PyUnicode_CompareWithASCIIString(interned("EnumType"), Py_TYPE(type)->tp_name) == 0;
}

// torch.return_types.max and the like: tuples with names, made in C.
bool is_struct_sequence(PyTypeObject* type) {
  return !is_python_class(type) && PyType_IsSubtype(type, &PyTuple_Type) &&
         PyDict_GetItemWithError(type_dict(type), interned("n_sequence_fields")) != nullptr;
}

bool is_deque(PyTypeObject* type) {
  static PyTypeObject* const deque = [] {
    const Ref module = Ref::steal(PyImport_ImportModule("collections"));
    PyObject* found = module ? PyObject_GetAttrString(module.get(), "deque") : nullptr;
    PyErr_Clear();
    return as_type(found);
  }();
  return deque != nullptr && PyType_IsSubtype(type, deque);
}

// tp_new of a builtin type, as its subclasses inherit it: what it does with the arguments of the call.
Owned native_new(Executor& x, Value type, const Arguments& a) {
  PyTypeObject* t = as_type(type.object);
  static PyObject* const no_arguments = PyTuple_New(0);
  if (PyType_IsSubtype(t, &PyDict_Type) || is_deque(t) || PyType_IsSubtype(t, &PyList_Type) || PyType_IsSubtype(t, &PySet_Type)) {
    return x.fresh(Ref::steal(t->tp_new(t, no_arguments, nullptr)));   // filled by __init__
  }
  if (PyType_IsSubtype(t, &PyTuple_Type)) {
    if (a.n == 0) return Owned::steal(t->tp_new(t, no_arguments, nullptr));
    const Owned items = x.call({reinterpret_cast<PyObject*>(&PyTuple_Type), kNoSource}, {a[0]});
    if (!items) return {};
    const Ref args = Ref::steal(PyTuple_Pack(1, items.ref.get()));
    const Ref made = Ref::steal((is_struct_sequence(t) ? t : &PyTuple_Type)->tp_new(t, args.get(), nullptr));
    if (!made) return {};
    x.prov.add_fresh(made.get());
    copy_sources(x, items.get(), made.get());
    return Owned(made);
  }
  if (PyType_IsSubtype(t, as_type(PyExc_BaseException))) {
    const Ref args = Ref::steal(PyTuple_New(a.n_positional()));
    for (int64_t i = 0; i < a.n_positional(); i++) PyTuple_SET_ITEM(args.get(), i, Ref::borrow(a.objects[i]).release());
    const Ref made = Ref::steal(t->tp_new(t, args.get(), nullptr));
    if (!made) return {};
    x.prov.add_fresh(made.get());
    for (int64_t i = 0; i < a.n_positional(); i++) {
      x.prov.stored(made.get(), a[i]);
      x.prov.stored(args.get(), a[i]);
    }
    return Owned(made);
  }
  if (PyType_IsSubtype(t, &PyLong_Type) || PyType_IsSubtype(t, &PyFloat_Type) || PyType_IsSubtype(t, &PyUnicode_Type)) {
    for (int64_t i = 0; i < a.n; i++) x.prov.use_deep(a[i]);
    const Ref args = Ref::steal(PyTuple_New(a.n_positional()));
    for (int64_t i = 0; i < a.n_positional(); i++) PyTuple_SET_ITEM(args.get(), i, Ref::borrow(a.objects[i]).release());
    return x.fresh(Ref::steal(t->tp_new(t, args.get(), nullptr)));
  }
  if (PyType_IsSubtype(t, &Py_GenericAliasType)) return generic_alias(x, type, a);
  x.fail(std::string("making an object of the native type ") + t->tp_name);
}

bool inherits_python_init(PyTypeObject* type, PyObject*& init) {
  init = _PyType_Lookup(type, interned("__init__"));
  return init != nullptr && PyFunction_Check(init);
}

}  // namespace

Owned new_object(Executor& x, Value type, const Arguments& a) {
  PyTypeObject* t = as_type(type.object);
  static PyObject* const no_arguments = PyTuple_New(0);
  if (t->tp_flags & Py_TPFLAGS_IS_ABSTRACT) {
    return Owned::steal(PyBaseObject_Type.tp_new(t, no_arguments, nullptr));   // raises
  }
  if (_PyType_Lookup(t, interned("__del__")) != nullptr) x.fail("making an object with a finalizer");
  PyTypeObject* const base = native_base(t);
  if (base == &PyBaseObject_Type || base->tp_new == PyBaseObject_Type.tp_new) {
    PyObject* init = _PyType_Lookup(t, interned("__init__"));
    static PyObject* const object_init = _PyType_Lookup(&PyBaseObject_Type, interned("__init__"));
    if (a.n > 0 && init == object_init && t->tp_new == PyBaseObject_Type.tp_new) {
      PyErr_Format(PyExc_TypeError, "%s() takes no arguments", t->tp_name);
      return {};
    }
    return x.fresh(Ref::steal(PyBaseObject_Type.tp_new(t, no_arguments, nullptr)));
  }
  return native_new(x, type, a);
}

Owned Executor::instantiate(Value type, const Arguments& a) {
  const After after = take_after();
  PyTypeObject* t = as_type(type.object);
  prov.use_constant(type);
  PyObject* make = _PyType_Lookup(t, interned("__new__"));
  prov.use_type_attribute(t, interned("__new__"), make);
  Owned made;
  if (make != nullptr && PyStaticMethod_Type.tp_descr_get != nullptr && Py_TYPE(make) == &PyStaticMethod_Type) {
    const Owned function = bind({make, kNoSource}, type, t, interned("__new__"));
    if (!function) return {};
    ArgumentList list;
    list.add(type);
    list.add(a);
    list.set_keyword_names(a.kwnames);
    made = call(prov.class_attribute(t, interned("__new__"), make).src == kNoSource
                    ? function.get()
                    : Value{function.ref.get(), prov.intern(SourceKind::Member,
                                                            prov.class_attribute(t, interned("__new__"), make).src, 0,
                                                            interned("__func__"))},
                list.get());
  } else if (make == nullptr || PyCFunction_Check(make)) {
    made = new_object(*this, type, a);
  } else {   // a plain function set later, or another descriptor
    const Owned function = get_attribute(type, interned("__new__"));
    if (!function) return {};
    ArgumentList list;
    list.add(type);
    list.add(a);
    list.set_keyword_names(a.kwnames);
    made = call(function.get(), list.get());
  }
  if (!made || !PyObject_TypeCheck(made.ref.get(), t)) return made;
  PyTypeObject* actual = Py_TYPE(made.ref.get());
  PyObject* init = nullptr;
  if (inherits_python_init(actual, init)) {
    ArgumentList list;
    list.reserve(static_cast<size_t>(a.n) + 1);
    list.add(made.get());
    list.add(a);
    list.set_keyword_names(a.kwnames);
    if (after == After::Push) {
      frame_->kept = made.get();
      expect(After::Init);
    }
    const Owned result = call(prov.class_attribute(actual, interned("__init__"), init), list.get());
    if (after == After::Push) frame_->kept = {};
    return result && is_init_result(result.ref.get()) ? made : Owned();
  }
  prov.use_type_attribute(actual, interned("__init__"), init);
  if (actual->tp_init == PyBaseObject_Type.tp_init || PyType_IsSubtype(actual, &PyTuple_Type)) return made;
  if (PyType_IsSubtype(actual, as_type(PyExc_BaseException)) && a.n_keywords() == 0) {
    const Ref args = Ref::steal(PyTuple_New(a.n));
    for (int64_t i = 0; i < a.n; i++) {
      PyTuple_SET_ITEM(args.get(), i, Ref::borrow(a.objects[i]).release());
      prov.stored(args.get(), a[i]);   // the exception's args
    }
    if (actual->tp_init(made.ref.get(), args.get(), nullptr) < 0) return {};
    return made;
  }
  if (init != nullptr) {
    ArgumentList list;
    list.add(made.get());
    list.add(a);
    list.set_keyword_names(a.kwnames);
    if (!call({init, kNoSource}, list.get())) return {};
  }
  return made;
}

Owned Executor::call_type(Value type, const Arguments& a) {
  const After after = take_after();
  PyTypeObject* t = as_type(type.object);
  if (t == &PyType_Type && a.n == 1) {
    prov.use_type(a[0]);
    if (a[0].src == kNoSource) return Owned::borrow(reinterpret_cast<PyObject*>(Py_TYPE(a.objects[0])));
    const Src src = prov.intern(SourceKind::Type, a[0].src);
    prov.assume_constant(src);
    return Owned::borrow(reinterpret_cast<PyObject*>(Py_TYPE(a.objects[0])), src);
  }
  if (t == &PyType_Type) fail("making a class");
  if (t == &Py_GenericAliasType && a.n_keywords() == 0) return prov.use_constant(type), generic_alias(*this, type, a);
  switch (domain().classify(type.object)) {
    case NativeKind::Tensor: prov.use_constant(type); return call_tensor(type.object, a);
    case NativeKind::Pure: prov.use_constant(type); return call_pure(type.object, a);
    case NativeKind::Break: fail(domain().break_reason(type.object));
    case NativeKind::Unknown: case NativeKind::Modelled: case NativeKind::Polyfilled: case NativeKind::Effect: break;
  }
  if (PyType_IsSubtype(t, &PyType_Type)) fail("making a class");
  if (is_enum(t)) {   // the lookup of a member by value
    for (int64_t i = 0; i < a.n; i++) prov.use_deep(a[i]);
    prov.use_constant(type);
    return Owned::steal(PyObject_Vectorcall(type.object, a.objects, static_cast<size_t>(a.n_positional()), a.kwnames));
  }
  PyTypeObject* meta = Py_TYPE(t);
  if (meta->tp_call != PyType_Type.tp_call) {
    PyObject* caller = _PyType_Lookup(meta, interned("__call__"));
    if (caller != nullptr && PyType_Check(caller)) {   // __call__ = dict
      prov.use_constant(type);
      return call({caller, kNoSource}, a);
    }
    if (caller == nullptr || !PyFunction_Check(caller)) fail(std::string("a call of the class ") + t->tp_name);
    ArgumentList list;
    list.add(type);
    list.add(a);
    list.set_keyword_names(a.kwnames);
    prov.use_constant(type);
    expect(after);
    return call_function(prov.class_attribute(meta, interned("__call__"), caller), list.get());
  }
  if (is_struct_sequence(t) && a.n == 1) return prov.use_constant(type), native_new(*this, type, a);
  if (!is_python_class(t) && !PyType_IsSubtype(t, as_type(PyExc_BaseException)) &&
      t != &PyBaseObject_Type && !is_deque(t) && !PyType_IsSubtype(t, &PyDict_Type)) {
    fail(std::string("making an object of the native type ") + t->tp_name);
  }
  expect(after);
  return instantiate(type, a);
}

}  // namespace braze::capture
