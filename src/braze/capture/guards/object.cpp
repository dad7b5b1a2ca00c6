#include "braze/capture/guards/object.h"

#include <algorithm>

#include "braze/capture/guards/constant.h"
#include "braze/capture/tensor_domain.h"

namespace braze::capture::object {

namespace {

int64_t index_at(PyDictKeysObject* keys, size_t slot) {
  const int log2_size = DK_LOG_SIZE(keys);
  const void* indices = keys->dk_indices;
  if (log2_size < 8) return static_cast<const int8_t*>(indices)[slot];
  if (log2_size < 16) return static_cast<const int16_t*>(indices)[slot];
  if (log2_size < 32) return static_cast<const int32_t*>(indices)[slot];
  return static_cast<const int64_t*>(indices)[slot];
}

// Of objects that are compared by identity or by C code.
bool compares_natively(PyObject* object) {
  const richcmpfunc compare = Py_TYPE(object)->tp_richcompare;
  for (PyTypeObject* type : {&PyBaseObject_Type, &PyLong_Type, &PyFloat_Type, &PyUnicode_Type, &PyBytes_Type,
                             &PyCFunction_Type, &PyMethod_Type}) {
    if (compare == type->tp_richcompare) return true;
  }
  return is_value_constant(object);
}

bool is_tuple_key(PyObject* object) {
  return PyTuple_Check(object) && Py_TYPE(object)->tp_hash == PyTuple_Type.tp_hash &&
         Py_TYPE(object)->tp_richcompare == PyTuple_Type.tp_richcompare;
}

// As CPython combines the hashes of a tuple's elements (Objects/tupleobject.c, xxHash).
class TupleHash {
 public:
  void add(Py_hash_t item) {
    sum_ += static_cast<uint64_t>(item) * kPrime2;
    sum_ = (sum_ << 31) | (sum_ >> 33);
    sum_ *= kPrime1;
    n_++;
  }
  Py_hash_t finish() const {
    const uint64_t h = sum_ + (n_ ^ (kPrime5 ^ 3527539u));
    return h == UINT64_MAX ? 1546275796 : static_cast<Py_hash_t>(h);
  }

 private:
  static constexpr uint64_t kPrime1 = 11400714785074694791u, kPrime2 = 14029467366897019727u, kPrime5 = 2870177450012600261u;
  uint64_t sum_ = kPrime5, n_ = 0;
};

bool tuple_hash(PyObject* tuple, Py_hash_t& hash) {
  TupleHash combined;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
    Py_hash_t item = 0;
    if (!native_hash(PyTuple_GET_ITEM(tuple, i), item)) return false;
    combined.add(item);
  }
  hash = combined.finish();
  return true;
}

// enum.Enum.__hash__, which is the hash of the member's name.
bool is_enum_hash(PyObject* function) {
  static PyObject* const own = [] {
    const Ref module = Ref::steal(PyImport_ImportModule("enum"));
    const Ref type = module ? Ref::steal(PyObject_GetAttrString(module.get(), "Enum")) : Ref();
    PyObject* found = type ? PyObject_GetAttrString(type.get(), "__hash__") : nullptr;
    PyErr_Clear();
    return found;
  }();
  return function != nullptr && function == own;
}

Match matches(PyDictKeysObject* keys, int64_t i, PyObject* key, Py_hash_t hash) {
  PyObject* other = entry_key(keys, i);
  if (other == key) return Match::Yes;
  if (DK_IS_UNICODE(keys)) {
    // A named tuple or an int never equals an exact str.
    return constants_equal(other, key) ? Match::Yes : Match::No;
  }
  if (other == nullptr || DK_ENTRIES(keys)[i].me_hash != hash) return Match::No;
  return keys_match(other, key);
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

// An instance of a scratch class, as its attributes move from inline values to a dict.
class Instance {
 public:
  Instance() : type_(Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "BrazeProbe"))) {
    if (type_) object_ = Ref::steal(PyObject_CallNoArgs(type_.get()));
  }
  explicit operator bool() const { return static_cast<bool>(object_); }
  PyObject* type() const { return type_.get(); }
  Storage storage() const { return instance_storage(object_.get()); }
  uint64_t version() const { return storage().dict == nullptr ? 0 : dict_version(storage().dict); }
  // True: read in place, the attribute is what it was set to (nullptr: deleted).
  bool set(const Ref& name, PyObject* value) const {
    if (PyObject_SetAttr(object_.get(), name.get(), value) < 0) return false;
    uint16_t hint = 0;
    bool known = true;
    return storage_lookup(storage(), name.get(), hint, known) == value && known;
  }
  Ref dict() const { return Ref::steal(PyObject_GetAttrString(object_.get(), "__dict__")); }

 private:
  Ref type_, object_;
};

Ref probe_name(int i = 0) { return Ref::steal(PyUnicode_FromFormat("braze_probe_%d", i)); }

bool instance_layout_works() {
  const Instance instance;
  const Ref name = probe_name(), other = probe_name(1);
  if (!instance || !instance.set(name, Py_None) || instance.storage().values == nullptr) return false;
  if (!instance.set(other, Py_True) || !instance.set(other, nullptr) || !instance.set(name, Py_False)) return false;
  const Ref dict = instance.dict();
  if (instance.storage().dict != dict.get() || !instance.set(name, Py_None) || !instance.set(other, Py_True)) return false;
  for (int i = 2; i < 40; i++) {   // more than an instance holds inline
    if (!instance.set(probe_name(i), Py_None)) return false;
  }
  return instance.storage().values == nullptr && instance.set(name, Py_True) && instance.set(name, nullptr);
}

