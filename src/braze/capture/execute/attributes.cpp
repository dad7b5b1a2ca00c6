// The attribute protocol, by the type's tp_getattro.
//
// Reads of existing objects guard the class attribute that the name has (or has not), and the presence or absence of
// the name in the object's own storage; classes' Python __getattr__ and __getattribute__ run as ordinary frames.
#include <algorithm>

#include "braze/capture/differentiation.h"
#include "braze/capture/execute/executor.h"
#include "braze/capture/execute/missing.h"
#include "braze/capture/execute/types.h"
#include "braze/capture/exits/storage.h"
#include "braze/capture/guards/object.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

namespace {

bool is_enum_member_of(PyTypeObject* type, PyObject* name, PyObject*& member) {
  static PyObject* const map_name = interned("_member_map_");
  PyObject* map = type_dict(type) == nullptr ? nullptr : PyDict_GetItemWithError(type_dict(type), map_name);
  if (map == nullptr || !PyDict_Check(map)) return PyErr_Clear(), false;
  member = PyDict_GetItemWithError(map, name);
  return member != nullptr;
}

PyObject* object_getattribute() {
  static PyObject* const found = _PyType_Lookup(&PyBaseObject_Type, interned("__getattribute__"));
  return found;
}

PyObject* type_getattribute() {
  static PyObject* const found = _PyType_Lookup(&PyType_Type, interned("__getattribute__"));
  return found;
}

PyObject* module_getattribute() {
  static PyObject* const found = _PyType_Lookup(&PyModule_Type, interned("__getattribute__"));
  return found;
}

PyObject* super_getattribute() {
  static PyObject* const found = _PyType_Lookup(&PySuper_Type, interned("__getattribute__"));
  return found;
}

// Of the fields of named tuples.
PyTypeObject* tuple_getter() {
  static PyTypeObject* const type = [] {
    const Ref module = Ref::steal(PyImport_ImportModule("_collections"));
    PyObject* const found = module ? PyObject_GetAttrString(module.get(), "_tuplegetter") : nullptr;
    PyErr_Clear();
    return reinterpret_cast<PyTypeObject*>(found);
  }();
  return type;
}

bool is_data(PyObject* descriptor) { return Py_TYPE(descriptor)->tp_descr_set != nullptr; }

// Descriptors in C whose value depends on nothing but the object's immutable state or a guarded identity.
bool reads_constant(PyTypeObject* type, PyObject* object) {
  return type == &PyFunction_Type || type == &PyCode_Type || type == &PyCFunction_Type || type == &PyMethodDescr_Type ||
         type == &PyWrapperDescr_Type || type == &PyProperty_Type || type == &PyGetSetDescr_Type ||
         type == &PyMemberDescr_Type || PyType_Check(object) || type == &PyClassMethod_Type ||
         type == &PyStaticMethod_Type;
}

}  // namespace

Value Executor::own_attribute(Value object, PyObject* name) {
  require_unchanged_storage(*this, object.object);
  if (prov.has_shadows()) {
    if (Shadow* shadow = prov.find_shadow(object.object)) {
      if (Shadow::Attribute* a = shadow->find(name)) return a->value.get();
    }
  }
  uint16_t hint = 0xffff;
  bool known = true;
  PyObject* value = object::storage_lookup(object::instance_storage(object.object), name, hint, known);
  if (!known) fail("an instance dict with keys that compare in Python");
  if (value == nullptr) {
    prov.use_absent(object, name);
    return {};
  }
  if (object.src != kNoSource) return prov.found(value, prov.intern(SourceKind::Attr, object.src, 0, name));
  return {value, prov.recall(object.object, value)};
}

Owned Executor::instance_dict(Value object) {
  const Ref dict = Ref::steal(PyObject_GenericGetDict(object.object, nullptr));
  if (!dict) return {};
  if (prov.is_fresh(object.object)) {
    prov.add_fresh_storage(dict.get(), object.object);
    return Owned(dict);
  }
  if (object.src == kNoSource) return Owned(dict);
  return Owned(dict, prov.found(dict.get(), prov.intern(SourceKind::Dict, object.src)).src);
}

