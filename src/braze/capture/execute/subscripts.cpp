// container[key]: reads, stores and deletions.
#include "braze/capture/execute/executor.h"
#include "braze/capture/execute/generic_types.h"
#include "braze/capture/execute/missing.h"
#include "braze/capture/execute/operators.h"
#include "braze/capture/guards/load.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

namespace {

bool index_of(Executor& x, Value key, Py_ssize_t& out) {
  const Owned fixed = x.concrete(key);   // of (n % 2): the remainder is guarded, not n
  key = fixed.get();
  if (PyLong_Check(key.object)) {
    x.prov.use_constant(key);
    out = PyLong_AsSsize_t(key.object);
    return !(out == -1 && PyErr_Occurred());
  }
  const Method m = x.special(key, interned("__index__"));
  if (!m.function) {
    PyErr_Format(PyExc_TypeError, "indices must be integers or slices, not %.200s", Py_TYPE(key.object)->tp_name);
    return false;
  }
  const Owned r = x.call_method(m, {});
  if (!r) return false;
  if (!PyLong_Check(r.ref.get())) x.fail("an index that is no integer");
  x.prov.use_constant(r.get());
  out = PyLong_AsSsize_t(r.ref.get());
  return !(out == -1 && PyErr_Occurred());
}

Owned sequence_item(Executor& x, Value v, Value key) {
  const bool list = PyList_Check(v.object);
  if (!x.prov.has_origin(v)) x.fail("a list of unknown origin");
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(v.object);
  if (PySlice_Check(key.object)) {
    x.prov.use_deep(key);
    x.prov.use_length(v, n);
    Py_ssize_t start = 0, stop = 0, step = 0;
    if (PySlice_Unpack(key.object, &start, &stop, &step) < 0) return {};
    const Py_ssize_t count = PySlice_AdjustIndices(n, &start, &stop, step);
    std::vector<Value> items;
    for (Py_ssize_t i = 0; i < count; i++) {
      const Py_ssize_t k = start + i * step;
      items.push_back(x.prov.item_of(v, PySequence_Fast_GET_ITEM(v.object, k), k));
    }
    return list ? x.make_list(items.data(), count) : x.make_tuple(items.data(), count);
  }
  Py_ssize_t i = 0;
  if (!index_of(x, key, i)) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Format(PyExc_TypeError, "%s indices must be integers or slices, not %.200s", list ? "list" : "tuple",
                   Py_TYPE(key.object)->tp_name);
    }
    return {};
  }
  if (i < 0) {
    x.prov.use_length(v, n);
    i += n;
  }
  if (i < 0 || i >= n) {
    x.prov.use_length(v, n);
    PyErr_Format(PyExc_IndexError, "%s index out of range", list ? "list" : "tuple");
    return {};
  }
  x.prov.use_type(v);
  return Owned::borrow(x.prov.item_of(v, PySequence_Fast_GET_ITEM(v.object, i), i));
}

Owned dict_item(Executor& x, Value dict, Value key, After after) {
  const Value v = x.dict_get(dict, key);
  if (v.object != nullptr) return Owned::borrow(v);
  if (PyErr_Occurred()) return {};
  if (!PyDict_CheckExact(dict.object)) {
    const Method missing = x.special(dict, interned("__missing__"));
    if (missing.function) return x.expect(after), x.call_method(missing, {key});
  }
  raise_missing_key(key.object);
  return {};
}

}  // namespace

