// Models of the builtin functions.
#include "braze/capture/natives/arity.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

namespace {

Owned model_len(Executor& x, Value, const Arguments& a) {
  require_arity("len", a, 1, 1);
  PyTypeObject* type = Py_TYPE(a.objects[0]);
  PyObject* method = _PyType_Lookup(type, interned("__len__"));
  if (method == nullptr) {
    PyErr_Format(PyExc_TypeError, "object of type '%.200s' has no len()", type->tp_name);
    return {};
  }
  const int64_t n = x.length(a[0]);
  return n < 0 ? Owned() : Owned::steal(PyLong_FromLongLong(n));
}

bool has_python_class_property(PyTypeObject* type) {
  static PyObject* const plain = _PyType_Lookup(&PyBaseObject_Type, interned("__class__"));
  return _PyType_Lookup(type, interned("__class__")) != plain;
}

// isinstance and issubclass for one class: -1 error.
int instance_check(Executor& x, Value object, Value type, bool subclass) {
  if (PyTuple_Check(type.object)) {
    if (type.src != kNoSource) x.prov.use_length(type, PyTuple_GET_SIZE(type.object));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type.object); i++) {
      const int r = instance_check(x, object, x.prov.item_of(type, PyTuple_GET_ITEM(type.object, i), i), subclass);
      if (r != 0) return r;
    }
    return 0;
  }
  x.prov.use_constant(type);
  if (subclass) {
    x.prov.use_constant(object);
  } else {
    x.prov.use_type(object);
  }
  if (!subclass && x.prov.category(object.object) == Category::Symbolic && PyType_Check(type.object)) {
    // A symbolic size passes for the number that it stands for.
    const std::string name = Py_TYPE(object.object)->tp_name;
    PyTypeObject* stands_for = name == "SymFloat" ? &PyFloat_Type : name == "SymBool" ? &PyBool_Type : &PyLong_Type;
    if (PyObject_IsSubclass(reinterpret_cast<PyObject*>(stands_for), type.object) == 1) return 1;
    PyErr_Clear();
  }
  PyTypeObject* meta = Py_TYPE(type.object);
  PyObject* hook_name = interned(subclass ? "__subclasscheck__" : "__instancecheck__");
  PyObject* hook = _PyType_Lookup(meta, hook_name);
  x.prov.use_type_attribute(meta, hook_name, hook);
  if (!subclass && reinterpret_cast<PyObject*>(Py_TYPE(object.object)) == type.object) return 1;
  if (hook != nullptr && PyFunction_Check(hook)) {
    const Owned r = x.call(x.prov.class_attribute(meta, hook_name, hook), {type, object});
    return r ? x.truth(r.get()) : -1;
  }
  if (!subclass && PyType_Check(type.object) && has_python_class_property(Py_TYPE(object.object))) {
    x.fail("isinstance of an object whose __class__ is computed");
  }
  return subclass ? PyObject_IsSubclass(object.object, type.object) : PyObject_IsInstance(object.object, type.object);
}

Owned model_isinstance(Executor& x, Value, const Arguments& a) {
  require_arity("isinstance", a, 2, 2);
  const int r = instance_check(x, a[0], a[1], false);
  return r < 0 ? Owned() : Owned::boolean(r == 1);
}

Owned model_issubclass(Executor& x, Value, const Arguments& a) {
  require_arity("issubclass", a, 2, 2);
  const int r = instance_check(x, a[0], a[1], true);
  return r < 0 ? Owned() : Owned::boolean(r == 1);
}

bool check_name(const char* function, Value name) {
  if (PyUnicode_Check(name.object)) return true;
  PyErr_Format(PyExc_TypeError, "%s(): attribute name must be string", function);
  return false;
}

Owned attribute_name(Executor& x, Value name) {
  x.prov.use_constant(name);
  PyObject* s = Ref::borrow(name.object).release();
  if (PyUnicode_CheckExact(s)) PyUnicode_InternInPlace(&s);
  return Owned::steal(s);
}

Owned model_getattr(Executor& x, Value, const Arguments& a) {
  require_arity("getattr", a, 2, 3);
  if (!check_name("getattr", a[1])) return {};
  const Owned name = attribute_name(x, a[1]);
  if (a.n == 2) return x.get_attribute(a[0], name.ref.get());
  Owned out = x.find_attribute(a[0], name.ref.get());
  if (out || PyErr_Occurred()) return out;
  return Owned::borrow(a[2]);
}