Owned Executor::bind(Value descriptor, Value object, PyTypeObject* type, PyObject* name) {
  PyObject* d = descriptor.object;
  PyTypeObject* kind = Py_TYPE(d);
  const bool on_class = object.object == nullptr || object.object == reinterpret_cast<PyObject*>(type);
  if (kind->tp_descr_get == nullptr) return Owned::borrow(descriptor);
  const auto part = [&](const char* member) -> Owned {
    const Ref inner = Ref::steal(PyObject_GetAttrString(d, member));
    if (!inner) return {};
    Src src = kNoSource;
    if (descriptor.src != kNoSource) {
      src = prov.intern(SourceKind::Member, descriptor.src, 0, interned(member));
      if (PyFunction_Check(inner.get())) prov.assume_constant(src);   // the descriptor is, and can't change
    }
    return Owned(inner, prov.found(inner.get(), src).src);
  };
  const auto bound = [&](Value function, Value self) -> Owned {
    const Ref method = Ref::steal(PyMethod_New(function.object, self.object));
    if (!method) return {};
    prov.add_fresh(method.get());
    prov.stored(method.get(), function);
    prov.stored(method.get(), self);
    return Owned(method);
  };
  if (kind == &PyFunction_Type) {
    return on_class && object.object == nullptr ? Owned::borrow(descriptor) : bound(descriptor, object);
  }
  if (kind == &PyStaticMethod_Type) return part("__func__");
  if (kind == &PyInstanceMethod_Type) {   // natives of pybind11
    const Value function{PyInstanceMethod_GET_FUNCTION(d), kNoSource};
    return object.object == nullptr ? Owned::borrow(function) : bound(function, object);
  }
  if (kind == &PyClassMethod_Type) {
    const Owned function = part("__func__");
    if (!function) return {};
    const Value self{reinterpret_cast<PyObject*>(type), kNoSource};
    if (!kClassMethodsChain || Py_TYPE(function.ref.get())->tp_descr_get == nullptr) return bound(function.get(), self);
    return bind(function.get(), self, PyFunction_Check(function.ref.get()) ? Py_TYPE(type) : type, name);
  }
  if (object.object == nullptr) {   // read on the class
    if (kind == &PyProperty_Type || kind == &PyMethodDescr_Type || kind == &PyWrapperDescr_Type ||
        kind == &PyGetSetDescr_Type || kind == &PyMemberDescr_Type) {
      return Owned::borrow(descriptor);
    }
    if (kind == &PyClassMethodDescr_Type) return Owned::steal(kind->tp_descr_get(d, nullptr, reinterpret_cast<PyObject*>(type)));
  }
  if (kind == &PyProperty_Type) {
    const Owned getter = part("fget");
    if (!getter) return {};
    if (getter.ref.get() == Py_None) {
      PyErr_Format(PyExc_AttributeError, "property '%U' of '%.100s' object has no getter", name, type->tp_name);
      return {};
    }
    return call(getter.get(), {object});
  }
  if (kind == &PyMethodDescr_Type || kind == &PyWrapperDescr_Type || kind == &PyClassMethodDescr_Type) {
    const Ref made = Ref::steal(kind->tp_descr_get(d, object.object, reinterpret_cast<PyObject*>(type)));
    if (!made) return {};
    prov.add_fresh(made.get());
    prov.stored(made.get(), object);
    return Owned(made);
  }
  if (kind == &PyMemberDescr_Type) {   // __slots__ and members of C structures
    if (prov.has_shadows()) {
      if (Shadow* shadow = prov.find_shadow(object.object)) {
        if (Shadow::Attribute* a = shadow->find(name)) {
          if (!a->value) return raise_missing(object.object, name), Owned();
          return a->value;
        }
      }
    }
    const Ref value = Ref::steal(kind->tp_descr_get(d, object.object, reinterpret_cast<PyObject*>(type)));
    if (!value) {
      if (PyErr_ExceptionMatches(PyExc_AttributeError)) prov.use_empty_slot(object, name);
      return {};
    }
    if (object.src == kNoSource) return Owned(value, prov.recall(object.object, value.get()));
    if (reads_constant(Py_TYPE(object.object), object.object)) {
      prov.use_constant(object);
      return Owned(value);
    }
    return Owned(value, prov.found(value.get(), prov.intern(SourceKind::Member, object.src, 0, name)).src);
  }
  if (kind == &PyGetSetDescr_Type) {
    if (name == interned("__class__")) {
      const Src src = object.src == kNoSource ? kNoSource : prov.intern(SourceKind::Type, object.src);
      prov.use_type(object);
      if (src != kNoSource) prov.assume_constant(src);
      return Owned::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object.object)), src);
    }
    if (name == interned("__dict__") && !PyType_Check(object.object)) return instance_dict(object);
    object = seen(object);   // deques: their length limit
    const Category c = prov.category(object.object);
    if (c == Category::Constant || c == Category::Referent) {
      prov.use_constant(object);
    } else if (!prov.is_derived(object.object) && (object.src != kNoSource || !prov.is_fresh(object.object))) {
      if (c != Category::Symbolic) {
        fail(std::string("the attribute ") + PyUnicode_AsUTF8(name) + " of an object of the native type " + type->tp_name);
      }
    }
    const Ref value = Ref::steal(kind->tp_descr_get(d, object.object, reinterpret_cast<PyObject*>(type)));
    if (!value) return {};
    return Owned(value, prov.recall(object.object, value.get()));
  }
  PyObject* getter = _PyType_Lookup(kind, interned("__get__"));
  if (getter != nullptr && PyFunction_Check(getter)) {
    const Value function = prov.class_attribute(kind, interned("__get__"), getter);
    return call(function, {descriptor, object.object == nullptr ? Value{Py_None, kNoSource} : object,
                           {reinterpret_cast<PyObject*>(type), kNoSource}});
  }
  if (object.object == nullptr || prov.category(object.object) == Category::Constant) {
    const Ref value = Ref::steal(kind->tp_descr_get(d, object.object, reinterpret_cast<PyObject*>(type)));
    return Owned(value);
  }
  if (kind == tuple_getter()) {   // named tuples
    const Ref reduced = Ref::steal(PyObject_CallMethod(d, "__reduce__", nullptr));
    const Ref args = reduced ? Ref::steal(PySequence_GetItem(reduced.get(), 1)) : Ref();
    const Ref index = args ? Ref::steal(PySequence_GetItem(args.get(), 0)) : Ref();
    if (!index || !PyTuple_Check(object.object)) {
      PyErr_Clear();
      fail("a field of a named tuple");
    }
    const Py_ssize_t i = PyLong_AsSsize_t(index.get());
    if (object.src != kNoSource) prov.use_length(object, PyTuple_GET_SIZE(object.object));
    return Owned::borrow(prov.item_of(object, PyTuple_GET_ITEM(object.object, i), i));
  }
  if (kind == &PyInstanceMethod_Type) return bound({PyInstanceMethod_GET_FUNCTION(d), kNoSource}, object);   // pybind11's
  // lru_cache, partialmethod and the like in C: bound methods of a callable.
  if (PyUnicode_CompareWithASCIIString(interned("functools._lru_cache_wrapper"), kind->tp_name) == 0) {
    return bound(descriptor, object);
  }
  fail(std::string("a descriptor of the native type ") + kind->tp_name);
}