Owned Executor::subscript(Value container, Value key) {
  const After after = take_after();
  if (!PyDict_Check(container.object)) container = seen(container);
  PyTypeObject* type = Py_TYPE(container.object);
  if (PyList_CheckExact(container.object) || PyTuple_CheckExact(container.object)) {
    return sequence_item(*this, container, key);
  }
  if (PyDict_CheckExact(container.object)) return dict_item(*this, container, key, after);
  const Category c = prov.category(container.object);
  if (Owned out; typing_subscript(*this, container, key, out)) return out;
  if (c == Category::Tensor) return call_tensor_operator(*this, "getitem", {container, key});
  if (c == Category::Constant) {   // strings, ranges, torch.Size
    prov.use_constant(container);
    prov.use_deep(key);
    return fresh_native(Ref::steal(PyObject_GetItem(container.object, key.object)));
  }
  if (PyType_Check(container.object)) {
    PyObject* on_meta = _PyType_Lookup(type, interned("__getitem__"));
    if (on_meta == nullptr) {
      prov.use_identity(container);
      const Owned m = find_attribute(container, interned("__class_getitem__"));
      if (m && PyMethod_Check(m.ref.get())) return call(m.get(), {key});
      return type_subscript(*this, container, key);
    }
    PyObject* member = PyUnicode_Check(key.object) ? PyObject_GetItem(container.object, key.object) : nullptr;
    if (member != nullptr && prov.category(member) == Category::Constant) {   // Enum['name']
      prov.use_identity(container);
      prov.use_constant(key);
      return Owned::steal(member);
    }
    PyErr_Clear();
  }
  PyObject* method = nullptr;
  if (is_python_method(type, interned("__getitem__"), method)) {
    const Method m = special(container, interned("__getitem__"));
    expect(after);
    return call_method(m, {key});
  }
  prov.use_type(container);
  prov.use_type_attribute(type, interned("__getitem__"), _PyType_Lookup(type, interned("__getitem__")));
  if (PyList_Check(container.object) || PyTuple_Check(container.object)) return sequence_item(*this, container, key);
  if (PyDict_Check(container.object)) return dict_item(*this, container, key, after);
  if (type->tp_as_mapping == nullptr && type->tp_as_sequence == nullptr) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not subscriptable", type->tp_name);
    return {};
  }
  if (prov.is_fresh(container.object) || (container.src == kNoSource && c != Category::Identity)) {
    prov.use_deep(key);
    const uint64_t before = frames_run_natively();
    Ref item = Ref::steal(PyObject_GetItem(container.object, key.object));
    if (frames_run_natively() != before) fail("a native subscript that calls Python code");
    return Owned(item, item ? prov.recall(container.object, item.get()) : kNoSource);
  }
  if (type == &PyDictProxy_Type) return Owned::steal(PyObject_GetItem(container.object, key.object));
  if (container.src == kNoSource && prov.category(key.object) != Category::Tensor) {   // generic aliases
    return Owned::steal(PyObject_GetItem(container.object, key.object));
  }
  fail(std::string("a subscript of the native type ") + type->tp_name);
}

bool Executor::set_subscript(Value container, Value key, Value value) {
  const After after = take_after();
  PyTypeObject* type = Py_TYPE(container.object);
  if (is_tensor(*this, container)) {
    return static_cast<bool>(call_tensor_operator(*this, "setitem", {container, key, value}));
  }
  PyObject* method = nullptr;
  if (is_python_method(type, interned("__setitem__"), method)) {
    const Method m = special(container, interned("__setitem__"));
    expect(after);
    return static_cast<bool>(call_method(m, {key, value}));
  }
  if (PyDict_Check(container.object)) return dict_set(container, key, value);
  if (PyList_Check(container.object)) {
    prov.use_deep(key);
    Owned items;
    if (PySlice_Check(key.object)) {
      items = make_list(nullptr, 0);
      if (!for_each(value, [&](Value item) { return list_append(items.get(), item); })) return false;
      value = items.get();
    }
    static PyObject* const set_item = _PyType_Lookup(&PyList_Type, interned("__setitem__"));
    ArgumentList arguments;
    for (const Value& v : {container, key, value}) arguments.add(v);
    if (!mutate(set_item, arguments.get())) return false;
    if (items) copy_sources(*this, items.get(), seen(container).object);
    return true;
  }
  if (!prov.is_fresh(container.object) && load::is_deque(container.object)) {
    static PyObject* const set_item = _PyType_Lookup(type, interned("__setitem__"));
    prov.use_constant(key);
    ArgumentList arguments;
    for (const Value& v : {container, key, value}) arguments.add(v);
    return static_cast<bool>(mutate(set_item, arguments.get()));
  }
  require_fresh(container, "changing");
  prov.use_constant(key);
  value = number(value);
  prov.stored(container.object, value);
  const uint64_t before = frames_run_natively();
  const bool ok = PyObject_SetItem(container.object, key.object, value.object) == 0;
  if (frames_run_natively() != before) fail("a native item assignment that calls Python code");
  return ok;
}

bool Executor::delete_subscript(Value container, Value key) {
  const After after = take_after();
  PyObject* method = nullptr;
  if (is_python_method(Py_TYPE(container.object), interned("__delitem__"), method)) {
    const Method m = special(container, interned("__delitem__"));
    expect(after);
    return static_cast<bool>(call_method(m, {key}));
  }
  if (PyDict_Check(container.object)) return dict_delete(container, key);
  prov.use_deep(key);
  if (PyList_Check(container.object)) {
    static PyObject* const delete_item = _PyType_Lookup(&PyList_Type, interned("__delitem__"));
    ArgumentList arguments;
    for (const Value& v : {container, key}) arguments.add(v);
    return static_cast<bool>(mutate(delete_item, arguments.get()));
  }
  require_fresh(container, "deleting an item of");
  require_native_hash(*this, key);
  return PyObject_DelItem(container.object, key.object) == 0;
}

}  // namespace braze::capture
