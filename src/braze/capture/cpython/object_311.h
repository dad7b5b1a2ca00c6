// CPython 3.11's objects: see object.h.
#pragma once

namespace braze::capture::object {

inline uint64_t dict_version(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }

inline uint32_t type_version(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
}

inline Storage managed_storage(PyObject* object) {   // two words before the GC header: values, dict
  PyObject** words = reinterpret_cast<PyObject**>(object);
  auto* values = reinterpret_cast<PyDictValues*>(words[-4]);
  if (values != nullptr) return {nullptr, values, shared_keys(object)};
  return {words[-3], nullptr, nullptr};
}

}  // namespace braze::capture::object