Owned Executor::generic_attribute(Value object, PyObject* name, bool suppress) {
  PyTypeObject* type = Py_TYPE(object.object);
  prov.use_type(object);
  PyObject* descriptor = _PyType_Lookup(type, name);
  const Value on_class = prov.class_attribute(type, name, descriptor);
  if (on_class.object != nullptr && is_data(on_class.object) && Py_TYPE(on_class.object)->tp_descr_get != nullptr) {
    return bind(on_class, object, type, name);
  }
  if (type->tp_dictoffset != 0) {
    if (!prov.has_origin(object)) {
      fail("the attribute " + std::string(PyUnicode_AsUTF8(name)) + " of an object of unknown origin (type " +
           type->tp_name + ")");
    }
    const Value own = own_attribute(object, name);
    if (own.object != nullptr) return Owned::borrow(own);
  }
  if (on_class.object != nullptr) return bind(on_class, object, type, name);
  if (!suppress) raise_missing(object.object, name);
  return {};
}

Owned Executor::module_attribute(Value module, PyObject* name, bool suppress) {
  prov.use_identity(module);
  const Src src = prov.constant_source(module.object);
  PyObject* dict = PyModule_Check(module.object) ? PyModule_GetDict(module.object) : nullptr;
  if (dict != nullptr && has_changed(dict)) {
    const Value now = dict_get(module_globals(module), {name, kNoSource});
    if (now.object != nullptr) return Owned::borrow(now);
    if (!PyErr_Occurred() && !suppress) {
      PyErr_Format(PyExc_AttributeError, "module '%.100s' has no attribute '%U'", PyModule_GetName(module.object), name);
    }
    return {};
  }
  PyObject* value = dict == nullptr ? nullptr : PyDict_GetItemWithError(dict, name);
  if (value != nullptr) return Owned::borrow(prov.found(value, prov.intern(SourceKind::Attr, src, 0, name)));
  if (PyErr_Occurred()) return {};
  prov.use_absent({module.object, src}, name);
  if (name == interned("__dict__")) {
    return Owned::borrow(dict, prov.found(dict, prov.intern(SourceKind::Dict, src)).src);
  }
  if (PyObject* descriptor = _PyType_Lookup(Py_TYPE(module.object), name)) {
    return bind(prov.class_attribute(Py_TYPE(module.object), name, descriptor), {module.object, src},
                Py_TYPE(module.object), name);
  }
  if (PyObject* getter = dict == nullptr ? nullptr : PyDict_GetItemWithError(dict, interned("__getattr__"))) {
    if (PyFunction_Check(getter)) {
      const Value function = prov.found(getter, prov.intern(SourceKind::Attr, src, 0, interned("__getattr__")));
      return call(function, {{name, kNoSource}});
    }
  }
  if (!suppress) {
    PyErr_Format(PyExc_AttributeError, "module '%.100s' has no attribute '%U'", PyModule_GetName(module.object), name);
  }
  return {};
}

