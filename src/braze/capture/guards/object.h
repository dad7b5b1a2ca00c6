// How guards read dicts, instances and classes.
//
// Reading never materialises an instance's __dict__ (later attribute reads would be three times slower), never runs
// Python code and never sets an error. Results are borrowed. An entry index found once is passed back as a hint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "braze/capture/cpython/object.h"
#include "braze/capture/ref.h"

namespace braze::capture::object {

inline Storage instance_storage(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) return managed_storage(object);
  if (type->tp_dictoffset == 0) return {};
  // The offset may count from the end of a variable-sized object.
  PyObject** const slot = type->tp_dictoffset > 0 ? reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + type->tp_dictoffset)
                                                  : _PyObject_GetDictPtr(object);
  return {*slot, nullptr, nullptr};
}

// Whether two keys are equal to a dict, as far as native comparisons tell.
enum class Match { No, Yes, Unknown };
Match keys_match(PyObject* a, PyObject* b);
// The hash of a key that no Python code of the user hashes: false if there is some.
bool native_hash(PyObject* key, Py_hash_t& hash);
// Of a tuple whose items have these.
Py_hash_t combined_hash(const std::vector<Py_hash_t>& items);
// With which the i-th entry was put into the dict, as PyDict_Next counts them.
Py_hash_t stored_hash(PyObject* dict, int64_t i);

// The index of `key`'s entry; -1: absent; -2: not decidable without running a user's __eq__.
int64_t find_entry(PyDictKeysObject* keys, PyObject* key);

inline PyObject* entry_key(PyDictKeysObject* keys, int64_t i) {
  return DK_IS_UNICODE(keys) ? DK_UNICODE_ENTRIES(keys)[i].me_key : DK_ENTRIES(keys)[i].me_key;
}

inline PyObject* entry_value(PyDictKeysObject* keys, const PyDictValues* values, int64_t i) {
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

// Whether versions behave as cpython/object.h says; probed once, on scratch dicts and classes. If not, nothing is skipped.
bool versions_work();
// Whether instances and dicts are laid out as it says.
bool layout_works();

}  // namespace braze::capture::object
