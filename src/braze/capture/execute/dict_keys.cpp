// Keys of dicts that Python code hashes or compares: frozen dataclasses, enums with a hash of their own, objects with
// __eq__, and tuples of such. Their __hash__ and __eq__ are frames of the trace, called as CPython's lookup would;
// the dict itself is then asked with the key that stands in it, which it finds by identity.
//
// In an existing dict every key is guarded, and so is what its hash was computed from.
#include "braze/capture/cpython/exported.h"
#include "braze/capture/execute/executor.h"
#include "braze/capture/execute/types.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

namespace {

constexpr Py_ssize_t kMostKeys = 256;   // each is hashed, for every lookup

bool is_python_function(PyTypeObject* type, const char* name) {
  PyObject* const found = _PyType_Lookup(type, interned(name));
  return found != nullptr && PyFunction_Check(found);
}

// As a dict sees it: false with an error set where __hash__ raises.
bool hash_of_key(Executor& x, Value key, Py_hash_t& hash) {
  const bool in_python = is_hashed_in_python(x, key.object);
  if (in_python && PyTuple_CheckExact(key.object)) {
    const Py_ssize_t n = PyTuple_GET_SIZE(key.object);
    if (key.src != kNoSource) x.prov.use_length(key, n);
    std::vector<Py_hash_t> hashes(static_cast<size_t>(n));
    for (Py_ssize_t i = 0; i < n; i++) {
      if (!hash_of_key(x, x.prov.item_of(key, PyTuple_GET_ITEM(key.object, i), i), hashes[static_cast<size_t>(i)])) return false;
    }
    hash = object::combined_hash(hashes);
    return true;
  }
  if (!in_python || !is_python_function(Py_TYPE(key.object), "__hash__")) {   // of the latter, __eq__ alone is
    x.prov.use_key(key);
    if (!object::native_hash(key.object, hash)) x.fail("a key of a dict whose hash is not known");
    return true;
  }
  const Owned made = x.call_method(x.special(key, interned("__hash__")), {});
  if (!made) return false;
  const Owned number = x.concrete(made.get());
  if (!PyLong_Check(number.ref.get())) return PyErr_SetString(PyExc_TypeError, "__hash__ method should return an integer"), false;
  x.prov.use_constant(number.get());
  hash = PyLong_AsSsize_t(number.ref.get());
  if (hash == -1 && PyErr_Occurred()) {   // wider than a hash
    PyErr_Clear();
    hash = PyObject_Hash(number.ref.get());
  }
  if (hash == -1) hash = -2;
  return true;
}

// Of two keys with equal hashes: -1: error.
int same_key(Executor& x, Value stored, Value key) {
  if (stored.object == key.object) return 1;
  if (PyTuple_CheckExact(stored.object) && PyTuple_CheckExact(key.object)) {
    const Py_ssize_t n = PyTuple_GET_SIZE(key.object);
    if (PyTuple_GET_SIZE(stored.object) != n) return 0;
    for (Py_ssize_t i = 0; i < n; i++) {
      const int same = same_key(x, x.prov.item_of(stored, PyTuple_GET_ITEM(stored.object, i), i),
                                x.prov.item_of(key, PyTuple_GET_ITEM(key.object, i), i));
      if (same != 1) return same;
    }
    return 1;
  }
  const Owned equal = x.compare(Py_EQ, stored, key);
  return equal ? x.truth(equal.get()) : -1;
}

}  // namespace

bool is_hashed_in_python(Executor& x, PyObject* key) {
  const Category c = x.prov.category(key);
  if (c == Category::Tuple) {
    if (!PyTuple_CheckExact(key)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++) {
      if (is_hashed_in_python(x, PyTuple_GET_ITEM(key, i))) return true;
    }
    return false;
  }
  if (c != Category::Identity && c != Category::Constant) return false;
  PyTypeObject* const type = Py_TYPE(key);
  if (!is_python_class(type) || type->tp_hash == PyObject_HashNotImplemented) return false;
  Py_hash_t hash = 0;
  return is_python_function(type, "__eq__") || (is_python_function(type, "__hash__") && !object::native_hash(key, hash));
}

bool find_key(Executor& x, Value dict, Value key, FoundKey& out) {
  if (PyODict_Check(dict.object) || PyDict_GET_SIZE(dict.object) > kMostKeys) {
    x.fail(std::string("a key that is hashed or compared by Python code (") + Py_TYPE(key.object)->tp_name + ")");
  }
  x.prov.use_keys(dict);
  if (!hash_of_key(x, key, out.hash)) return false;
  std::vector<std::pair<Ref, Py_hash_t>> stored;
  Py_ssize_t position = 0;
  PyObject *other = nullptr, *value = nullptr;
  while (PyDict_Next(dict.object, &position, &other, &value)) {
    stored.emplace_back(Ref::borrow(other), object::stored_hash(dict.object, position - 1));
  }
  for (const auto& [object, hash] : stored) {
    const Value candidate{object.get(), x.prov.recall(dict.object, object.get())};
    Py_hash_t now = hash;
    if (is_hashed_in_python(x, object.get()) && !x.prov.is_fresh(object.get())) {
      if (!hash_of_key(x, candidate, now)) return false;
      if (now != hash) x.fail("a key of a dict that has changed since it was put there");
    }
    if (hash != out.hash || out.stored) continue;
    const int same = same_key(x, candidate, key);
    if (same < 0) return false;
    if (same == 0) x.fail("different keys of a dict with equal hashes");
    out.stored = Owned::borrow(candidate);
  }
  return true;
}

Value Executor::dict_get_in_python(Value dict, Value key) {
  if (!prov.has_origin(dict)) fail("a dict of unknown origin");
  prov.use_type(dict);
  dict = seen(dict);
  FoundKey found;
  if (!find_key(*this, dict, key, found) || !found.stored) return {};
  PyObject* const value = _PyDict_GetItem_KnownHash(dict.object, found.stored.ref.get(), found.hash);
  return value == nullptr ? Value{} : prov.value_of(dict, found.stored.get(), value);
}

// The key in the dict stays the one that was there first.
bool Executor::store_in_python(Value payload, Value key, Value value) {
  FoundKey found;
  if (!find_key(*this, payload, key, found)) return false;
  prov.stored(payload.object, key);
  return _PyDict_SetItem_KnownHash(payload.object, found.stored ? found.stored.ref.get() : key.object, value.object, found.hash) == 0;
}

bool Executor::remove_in_python(Value payload, Value key) {
  FoundKey found;
  if (!find_key(*this, payload, key, found)) return false;
  return _PyDict_DelItem_KnownHash(payload.object, found.stored ? found.stored.ref.get() : key.object, found.hash) == 0;
}

}  // namespace braze::capture