Owned Executor::type_attribute(Value type, PyObject* name, bool suppress) {
  PyTypeObject* t = reinterpret_cast<PyTypeObject*>(type.object);
  PyTypeObject* meta = Py_TYPE(t);
  prov.use_identity(type);
  PyObject* on_meta = _PyType_Lookup(meta, name);
  if (on_meta != nullptr && is_data(on_meta) && Py_TYPE(on_meta)->tp_descr_get != nullptr) {
    if (name == interned("__dict__")) {
      if (prov.find_shadow(type.object) != nullptr) fail("all attributes of a class that the call has changed");
      const Ref dict = Ref::steal(PyObject_GetAttr(type.object, name));
      return Owned(dict);
    }
    return bind(prov.class_attribute(meta, name, on_meta), type, meta, name);
  }
  PyObject* member = nullptr;
  if (is_enum_member_of(t, name, member)) return Owned::borrow(member);
  PyObject* found = _PyType_Lookup(t, name);
  const Value raw = prov.class_attribute(t, name, found);
  if (raw.object != nullptr) return bind(raw, {}, t, name);
  if (on_meta != nullptr) return bind(prov.class_attribute(meta, name, on_meta), type, meta, name);
  if (!suppress) raise_missing(type.object, name);
  return {};
}

namespace {

struct SuperParts {
  PyTypeObject* start;
  PyObject* object;
  PyTypeObject* object_type;
};

SuperParts parts_of_super(PyObject* super) {
  const auto read = [&](const char* name) {
    const Ref part = Ref::steal(PyObject_GetAttrString(super, name));
    PyErr_Clear();
    return part.get();   // kept alive by the super object
  };
  return {reinterpret_cast<PyTypeObject*>(read("__thisclass__")), read("__self__"),
          reinterpret_cast<PyTypeObject*>(read("__self_class__"))};
}

}  // namespace

// As type_attribute along the rest of the object's MRO. With `method`, a plain function stays unbound.
Owned Executor::super_attribute(Value super, PyObject* name, bool suppress, Method* method) {
  const SuperParts parts = parts_of_super(super.object);
  if (parts.object == nullptr || parts.object == Py_None || name == interned("__class__")) {
    return generic_attribute(super, name, suppress);
  }
  if (prov.is_changed_class_name(name)) fail("an attribute of a class that the call has changed, read through super()");
  const Value object{parts.object, prov.recall(super.object, parts.object)};
  const bool on_class = PyType_Check(parts.object) &&
                        PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(parts.object), parts.start);
  if (!on_class) prov.use_type(object);
  PyObject* mro = parts.object_type->tp_mro;
  Py_ssize_t i = 0;
  while (i < PyTuple_GET_SIZE(mro) && PyTuple_GET_ITEM(mro, i) != reinterpret_cast<PyObject*>(parts.start)) i++;
  for (i++; i < PyTuple_GET_SIZE(mro); i++) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    PyObject* inherited = _PyType_Lookup(base, name);
    const Value found = prov.class_attribute(base, name, inherited);   // changes if this class gains the name
    PyObject* own = type_dict(base) == nullptr ? nullptr : PyDict_GetItemWithError(type_dict(base), name);
    if (own == nullptr) continue;
    const Value descriptor{own, found.object == own ? found.src : kNoSource};
    if (method != nullptr && !on_class &&
        (PyFunction_Check(own) || Py_TYPE(own) == &PyMethodDescr_Type || Py_TYPE(own) == &PyWrapperDescr_Type)) {
      method->function = Owned::borrow(descriptor);
      method->self = Owned::borrow(object);
      return {};
    }
    return bind(descriptor, on_class ? Value{} : object, parts.object_type, name);
  }
  return generic_attribute(super, name, suppress);
}

