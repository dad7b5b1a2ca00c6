// CPython 3.12's objects: see object.h.
#pragma once

namespace braze::capture::object {

inline uint64_t dict_version(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }

inline uint32_t type_version(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
}

// The word before the GC header: a dict, or, when odd, one less than the address of values.
inline Storage managed_storage(PyObject* object) {
  const uintptr_t word = reinterpret_cast<uintptr_t*>(object)[-3];
  if (word & 1) return {nullptr, reinterpret_cast<PyDictValues*>(word + 1), shared_keys(object)};
  return {reinterpret_cast<PyObject*>(word), nullptr, nullptr};
}

}  // namespace braze::capture::object
