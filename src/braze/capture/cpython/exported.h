// What every version exports, though not every version declares it in its public headers.
#pragma once

#include "braze/capture/cpython/version.h"

#if PY_MINOR_VERSION >= 13
extern "C" {
PyAPI_FUNC(int) _PyObject_GetMethod(PyObject* object, PyObject* name, PyObject** method);
PyAPI_FUNC(PyObject*) _PyUnicode_JoinArray(PyObject* separator, PyObject* const* items, Py_ssize_t n);
PyAPI_FUNC(int) _PySet_NextEntry(PyObject* set, Py_ssize_t* position, PyObject** key, Py_hash_t* hash);
PyAPI_FUNC(int) _PyGen_SetStopIterationValue(PyObject* value);
PyAPI_FUNC(int) _PyDict_SetItem_KnownHash(PyObject* dict, PyObject* key, PyObject* value, Py_hash_t hash);
PyAPI_FUNC(int) _PyDict_DelItem_KnownHash(PyObject* dict, PyObject* key, Py_hash_t hash);
}
#endif

namespace braze::capture {

// The dict behind what keys(), values() or items() gave. Borrowed.
inline PyObject* viewed_dict(PyObject* view) {
  struct View {
    PyObject_HEAD
    PyObject* dict;
  };
  return reinterpret_cast<View*>(view)->dict;
}

// Borrowed. From 3.12 on the dicts of builtin classes belong to the interpreter.
inline PyObject* type_dict(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030c0000
  if (type->tp_dict == nullptr) {
    PyObject* const dict = PyType_GetDict(type);
    Py_XDECREF(dict);
    return dict;
  }
#endif
  return type->tp_dict;
}

// The type of a native slot bound to an object, as in (1).__add__.
inline PyTypeObject* method_wrapper_type() {
  static PyTypeObject* const type = [] {
    PyObject* const bound = PyObject_GetAttrString(Py_None, "__repr__");
    PyTypeObject* const found = Py_TYPE(bound);
    Py_DECREF(bound);
    return found;
  }();
  return type;
}

}  // namespace braze::capture