namespace {

// Attributes of tensors: Python properties and methods run as frames, the rest is the domain's.
Owned tensor_attribute(Executor& x, Value object, PyObject* name, bool suppress, Method* method) {
  PyTypeObject* type = Py_TYPE(object.object);
  x.prov.use_type(object);
  PyObject* raw = _PyType_Lookup(type, name);
  const Value descriptor = x.prov.class_attribute(type, name, raw);
  if (raw != nullptr) {
    PyTypeObject* kind = Py_TYPE(raw);
    if (kind == &PyFunction_Type || kind == &PyMethodDescr_Type || kind == &PyWrapperDescr_Type) {
      if (method != nullptr) {
        method->function = Owned::borrow(descriptor);
        method->self = Owned::borrow(object);
        return {};
      }
      return x.bind(descriptor, object, type, name);
    }
    if (kind == &PyGetSetDescr_Type || kind == &PyMemberDescr_Type) {
      if (name == interned("__class__")) return x.bind(descriptor, object, type, name);
      if (name == interned("__dict__")) return x.instance_dict(object);
      if (name == interned("grad") && has_callers_gradient(x, object)) return get_gradient(x, object);
      const Ref traced = stand_in(x, object);
      Result<Ref> value = x.session.get_attribute(traced.get(), name);
      if (!value.ok()) throw Abort{value.why()};
      if (x.prov.category(value->get()) == Category::Tensor) {
        if (PyObject* real = x.session.real_of(value->get())) {
          return Owned::borrow(real, x.prov.recall(object.object, real));
        }
      }
      return x.fresh_native(*value);
    }
    if (is_data(raw)) return x.bind(descriptor, object, type, name);
  }
  if (type->tp_dictoffset != 0) {
    const Value own = x.own_attribute(object, name);
    if (own.object != nullptr) return Owned::borrow(own);
  }
  if (raw != nullptr) return x.bind(descriptor, object, type, name);
  if (!suppress) raise_missing(object.object, name);
  return {};
}

Owned lookup(Executor& x, Value object, PyObject* name, bool suppress, Method* method);

// Classes with __getattribute__ or __getattr__ in Python.
Owned hooked_attribute(Executor& x, Value object, PyObject* name, bool suppress) {
  const After after = x.take_after();
  PyTypeObject* type = Py_TYPE(object.object);
  PyObject* getattribute = _PyType_Lookup(type, interned("__getattribute__"));
  PyObject* getattr = _PyType_Lookup(type, interned("__getattr__"));
  Owned out;
  if (getattr == nullptr) x.expect(after);   // else an AttributeError would not be the end
  const bool wraps_generic = Py_TYPE(getattribute) == &PyWrapperDescr_Type &&
                             reinterpret_cast<PyWrapperDescrObject*>(getattribute)->d_wrapped ==
                                 reinterpret_cast<void*>(PyObject_GenericGetAttr);
  if (getattribute == object_getattribute() || wraps_generic) {
    out = x.generic_attribute(object, name, suppress || getattr != nullptr);
  } else if (getattribute == module_getattribute()) {
    out = x.module_attribute(object, name, suppress || getattr != nullptr);
  } else if (getattribute == type_getattribute()) {
    out = x.type_attribute(object, name, suppress || getattr != nullptr);
  } else if (getattribute == super_getattribute()) {
    out = x.super_attribute(object, name, suppress || getattr != nullptr, nullptr);
  } else if (PyType_Check(object.object) && !PyFunction_Check(getattribute)) {   // pybind11's metaclass
    out = x.type_attribute(object, name, suppress || getattr != nullptr);
  } else if (PyFunction_Check(getattribute)) {
    x.prov.use_type(object);
    out = x.call(x.prov.class_attribute(type, interned("__getattribute__"), getattribute), {object, {name, kNoSource}});
  } else {
    x.fail(std::string("attributes of the native type ") + type->tp_name);
  }
  if (out) return out;
  if (PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return {};
    if (getattr == nullptr) return {};
    PyErr_Clear();
  } else if (getattr == nullptr) {
    return {};
  }
  x.prov.use_type(object);
  x.expect(after);
  return x.call(x.prov.class_attribute(type, interned("__getattr__"), getattr), {object, {name, kNoSource}});
}

Owned lookup(Executor& x, Value object, PyObject* name, bool suppress, Method* method) {
  const After after = x.take_after();
  PyTypeObject* type = Py_TYPE(object.object);
  const Category category = x.prov.category(object.object);
  if (category == Category::Tensor) return tensor_attribute(x, object, name, suppress, method);
  if (category == Category::Symbolic) return Owned::steal(PyObject_GetAttr(object.object, name));
  const getattrofunc get = type->tp_getattro;
  if (get == PyObject_GenericGetAttr) return x.expect(after), x.generic_attribute(object, name, suppress);
  if (get == PyModule_Type.tp_getattro) return x.module_attribute(object, name, suppress);
  if (get == PyType_Type.tp_getattro) return x.type_attribute(object, name, suppress);
  if (get == PySuper_Type.tp_getattro) return x.super_attribute(object, name, suppress, method);
  if (type == &PyMethod_Type) {
    if (_PyType_Lookup(type, name) != nullptr) {
      if (name == interned("__self__") || name == interned("__func__")) {
        auto* m = reinterpret_cast<PyMethodObject*>(object.object);
        const bool self = name == interned("__self__");
        PyObject* part = self ? m->im_self : m->im_func;
        if (object.src == kNoSource) return Owned::borrow(part, x.prov.recall(object.object, part));
        x.prov.use_type(object);
        return Owned::borrow(x.prov.found(part, x.prov.intern(SourceKind::Method, object.src, self ? 0 : 1)));
      }
      return x.generic_attribute(object, name, suppress);
    }
    const Owned function = lookup(x, object, interned("__func__"), false, nullptr);
    return function ? lookup(x, function.get(), name, suppress, nullptr) : Owned();
  }
  if (is_python_class(type) || _PyType_Lookup(type, interned("__getattr__")) != nullptr) {
    x.expect(after);
    return hooked_attribute(x, object, name, suppress);
  }
  // Immutable natives with attribute access of their own (generic aliases and their like).
  if (object.src == kNoSource || category == Category::Constant || category == Category::Referent) {
    x.prov.use_constant(object);
    return x.fresh_native(Ref::steal(PyObject_GetAttr(object.object, name)));
  }
  x.fail(std::string("attributes of the native type ") + type->tp_name);
}

}  // namespace