Owned model_hasattr(Executor& x, Value, const Arguments& a) {
  require_arity("hasattr", a, 2, 2);
  if (!check_name("hasattr", a[1])) return {};
  const Owned name = attribute_name(x, a[1]);
  const Owned out = x.find_attribute(a[0], name.ref.get());
  if (!out && PyErr_Occurred()) return {};
  if (out) x.prov.use_present(out.get());
  return Owned::boolean(static_cast<bool>(out));
}

Owned model_setattr(Executor& x, Value, const Arguments& a) {
  require_arity("setattr", a, 3, 3);
  if (!check_name("setattr", a[1])) return {};
  const Owned name = attribute_name(x, a[1]);
  return x.set_attribute(a[0], name.ref.get(), a[2]) ? Owned::none() : Owned();
}

Owned model_delattr(Executor& x, Value, const Arguments& a) {
  require_arity("delattr", a, 2, 2);
  if (!check_name("delattr", a[1])) return {};
  const Owned name = attribute_name(x, a[1]);
  return x.set_attribute(a[0], name.ref.get(), {}) ? Owned::none() : Owned();
}

Owned model_callable(Executor& x, Value, const Arguments& a) {
  require_arity("callable", a, 1, 1);
  x.prov.use_type(a[0]);
  return Owned::boolean(PyCallable_Check(a.objects[0]) != 0);
}

Owned model_iter(Executor& x, Value, const Arguments& a) {
  require_arity("iter", a, 1, 2);
  if (a.n == 1) return x.iterate(a[0]);
  return x.call({polyfill("call_iterator").get(), kNoSource}, {a[0], a[1]});
}

Owned model_next(Executor& x, Value, const Arguments& a) {
  require_arity("next", a, 1, 2);
  if (Py_TYPE(a.objects[0])->tp_iternext == nullptr) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not an iterator", Py_TYPE(a.objects[0])->tp_name);
    return {};
  }
  if (a.n == 2) x.take_after();   // the end gives another result
  if (PyGen_CheckExact(a.objects[0])) {   // keeps the value of a return
    bool finished = false;
    Owned value = x.send(a[0], {Py_None, kNoSource}, finished);
    if (!finished) return value;
    if (a.n == 2) return Owned::borrow(a[1]);
    if (!value) return {};
    x.prov.use_constant(value.get());   // the exception does not remember where it came from
    _PyGen_SetStopIterationValue(value.ref.get());
    return {};
  }
  Owned value = x.next(a[0]);
  if (value || PyErr_Occurred()) return value;
  if (a.n == 2) return Owned::borrow(a[1]);
  PyErr_SetNone(PyExc_StopIteration);
  return {};
}

Owned model_repr(Executor& x, Value, const Arguments& a) {
  require_arity("repr", a, 1, 1);
  return x.to_string(a[0], true);
}

Owned model_str(Executor& x, Value, const Arguments& a) {
  if (a.n == 0) return Owned::borrow(interned(""));
  if (a.n == 1 && a.n_keywords() == 0) return x.to_string(a[0], false);
  return x.call_pure(reinterpret_cast<PyObject*>(&PyUnicode_Type), a);
}

Owned model_format(Executor& x, Value, const Arguments& a) {
  require_arity("format", a, 1, 2);
  if (a.n == 2) x.prov.use_constant(a[1]);
  return x.format(a[0], a.n == 2 ? a.objects[1] : nullptr);
}

Owned model_bool(Executor& x, Value, const Arguments& a) {
  require_arity("bool", a, 0, 1);
  if (a.n == 0) return Owned::boolean(false);
  const int t = x.truth(a[0]);
  return t < 0 ? Owned() : Owned::boolean(t == 1);
}

