#include "braze/capture/guards/load.h"

#include "braze/capture/execute/types.h"
#include "braze/capture/guards/constant.h"
#include "braze/support/hash.h"

namespace braze::capture::load {

namespace {

// Calls visit(key) in the dict's order until it returns false. An OrderedDict has an order of its own.
template <class Visit>
void visit_keys(PyObject* dict, const Visit& visit) {
  if (!PyODict_Check(dict)) {
    Py_ssize_t position = 0;
    PyObject *key = nullptr, *value = nullptr;
    while (PyDict_Next(dict, &position, &key, &value) && visit(key)) {
    }
    return;
  }
  Ref iterator = Ref::steal(PyODict_Type.tp_iter(dict));
  while (iterator) {
    Ref key = Ref::steal(Py_TYPE(iterator.get())->tp_iternext(iterator.get()));
    if (!key || !visit(key.get())) break;
  }
  PyErr_Clear();
}

PyObject* field(PyObject* object, const char* name) {
  Ref value = Ref::steal(PyObject_GetAttrString(object, name));
  if (!value) return PyErr_Clear(), nullptr;
  return value.get();   // the wrapper holds it
}

}  // namespace

PyObject* deque_item(PyObject* deque, int64_t i) {
  const Ref found = Ref::steal(PySequence_GetItem(deque, static_cast<Py_ssize_t>(i)));
  if (!found) PyErr_Clear();
  return found.get();   // the deque holds it
}

uint64_t type_slots(PyTypeObject* type) {
  uint64_t h = 0;
  const auto add = [&](const auto* table) {
    for (size_t at = 0; table != nullptr && at < sizeof *table; at += sizeof(void*)) {
      void* slot = nullptr;
      std::memcpy(&slot, reinterpret_cast<const char*>(table) + at, sizeof slot);
      h = mix(h, reinterpret_cast<uintptr_t>(slot));
    }
  };
  add(type->tp_as_number);
  add(type->tp_as_sequence);
  add(type->tp_as_mapping);
  add(type->tp_as_async);
  const auto slot = [&](auto function) { h = mix(h, reinterpret_cast<uintptr_t>(function)); };
  slot(type->tp_repr), slot(type->tp_hash), slot(type->tp_call), slot(type->tp_str), slot(type->tp_setattro);
  slot(type->tp_richcompare), slot(type->tp_iter), slot(type->tp_iternext), slot(type->tp_descr_get);
  slot(type->tp_descr_set), slot(type->tp_init), slot(type->tp_new), slot(type->tp_finalize);
  // CPython exchanges the slot of these two when it is first used.
  for (const char* name : {"__getattribute__", "__getattr__"}) {
    PyObject* const key = PyUnicode_InternFromString(name);
    PyObject* const found = key == nullptr ? nullptr : _PyType_Lookup(type, key);
    Ref::steal(key);
    h = mix(h, found == nullptr ? 0 : reinterpret_cast<uintptr_t>(PyFunction_Check(found) ? &PyFunction_Type : Py_TYPE(found)));
  }
  PyErr_Clear();
  return mix(h, PyType_HasFeature(type, Py_TPFLAGS_IS_ABSTRACT) ? 1 : 0);
}

int64_t abc_token() {
  static PyObject* const function = [] {
    const Ref module = Ref::steal(PyImport_ImportModule("_abc"));
    PyObject* found = module ? PyObject_GetAttrString(module.get(), "get_cache_token") : nullptr;
    PyErr_Clear();
    return found;
  }();
  const Ref token = function == nullptr ? Ref() : Ref::steal(PyObject_CallNoArgs(function));
  const int64_t n = token ? PyLong_AsLongLong(token.get()) : 0;
  PyErr_Clear();
  return n;
}

PyObject* super_attribute(PyTypeObject* type, PyObject* after, PyObject* name) {
  PyObject* mro = type->tp_mro;
  if (mro == nullptr) return nullptr;
  const Py_ssize_t n = PyTuple_GET_SIZE(mro);
  Py_ssize_t i = 0;
  while (i < n && PyTuple_GET_ITEM(mro, i) != after) i++;
  for (i++; i < n; i++) {
    PyObject* dict = type_dict(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i)));
    uint16_t hint = 0xffff;
    bool known = true;
    PyObject* found = dict == nullptr ? nullptr : object::dict_lookup(dict, name, hint, known);
    if (found != nullptr || !known) return found;
  }
  return nullptr;
}

PyObject* dict_of(PyObject* object) {
  if (PyModule_Check(object)) return PyModule_GetDict(object);
  if (PyType_Check(object)) return type_dict(reinterpret_cast<PyTypeObject*>(object));
  return object::instance_storage(object).dict;
}

PyObject* dict_key(PyObject* dict, int64_t i) {
  if (!PyDict_Check(dict)) return nullptr;
  PyObject* out = nullptr;
  visit_keys(dict, [&](PyObject* key) {
    if (i-- == 0) out = key;
    return out == nullptr;
  });
  return out;
}