Owned Executor::get_attribute(Value object, PyObject* name) {
  Owned found = lookup(*this, object, name, false, nullptr);
  if (!found) note_missing_attribute(object.object, name);
  return found;
}

Owned Executor::find_attribute(Value object, PyObject* name) {
  Owned out = lookup(*this, object, name, true, nullptr);
  if (!out && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return out;
}

Method Executor::load_method(Value object, PyObject* name) {
  PyTypeObject* type = Py_TYPE(object.object);
  const Category category = prov.category(object.object);
  Method out;
  if (category == Category::Tensor || type == &PySuper_Type) {
    Owned value = lookup(*this, object, name, false, &out);
    if (!out.function) out.function = std::move(value);
    return out;
  }
  if (type->tp_getattro == PyObject_GenericGetAttr) {
    PyObject* raw = _PyType_Lookup(type, name);
    if (raw != nullptr && PyType_HasFeature(Py_TYPE(raw), Py_TPFLAGS_METHOD_DESCRIPTOR)) {
      prov.use_type(object);
      const Value descriptor = prov.class_attribute(type, name, raw);
      if (type->tp_dictoffset != 0 && prov.has_origin(object)) {
        const Value own = own_attribute(object, name);
        if (own.object != nullptr) return {Owned::borrow(own), {}};
      }
      out.function = Owned::borrow(descriptor);
      out.self = Owned::borrow(object);
      return out;
    }
  }
  out.function = get_attribute(object, name);
  if (!out.function) return out;
  // A bound method fresh from the lookup: call its function directly.
  if (Py_TYPE(out.function.ref.get()) == &PyMethod_Type && out.function.src == kNoSource) {
    auto* m = reinterpret_cast<PyMethodObject*>(out.function.ref.get());
    const Owned bound = out.function;
    out.function = Owned::borrow(m->im_func, prov.recall(bound.ref.get(), m->im_func));
    out.self = Owned::borrow(m->im_self, prov.recall(bound.ref.get(), m->im_self));
  }
  return out;
}

Method Executor::special(Value object, PyObject* name) {
  PyTypeObject* type = Py_TYPE(object.object);
  prov.use_type(object);
  PyObject* raw = _PyType_Lookup(type, name);
  const Value descriptor = prov.class_attribute(type, name, raw);
  if (raw == nullptr) return {};
  if (PyFunction_Check(raw) || Py_TYPE(raw) == &PyMethodDescr_Type || Py_TYPE(raw) == &PyWrapperDescr_Type) {
    return {Owned::borrow(descriptor), Owned::borrow(object)};
  }
  return {bind(descriptor, object, type, name), {}};
}

// --- stores

bool Executor::require_fresh(Value v, const char* action) {
  if (prov.is_fresh(v.object)) return true;
  fail(std::string(action) + " an object that existed before the call (" +
       (v.src == kNoSource ? Py_TYPE(v.object)->tp_name : prov.sources().describe(v.src).c_str()) + ")");
}

namespace {

// In the object's own storage, where `member` is the class's slot of this name, if it has one. An error may be set.
bool has_own_attribute(Executor& x, Value object, PyObject* member, PyObject* name) {
  if (member == nullptr || Py_TYPE(member) != &PyMemberDescr_Type) {
    const Value found = x.own_attribute(object, name);
    x.prov.use_present(found);
    return found.object != nullptr;
  }
  const Owned found = x.generic_attribute(object, name, false);
  if (found) return x.prov.use_present(found.get()), true;
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_SetObject(PyExc_AttributeError, name);   // as slots word it
  return false;
}

// What is set after it was deleted comes last in the object's dict, so both are noted.
void assign(Shadow& shadow, PyObject* name, Value value) {
  Shadow::Attribute* const last = shadow.find(name);
  const bool again = last != nullptr && !last->value;
  if (last == nullptr || (again && value.object != nullptr)) {
    shadow.attributes.push_back({Ref::borrow(name), Owned::borrow(value)});
    return;
  }
  last->value = Owned::borrow(value);
  if (value.object != nullptr) return;
  const auto same = [&](const Shadow::Attribute& a) { return &a != last && PyUnicode_Compare(a.name.get(), name) == 0; };
  if (std::any_of(shadow.attributes.begin(), shadow.attributes.end(), same)) {   // deleted before
    shadow.attributes.erase(shadow.attributes.begin() + (last - shadow.attributes.data()));
  }
}

}  // namespace

bool Executor::generic_set_attribute(Value object, PyObject* name, Value value) {
  PyTypeObject* type = Py_TYPE(object.object);
  // What is printed goes to sys.stdout as it is then; effects and changed attributes come in no common order.
  static PyObject* const sys = PyImport_AddModule("sys");
  if (object.object == sys) fail("setting an attribute of sys");
  if (prov.category(object.object) == Category::Tensor) {
    if (name != interned("grad") || !has_callers_gradient(*this, object)) fail("setting an attribute of a tensor");
    prov.use_type(object);
    return capture::set_gradient(*this, object, value);
  }
  prov.use_type(object);
  PyObject* raw = _PyType_Lookup(type, name);
  const Value descriptor = prov.class_attribute(type, name, raw);
  if (raw != nullptr && is_data(raw) && Py_TYPE(raw) != &PyMemberDescr_Type) {
    if (Py_TYPE(raw) == &PyProperty_Type) {
      const char* member = value.object != nullptr ? "fset" : "fdel";
      const Ref setter = Ref::steal(PyObject_GetAttrString(raw, member));
      if (!setter) return false;
      if (setter.get() == Py_None) {
        PyErr_Format(PyExc_AttributeError, "property '%U' of '%.100s' object has no %s", name, type->tp_name,
                     value.object != nullptr ? "setter" : "deleter");
        return false;
      }
      Src src = kNoSource;
      if (descriptor.src != kNoSource) {
        src = prov.intern(SourceKind::Member, descriptor.src, 0, interned(member));
        prov.assume_constant(src);
      }
      const Value function{setter.get(), src};
      return static_cast<bool>(value.object != nullptr ? call(function, {object, value}) : call(function, {object}));
    }
    PyObject* setter = _PyType_Lookup(Py_TYPE(raw), interned(value.object != nullptr ? "__set__" : "__delete__"));
    if (setter != nullptr && PyFunction_Check(setter)) {
      const Value function = prov.class_attribute(
          Py_TYPE(raw), interned(value.object != nullptr ? "__set__" : "__delete__"), setter);
      return static_cast<bool>(value.object != nullptr ? call(function, {descriptor, object, value})
                                                       : call(function, {descriptor, object}));
    }
    if (!prov.is_fresh(object.object) || name == interned("__dict__")) {
      fail(std::string("setting ") + PyUnicode_AsUTF8(name) + " of an object of type " + type->tp_name);
    }
  }
  if (prov.is_fresh(object.object)) {
    if (value.object != nullptr) value = number(value), prov.stored(object.object, value);
    return PyObject_GenericSetAttr(object.object, name, value.object) == 0;
  }
  if (object.src == kNoSource) require_fresh(object, "setting an attribute of");
  if (type->tp_dictoffset == 0 && raw == nullptr) {
    return PyObject_GenericSetAttr(object.object, name, value.object) == 0;   // raises
  }
  if (value.object == nullptr && !has_own_attribute(*this, object, raw, name)) {
    if (!PyErr_Occurred()) raise_missing(object.object, name);
    return false;
  }
  assign(prov.shadow(object), name, value);
  return true;
}

// Plain values alone: nothing that CPython itself looks up, and nothing that is called when it is read.
bool Executor::set_class_attribute(Value object, PyObject* name, Value value) {
  auto* const type = reinterpret_cast<PyTypeObject*>(object.object);
  const std::string_view text = PyUnicode_AsUTF8(name);
  PyObject* const before = _PyType_Lookup(type, name);
  const auto is_descriptor = [](PyObject* o) {
    return o != nullptr && (Py_TYPE(o)->tp_descr_get != nullptr || Py_TYPE(o)->tp_descr_set != nullptr);
  };
  PyObject* const setter = _PyType_Lookup(Py_TYPE(type), interned("__setattr__"));
  static PyObject* const type_setattr = _PyType_Lookup(&PyType_Type, interned("__setattr__"));
  if (value.object == nullptr) fail("deleting an attribute of a class");
  if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || PyType_HasFeature(type, Py_TPFLAGS_IMMUTABLETYPE) ||
      setter != type_setattr || prov.is_fresh(object.object) || text.starts_with("__") || is_descriptor(value.object) ||
      is_descriptor(before) || is_descriptor(_PyType_Lookup(Py_TYPE(type), name))) {
    fail("setting the attribute " + std::string(text) + " of a class");
  }
  prov.use_identity(object);
  prov.class_attribute_as_found(type, name, before);
  Shadow& shadow = prov.shadow({object.object, prov.constant_source(object.object)});
  if (Shadow::Attribute* a = shadow.find(name)) return a->value = Owned::borrow(value), true;
  shadow.attributes.push_back({Ref::borrow(name), Owned::borrow(value)});
  prov.note_class_shadow(name);
  return true;
}

