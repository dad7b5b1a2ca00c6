// CPython 3.13's objects: see object.h.
#pragma once

namespace braze::capture::object {

// A dict that shares its values with an instance does not notice when attributes are set.
inline uint64_t dict_version(PyObject* dict) {
  const auto* d = reinterpret_cast<PyDictObject*>(dict);
  return d->ma_values != nullptr ? 0 : d->ma_version_tag;
}

inline uint32_t type_version(PyTypeObject* type) { return type->tp_version_tag; }

inline Storage managed_storage(PyObject* object) {
  auto* const dict = reinterpret_cast<PyObject*>(_PyObject_ManagedDictPointer(object)->dict);
  if (Py_TYPE(object)->tp_flags & Py_TPFLAGS_INLINE_VALUES) {
    auto* const values = reinterpret_cast<PyDictValues*>(reinterpret_cast<char*>(object) + Py_TYPE(object)->tp_basicsize);
    if (values->valid) return {dict, values, shared_keys(object)};
  }
  return {dict, nullptr, nullptr};
}

}  // namespace braze::capture::object
