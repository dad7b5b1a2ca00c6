#include "braze/capture/execute/types.h"

namespace braze::capture {

namespace {

// What CPython's class statement gives every class; classes in C have another.
destructor dealloc_of_classes() {
  static const destructor dealloc = [] {
    const Ref made = Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "C"));
    return made ? reinterpret_cast<PyTypeObject*>(made.get())->tp_dealloc : nullptr;
  }();
  return dealloc;
}

}  // namespace

bool is_python_class(PyTypeObject* type) {
  return PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && type->tp_dealloc == dealloc_of_classes();
}

Ref storage_keys(PyObject* dict) {
  if (!PyODict_Check(dict)) return Ref::steal(PyDict_Keys(dict));
  const Ref view = Ref::steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyODict_Type), "keys", "O", dict));
  return view ? Ref::steal(PySequence_List(view.get())) : Ref();
}

bool storage_pairs(PyObject* dict, std::vector<std::pair<Ref, Ref>>& out) {
  if (!PyODict_Check(dict)) {
    Py_ssize_t position = 0;
    PyObject *key = nullptr, *value = nullptr;
    while (PyDict_Next(dict, &position, &key, &value)) out.emplace_back(Ref::borrow(key), Ref::borrow(value));
    return true;
  }
  const Ref keys = storage_keys(dict);
  for (Py_ssize_t i = 0; keys && i < PyList_GET_SIZE(keys.get()); i++) {
    PyObject* const key = PyList_GET_ITEM(keys.get(), i);
    PyObject* const value = PyDict_GetItemWithError(dict, key);
    if (value == nullptr) return false;
    out.emplace_back(Ref::borrow(key), Ref::borrow(value));
  }
  return static_cast<bool>(keys);
}

PyTypeObject* native_base(PyTypeObject* type) {
  while (is_python_class(type) && type->tp_base != nullptr) type = type->tp_base;
  return type;
}

}  // namespace braze::capture
