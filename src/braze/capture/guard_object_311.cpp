#include "braze/capture/guard_object_311.h"

#include "braze/capture/guard_constant.h"

namespace braze::capture::object {

namespace {

int64_t index_at(const PyDictKeysObject* keys, size_t slot) {
  const int log2_size = DK_LOG_SIZE(keys);
  const void* indices = keys->dk_indices;
  if (log2_size < 8) return static_cast<const int8_t*>(indices)[slot];
  if (log2_size < 16) return static_cast<const int16_t*>(indices)[slot];
  if (log2_size < 32) return static_cast<const int32_t*>(indices)[slot];
  return static_cast<const int64_t*>(indices)[slot];
}

enum class Match { No, Yes, Unknown };

Match matches(const PyDictKeysObject* keys, int64_t i, PyObject* key, Py_hash_t hash) {
  PyObject* other = entry_key(keys, i);
  if (other == key) return Match::Yes;
  if (DK_IS_UNICODE(keys)) {
    // A named tuple or an int never equals an exact str.
    return constants_equal(other, key) ? Match::Yes : Match::No;
  }
  if (other == nullptr || DK_ENTRIES(keys)[i].me_hash != hash) return Match::No;
  // Dicts find 1 at key True and 1.0: their own comparison decides, where it is native.
  if (!is_value_constant(other) || !is_value_constant(key)) return Match::Unknown;
  const int equal = PyObject_RichCompareBool(other, key, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 1 ? Match::Yes : Match::No;
}

bool dict_versions_work() {
  Ref dict = Ref::steal(PyDict_New()), other = Ref::steal(PyDict_New());
  Ref key = Ref::steal(PyUnicode_InternFromString("braze_probe"));
  Ref value = Ref::steal(PyFloat_FromDouble(1.0)), value2 = Ref::steal(PyFloat_FromDouble(2.0));
  if (!dict || !other || !key || !value || !value2) return false;
  PyObject* d = dict.get();
  uint64_t last = dict_version(d);
  const auto moved = [&](int rc) {
    const uint64_t before = std::exchange(last, dict_version(d));
    return rc >= 0 && last != before && last != 0 && last != dict_version(other.get());
  };
  bool ok = last != dict_version(other.get()) && moved(PyDict_SetItem(d, key.get(), value.get())) &&
            moved(PyDict_SetItem(d, key.get(), value2.get())) && moved(PyDict_DelItem(d, key.get())) &&
            moved(PyDict_SetItem(d, key.get(), value.get()));
  PyDict_GetItemWithError(d, key.get());
  ok = ok && dict_version(d) == last;
  PyDict_Clear(d);
  return ok && moved(0);
}

// The instance storage of a scratch class, inline and after __dict__ was taken, and its version tag.
bool instance_storage_works() {
  Ref type = Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "BrazeProbe"));
  Ref name = Ref::steal(PyUnicode_InternFromString("braze_probe"));
  if (!type || !name) return false;
  Ref instance = Ref::steal(PyObject_CallNoArgs(type.get()));
  if (!instance || PyObject_SetAttr(instance.get(), name.get(), Py_None) < 0) return false;
  uint16_t hint = 0;
  bool known = true;
  Storage inlined = instance_storage(instance.get());
  if (inlined.values == nullptr || inlined.keys == nullptr) return false;
  if (storage_lookup(inlined, name.get(), hint, known) != Py_None) return false;

  Ref dict = Ref::steal(PyObject_GetAttrString(instance.get(), "__dict__"));
  Storage materialised = instance_storage(instance.get());
  if (!dict || materialised.values != nullptr || materialised.dict != dict.get()) return false;
  if (storage_lookup(materialised, name.get(), hint, known) != Py_None) return false;
  const uint64_t before = dict_version(dict.get());
  if (PyObject_SetAttr(instance.get(), name.get(), Py_True) < 0 || dict_version(dict.get()) == before) return false;
  if (storage_lookup(materialised, name.get(), hint, known) != Py_True || !known) return false;

  auto* t = reinterpret_cast<PyTypeObject*>(type.get());
  _PyType_Lookup(t, name.get());
  const uint32_t version = type_version(t);
  if (version == 0 || PyObject_SetAttr(type.get(), name.get(), Py_None) < 0) return false;
  _PyType_Lookup(t, name.get());
  return type_version(t) != version;
}

// Keys that are no plain values are found by identity, which is what their own comparison says if they define none.
int64_t find_by_identity(const PyDictKeysObject* keys, PyObject* key) {
  for (int64_t i = 0; i < keys->dk_nentries; i++) {
    if (entry_key(keys, i) == key) return i;
  }
  return Py_TYPE(key)->tp_richcompare == PyBaseObject_Type.tp_richcompare ? -1 : -2;
}

}  // namespace

int64_t find_entry(PyDictKeysObject* keys, PyObject* key) {
  if (!is_value_constant(key)) return find_by_identity(keys, key);
  const Py_hash_t hash = PyObject_Hash(key);
  if (hash == -1) return PyErr_Clear(), -2;
  const size_t mask = static_cast<size_t>(DK_SIZE(keys)) - 1;
  size_t perturb = static_cast<size_t>(hash), slot = perturb & mask;
  for (;;) {
    const int64_t i = index_at(keys, slot);
    if (i == DKIX_EMPTY) return -1;
    if (i >= 0) {
      const Match match = matches(keys, i, key, hash);
      if (match == Match::Yes) return i;
      if (match == Match::Unknown) return -2;
    }
    perturb >>= 5;
    slot = (slot * 5 + perturb + 1) & mask;
  }
}

bool versions_work() {
  static const bool ok = [] {
    const bool outcome = dict_versions_work() && instance_storage_works();
    PyErr_Clear();
    return outcome;
  }();
  return ok;
}

}  // namespace braze::capture::object