bool dict_layout_works() {
  const Ref dict = Ref::steal(PyDict_New()), absent = probe_name(1000);
  for (int i = 0; i < 300; i++) {
    const Ref key = i % 7 == 6 ? Ref::steal(PyLong_FromLong(i)) : probe_name(i);
    if (!key || PyDict_SetItem(dict.get(), key.get(), key.get()) < 0) return false;
    uint16_t hint = 0;
    bool known = true;
    if (dict_lookup(dict.get(), key.get(), hint, known) != key.get() || !known) return false;
    if (dict_lookup(dict.get(), absent.get(), hint, known) != nullptr || !known) return false;
  }
  return true;
}

// An instance's version moves with each change, where it has one.
bool instance_versions_work() {
  const Instance instance;
  const Ref name = probe_name();
  if (!instance || !instance.set(name, Py_None)) return false;
  const Ref dict = instance.dict();
  const auto moves = [&](PyObject* value) {
    const uint64_t before = instance.version();
    return instance.set(name, value) && (before == 0 || instance.version() != before);
  };
  bool ok = moves(Py_True) && moves(nullptr) && moves(Py_None);
  for (int i = 1; i < 40; i++) ok = ok && instance.set(probe_name(i), Py_None);
  return ok && moves(Py_True) && moves(nullptr) && moves(Py_None);
}

bool type_versions_work() {
  const Instance instance;
  const Ref name = probe_name();
  if (!instance) return false;
  auto* const type = reinterpret_cast<PyTypeObject*>(instance.type());
  _PyType_Lookup(type, name.get());
  const uint32_t version = type_version(type);
  if (version == 0 || PyObject_SetAttr(instance.type(), name.get(), Py_None) < 0) return false;
  _PyType_Lookup(type, name.get());
  return type_version(type) != version;
}

// Keys that are no plain values are found by identity, which is what their own comparison says if they define none.
int64_t find_by_identity(PyDictKeysObject* keys, PyObject* key) {
  for (int64_t i = 0; i < keys->dk_nentries; i++) {
    if (entry_key(keys, i) == key) return i;
  }
  return Py_TYPE(key)->tp_richcompare == PyBaseObject_Type.tp_richcompare ? -1 : -2;
}

}  // namespace

Match keys_match(PyObject* a, PyObject* b) {
  if (a == b) return Match::Yes;
  if (is_tuple_key(a) && is_tuple_key(b)) {
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return Match::No;
    Match all = Match::Yes;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); i++) {
      const Match m = keys_match(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
      if (m == Match::No) return Match::No;
      if (m == Match::Unknown) all = Match::Unknown;
    }
    return all;
  }
  if (domain().is_tensor(a) && domain().is_tensor(b)) return Match::No;   // their hashes differ
  const auto decidable = [](PyObject* o) { return compares_natively(o) || is_tuple_key(o); };
  if (!decidable(a) || !decidable(b)) return Match::Unknown;
  // Dicts find 1 at key True and 1.0: the objects' own comparison decides.
  const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 1 ? Match::Yes : Match::No;
}

Py_hash_t combined_hash(const std::vector<Py_hash_t>& items) {
  TupleHash combined;
  for (const Py_hash_t item : items) combined.add(item);
  return combined.finish();
}

Py_hash_t stored_hash(PyObject* dict, int64_t i) {
  PyDictKeysObject* const keys = reinterpret_cast<PyDictObject*>(dict)->ma_keys;
  return DK_IS_UNICODE(keys) ? PyObject_Hash(entry_key(keys, i)) : DK_ENTRIES(keys)[i].me_hash;
}

bool native_hash(PyObject* key, Py_hash_t& hash) {
  PyTypeObject* const type = Py_TYPE(key);
  if (is_tuple_key(key)) return tuple_hash(key, hash);
  if (domain().is_tensor(key)) return hash = reinterpret_cast<Py_hash_t>(key), true;   // its id(), in Python
  if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
    static PyObject* const hash_name = PyUnicode_InternFromString("__hash__"), *const name = PyUnicode_InternFromString("_name_");
    PyObject* const function = _PyType_Lookup(type, hash_name);
    if (is_enum_hash(function)) {
      uint16_t hint = 0xffff;
      bool known = true;
      PyObject* const text = storage_lookup(instance_storage(key), name, hint, known);
      if (text == nullptr || !PyUnicode_CheckExact(text)) return false;
      return hash = PyObject_Hash(text), true;
    }
    if (function == nullptr || !Py_IS_TYPE(function, &PyWrapperDescr_Type)) return false;
  }
  hash = PyObject_Hash(key);
  if (hash == -1) PyErr_Clear();
  return hash != -1;
}

int64_t find_entry(PyDictKeysObject* keys, PyObject* key) {
  if (!is_value_constant(key) && !is_tuple_key(key)) return find_by_identity(keys, key);
  Py_hash_t hash = 0;
  if (!native_hash(key, hash)) return -2;
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
    const bool outcome = layout_works() && dict_versions_work() && instance_versions_work() && type_versions_work();
    PyErr_Clear();
    return outcome;
  }();
  return ok;
}

bool layout_works() {
  static const bool ok = [] {
    const bool outcome = instance_layout_works() && dict_layout_works();
    PyErr_Clear();
    return outcome;
  }();
  return ok;
}

}  // namespace braze::capture::object