Value Executor::module_globals(Value module) {
  const Src src = prov.intern(SourceKind::Member, prov.constant_source(module.object), 0, interned("__dict__"));
  return prov.found(PyModule_GetDict(module.object), src);
}

bool Executor::set_module_attribute(Value module, PyObject* name, Value value) {
  // What is printed goes to sys.stdout as it is then; effects come in no common order with the writing of text.
  static PyObject* const sys = PyImport_AddModule("sys");
  if (module.object == sys) fail("setting an attribute of sys");
  prov.use_identity(module);
  const Value globals = module_globals(module), key{name, kNoSource};
  if (value.object != nullptr) return dict_set(globals, key, value);
  if (dict_get(globals, key).object != nullptr) return dict_delete(globals, key);
  return !PyErr_Occurred() && raise_missing(module.object, name);
}

bool Executor::set_attribute(Value object, PyObject* name, Value value) {
  const After after = take_after();
  PyTypeObject* type = Py_TYPE(object.object);
  if (PyModule_Check(object.object) && type->tp_setattro == PyObject_GenericSetAttr) {
    PyObject* const descriptor = _PyType_Lookup(type, name);
    if (descriptor == nullptr || !is_data(descriptor)) return set_module_attribute(object, name, value);
  }
  if (type->tp_setattro == PyObject_GenericSetAttr) return expect(after), generic_set_attribute(object, name, value);
  if (PyType_Check(object.object)) return set_class_attribute(object, name, value);
  PyObject* method_name = interned(value.object != nullptr ? "__setattr__" : "__delattr__");
  PyObject* setter = _PyType_Lookup(type, method_name);
  static PyObject* const object_setattr = _PyType_Lookup(&PyBaseObject_Type, interned("__setattr__"));
  static PyObject* const object_delattr = _PyType_Lookup(&PyBaseObject_Type, interned("__delattr__"));
  prov.use_type(object);
  if (setter == object_setattr || setter == object_delattr) {
    prov.use_type_attribute(type, method_name, setter);
    expect(after);
    return generic_set_attribute(object, name, value);
  }
  if (setter == nullptr || !PyFunction_Check(setter)) {
    fail(std::string("setting an attribute of an object of the native type ") + type->tp_name);
  }
  const Value function = prov.class_attribute(type, method_name, setter);
  expect(after);
  return static_cast<bool>(value.object != nullptr ? call(function, {object, {name, kNoSource}, value})
                                                   : call(function, {object, {name, kNoSource}}));
}

}  // namespace braze::capture
