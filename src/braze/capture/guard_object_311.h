// CPython 3.11's dicts and instance storage, read in place. The one file that knows their layout.
//
// Reading never materialises an instance's __dict__ (later attribute reads would be three times slower), never runs
// Python code and never sets an error. Results are borrowed. An entry index found once is passed back as a hint.
#pragma once

#include "braze/capture/ref.h"

#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#define BRAZE_UNDEF_BUILD_CORE
#endif
#include <internal/pycore_dict.h>
#ifdef BRAZE_UNDEF_BUILD_CORE
#undef Py_BUILD_CORE
#undef BRAZE_UNDEF_BUILD_CORE
#endif

#include <cstddef>
#include <cstdint>

namespace braze::capture::object {

// The globally unique number of a dict's present contents: keys and identities of values (not the order of an
// OrderedDict). No two dicts, and no two states of one, ever share it.
inline uint64_t dict_version(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }

// An instance's attributes stand in its dict, or inline: then `values` are ordered as the type's shared keys.
struct Storage {
  PyObject* dict = nullptr;
  PyDictValues* values = nullptr;
  PyDictKeysObject* keys = nullptr;
};

// tp_dictoffset may count from the end of a variable-sized object.
inline PyObject** dict_slot(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  Py_ssize_t offset = type->tp_dictoffset;
  if (offset == 0) return nullptr;
  if (offset < 0) {
    Py_ssize_t n = Py_SIZE(object);
    if (n < 0) n = -n;
    offset += static_cast<Py_ssize_t>(_PyObject_VAR_SIZE(type, n));
  }
  return reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset);
}

inline Storage instance_storage(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) {   // two words before the GC header: values, dict
    PyObject** words = reinterpret_cast<PyObject**>(object);
    auto* values = reinterpret_cast<PyDictValues*>(words[-4]);
    if (values != nullptr) return {nullptr, values, reinterpret_cast<PyHeapTypeObject*>(type)->ht_cached_keys};
    return {words[-3], nullptr, nullptr};
  }
  PyObject** slot = dict_slot(object);
  return {slot == nullptr ? nullptr : *slot, nullptr, nullptr};
}

// The index of `key`'s entry; -1: absent; -2: not decidable without running a user's __eq__.
int64_t find_entry(PyDictKeysObject* keys, PyObject* key);

inline PyObject* entry_key(const PyDictKeysObject* keys, int64_t i) {
  return DK_IS_UNICODE(keys) ? DK_UNICODE_ENTRIES(keys)[i].me_key : DK_ENTRIES(keys)[i].me_key;
}

inline PyObject* entry_value(const PyDictKeysObject* keys, const PyDictValues* values, int64_t i) {
  if (values != nullptr) return values->values[i];
  return DK_IS_UNICODE(keys) ? DK_UNICODE_ENTRIES(keys)[i].me_value : DK_ENTRIES(keys)[i].me_value;
}

// The value at `key`, nullptr if there is none. `known` becomes false if that could not be decided.
inline PyObject* lookup(PyDictKeysObject* keys, const PyDictValues* values, PyObject* key, uint16_t& hint, bool& known) {
  if (hint < keys->dk_nentries && entry_key(keys, hint) == key) [[likely]] return entry_value(keys, values, hint);
  const int64_t i = find_entry(keys, key);
  if (i == -2) known = false;
  if (i < 0) return nullptr;
  if (i <= 0xffff) hint = static_cast<uint16_t>(i);
  return entry_value(keys, values, i);
}

inline PyObject* dict_lookup(PyObject* dict, PyObject* key, uint16_t& hint, bool& known) {
  auto* d = reinterpret_cast<PyDictObject*>(dict);
  return lookup(d->ma_keys, d->ma_values, key, hint, known);
}

inline PyObject* storage_lookup(const Storage& s, PyObject* key, uint16_t& hint, bool& known) {
  if (s.values != nullptr) return lookup(s.keys, s.values, key, hint, known);
  return s.dict == nullptr ? nullptr : dict_lookup(s.dict, key, hint, known);
}

// True if the type's method cache tag is valid; a valid tag names one state of the type and its bases, for ever.
inline uint32_t type_version(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
}

// Whether versions behave as this file believes; probed once, on scratch dicts and classes. If not, nothing is skipped.
bool versions_work();

}  // namespace braze::capture::object