// int(x), float(x) of constants, of tensors (through their __int__) and of classes in Python.
Owned number(Executor& x, PyTypeObject* type, const char* method, const Arguments& a) {
  if (a.n == 1 && a.n_keywords() == 0) {
    const Value given = x.number(a[0]);
    const Category c = x.prov.category(given.object);
    if (c == Category::Symbolic) {
      if (type == &PyLong_Type && std::string(Py_TYPE(given.object)->tp_name) == "SymInt") return Owned::borrow(given);
      if (type == &PyFloat_Type)
        if (Owned real = x.to_symbolic_float(given); real || PyErr_Occurred()) return real;
      const Owned fixed = x.concrete(given);
      return Owned::steal(type == &PyLong_Type ? PyNumber_Long(fixed.ref.get()) : PyNumber_Float(fixed.ref.get()));
    }
    PyObject* raw = _PyType_Lookup(Py_TYPE(a.objects[0]), interned(method));
    if (c == Category::Tensor || (raw != nullptr && PyFunction_Check(raw))) {
      Owned r = x.call_method(x.special(a[0], interned(method)), {});
      if (r && type == &PyFloat_Type && x.prov.category(r.ref.get()) == Category::Symbolic) return r;
      if (r && Py_TYPE(r.ref.get()) != type) x.fail(std::string(type->tp_name) + "() of a tensor");
      return r;
    }
  }
  return x.call_pure(reinterpret_cast<PyObject*>(type), a);
}

Owned model_int(Executor& x, Value, const Arguments& a) { return number(x, &PyLong_Type, "__int__", a); }
Owned model_float(Executor& x, Value, const Arguments& a) { return number(x, &PyFloat_Type, "__float__", a); }

Owned model_abs(Executor& x, Value, const Arguments& a) {
  require_arity("abs", a, 1, 1);
  const Category c = x.prov.category(a.objects[0]);
  if (c == Category::Constant) {
    x.prov.use_constant(a[0]);
    return Owned::steal(PyNumber_Absolute(a.objects[0]));
  }
  if (c == Category::Symbolic) {
    const Owned fixed = x.concrete(a[0]);
    return Owned::steal(PyNumber_Absolute(fixed.ref.get()));
  }
  const Method m = x.special(a[0], interned("__abs__"));
  if (!m.function) {
    PyErr_Format(PyExc_TypeError, "bad operand type for abs(): '%.200s'", Py_TYPE(a.objects[0])->tp_name);
    return {};
  }
  return x.call_method(m, {});
}

Owned model_hash(Executor& x, Value, const Arguments& a) {
  require_arity("hash", a, 1, 1);
  PyObject* raw = _PyType_Lookup(Py_TYPE(a.objects[0]), interned("__hash__"));
  if (raw != nullptr && PyFunction_Check(raw)) return x.call_method(x.special(a[0], interned("__hash__")), {});
  const Owned fixed = x.concrete(a[0]);
  const Category c = x.prov.category(fixed.ref.get());
  if (c != Category::Constant && c != Category::Tuple) x.fail("the hash of an object that depends on its address");
  x.prov.use_constant(fixed.get());
  x.prov.use_deep(fixed.get());
  return Owned::steal(PyLong_FromSsize_t(PyObject_Hash(fixed.ref.get())));
}

Owned model_reversed(Executor& x, Value, const Arguments& a) {
  require_arity("reversed", a, 1, 1);
  const Method m = x.special(a[0], interned("__reversed__"));
  if (m.function && PyFunction_Check(m.function.ref.get())) return x.call_method(m, {});
  if (PyRange_Check(a.objects[0])) return x.call_pure(reinterpret_cast<PyObject*>(&PyReversed_Type), a);
  if (PyDict_Check(a.objects[0]) || PyDictViewSet_Check(a.objects[0]) || PyDictValues_Check(a.objects[0])) {
    const Owned items = x.call({reinterpret_cast<PyObject*>(&PyList_Type), kNoSource}, {a[0]});
    return items ? x.call({polyfill("reversed_").get(), kNoSource}, {items.get()}) : Owned();
  }
  return x.call({polyfill("reversed_").get(), kNoSource}, {a[0]});
}

Owned model_vars(Executor& x, Value, const Arguments& a) {
  if (a.n != 1) x.fail("vars() without an argument");
  return x.get_attribute(a[0], interned("__dict__"));
}

Owned model_dir(Executor& x, Value, const Arguments&) { x.fail("dir()"); }