PyObject* dict_value(PyObject* dict, int64_t i) {
  if (!PyDict_Check(dict) || PyODict_Check(dict)) return nullptr;
  Py_ssize_t position = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (PyDict_Next(dict, &position, &key, &value)) {
    if (i-- == 0) return value;
  }
  return nullptr;
}

PyObject* lookup(PyObject* dict, PyObject* key, bool& known) {
  if (!PyDict_Check(dict)) return nullptr;
  if (PyTuple_Check(key)) {
    uint16_t no_hint = 0xffff;
    return object::dict_lookup(dict, key, no_hint, known);
  }
  // Tensors are hashed by their id, in Python.
  const Py_hash_t hash = Py_TYPE(key)->tp_hash == PyBaseObject_Type.tp_hash ? _Py_HashPointer(key)
                                                                            : reinterpret_cast<Py_hash_t>(key);
  PyObject* value = _PyDict_GetItem_KnownHash(dict, key, hash);
  if (value == nullptr) PyErr_Clear();
  return value;
}

bool keys_equal(PyObject* dict, PyObject* tuple_of_keys) {
  const Py_ssize_t n = PyTuple_GET_SIZE(tuple_of_keys);
  if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != n) return false;
  Py_ssize_t i = 0;
  visit_keys(dict, [&](PyObject* key) {
    if (i >= n) return false;
    PyObject* expected = PyTuple_GET_ITEM(tuple_of_keys, i);
    if (key != expected && !constants_equal(key, expected)) return false;
    i++;
    return true;
  });
  return i == n;
}

Ref member(PyObject* object, PyObject* name) {
  if (PyWeakref_CheckRefExact(object)) return name == weak_referent() ? Ref::steal(PyObject_CallNoArgs(object)) : Ref();
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(object), name);
  if (descriptor == nullptr) return PyErr_Clear(), Ref();
  if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type) && !Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) return Ref();
  Ref value = Ref::steal(Py_TYPE(descriptor)->tp_descr_get(descriptor, object, reinterpret_cast<PyObject*>(Py_TYPE(object))));
  if (!value) PyErr_Clear();
  return value;
}

int64_t length(PyObject* container) {
  if (PyList_Check(container) || PyTuple_Check(container)) return Py_SIZE(container);
  if (PyDict_Check(container)) return PyDict_GET_SIZE(container);
  if (PyAnySet_Check(container)) return PySet_GET_SIZE(container);
  if (PyUnicode_Check(container)) return PyUnicode_GET_LENGTH(container);
  if (PyBytes_Check(container)) return PyBytes_GET_SIZE(container);
  if (is_deque(container)) return PyObject_Size(container);
  // Other natives (range, array); a mapping proxy would ask the mapping behind it.
  if (is_python_class(Py_TYPE(container)) || Py_IS_TYPE(container, &PyDictProxy_Type)) return -1;
  const Py_ssize_t n = PyObject_Size(container);
  if (n < 0) PyErr_Clear();
  return n;
}

int truth(PyObject* object) {
  if (object == Py_None || object == Py_False) return 0;
  if (object == Py_True) return 1;
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object) != 0;
  if (PyList_Check(object) || PyTuple_Check(object)) return Py_SIZE(object) != 0;
  if (PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyComplex_CheckExact(object)) {
    return PyObject_IsTrue(object);
  }
  const int64_t n = length(object);
  return n < 0 ? -1 : n != 0;
}

bool is_wrapper(PyObject* object) {
  return Py_IS_TYPE(object, &PyProperty_Type) || Py_IS_TYPE(object, &PyStaticMethod_Type) ||
         Py_IS_TYPE(object, &PyClassMethod_Type);
}

void wrapped_functions(PyObject* wrapper, PyObject* (&inner)[3]) {
  inner[0] = inner[1] = inner[2] = nullptr;
  if (Py_IS_TYPE(wrapper, &PyProperty_Type)) {
    inner[0] = field(wrapper, "fget");
    inner[1] = field(wrapper, "fset");
    inner[2] = field(wrapper, "fdel");
  } else if (is_wrapper(wrapper)) {
    inner[0] = field(wrapper, "__func__");
  }
}

PyObject* wrapped_function(PyObject* wrapper, PyObject* name) {
  if (!is_wrapper(wrapper)) return nullptr;
  const bool property = Py_IS_TYPE(wrapper, &PyProperty_Type);
  for (const char* attribute : {"fget", "fset", "fdel", "__func__"}) {
    if (property == (attribute[0] == '_') || PyUnicode_CompareWithASCIIString(name, attribute) != 0) continue;
    PyObject* function = field(wrapper, attribute);
    return function == Py_None ? nullptr : function;
  }
  return nullptr;
}

}  // namespace braze::capture::load