// The running frame's variables: CPython makes the dict from the real frame.
Owned model_locals(Executor& x, Value callable, const Arguments& a) {
  if (a.n != 0) x.fail("locals() with arguments");
  for (int i = 0; i < x.frame()->code->n_slots; i++) {
    PyObject* const cell = x.frame()->slots[i];
    if (cell != nullptr && x.prov.has_shadows() && x.prov.find_shadow(cell) != nullptr) {
      x.fail("locals() after a captured variable was assigned");
    }
  }
  const Ref dict = Ref::steal(PyObject_CallNoArgs(callable.object));
  if (!dict) return {};
  const Ref copy = Ref::steal(PyDict_Copy(dict.get()));
  x.prov.add_fresh(copy.get());
  const Frame& f = *x.frame();
  for (int i = 0; i < f.code->n_slots; i++) {
    if (f.slots[i] != nullptr) x.prov.stored(copy.get(), {f.slots[i], f.src[i]});
  }
  return Owned(copy);
}

// The number is only good as a key of the trace's own dicts.
Owned model_id(Executor& x, Value, const Arguments& a) {
  require_arity("id", a, 1, 1);
  if (!x.prov.has_origin(a[0])) x.fail("id(): addresses differ between calls");
  const Ref number = Ref::steal(PyLong_FromVoidPtr(a.objects[0]));
  x.prov.use_as_key(a.objects[0]);
  if (number) x.prov.add_address(number);
  return Owned(number);
}

// Printed when the call's work is done. Text is made now, since what it shows may change until then.
Owned model_print(Executor& x, Value callable, const Arguments& a) {
  ArgumentList arguments;
  arguments.set_keyword_names(a.kwnames);
  for (int64_t i = 0; i < a.n; i++) {
    if (i >= a.n_positional() || x.prov.category(a.objects[i]) == Category::Constant) {
      arguments.add(a[i]);
      continue;
    }
    const Owned text = x.to_string(a[i], false);
    if (!text) return {};
    arguments.add(text.get());
    arguments.keep(text.ref);
  }
  x.add_effect(callable.object, arguments.get());
  return Owned::none();
}

Owned model_super(Executor& x, Value callable, const Arguments& a) {
  Frame& f = *x.frame();
  for (int64_t i = 0; i < a.n; i++) {
    if (PyType_Check(a.objects[i])) x.prov.use_constant(a[i]);
  }
  const Ref super = Ref::steal(PyObject_Vectorcall(callable.object, a.objects, static_cast<size_t>(a.n_positional()),
                                                   a.kwnames));
  if (!super) return {};
  x.prov.add_fresh(super.get());
  if (a.n >= 2) {
    x.prov.stored(super.get(), a[1]);
  } else if (f.code->object->co_argcount > 0 && f.slots[0] != nullptr) {
    PyObject* self = f.slots[0];
    if (PyCell_Check(self) && PyCell_GET(self) != nullptr) {
      x.prov.stored(super.get(), {PyCell_GET(self), x.prov.recall(self, PyCell_GET(self))});
    } else {
      x.prov.stored(super.get(), {self, f.src[0]});
    }
  }
  return Owned(super);
}

Owned model_round(Executor& x, Value callable, const Arguments& a) {
  if (a.n >= 1 && x.prov.category(a.objects[0]) == Category::Tensor) {
    const Method m = x.special(a[0], interned("__round__"));
    if (m.function && a.n == 1) return x.call_method(m, {});
  }
  return x.call_pure(callable.object, a);
}

}  // namespace

const std::vector<ModelRow>& builtin_models() {
  static const std::vector<ModelRow> rows = {
      {"builtins.len", model_len}, {"builtins.isinstance", model_isinstance},
      {"builtins.issubclass", model_issubclass}, {"builtins.getattr", model_getattr},
      {"builtins.hasattr", model_hasattr}, {"builtins.setattr", model_setattr},
      {"builtins.delattr", model_delattr}, {"builtins.callable", model_callable}, {"builtins.iter", model_iter},
      {"builtins.next", model_next, true}, {"builtins.repr", model_repr}, {"builtins.str", model_str},
      {"builtins.format", model_format}, {"builtins.bool", model_bool}, {"builtins.int", model_int},
      {"builtins.float", model_float}, {"builtins.abs", model_abs}, {"builtins.hash", model_hash},
      {"builtins.reversed", model_reversed}, {"builtins.vars", model_vars}, {"builtins.dir", model_dir},
      {"builtins.locals", model_locals}, {"builtins.id", model_id}, {"builtins.print", model_print},
      {"builtins.super", model_super}, {"builtins.round", model_round},
  };
  return rows;
}

}  // namespace braze::capture
