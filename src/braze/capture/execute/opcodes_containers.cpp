// Tuples, lists, dicts, sets, slices, strings, unpacking, patterns.
#include "braze/capture/execute/opcodes.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

bool Opcodes::build(Executor& x, Frame& f, uint32_t n, bool tuple) {
  const auto count = static_cast<int64_t>(n);
  Ref made = Ref::steal(tuple ? PyTuple_New(count) : PyList_New(count));
  if (!made) return false;
  if (!tuple) x.prov.add_fresh(made.get());
  for (int64_t i = 0; i < count; i++) {
    const Value v = x.number(f.top(count - i));
    x.prov.stored(made.get(), v);
    PyObject* item = Ref::borrow(v.object).release();
    if (tuple) {
      PyTuple_SET_ITEM(made.get(), i, item);
    } else {
      PyList_SET_ITEM(made.get(), i, item);
    }
  }
  f.drop(count);
  f.push(Owned(std::move(made)));
  return true;
}

bool Opcodes::build_set(Executor& x, Frame& f, uint32_t n) {
  const Ref set = Ref::steal(PySet_New(nullptr));
  if (!set) return false;
  x.prov.add_fresh(set.get());
  for (int64_t i = static_cast<int64_t>(n); i > 0; i--) {
    if (!add_to_set(x, {set.get(), kNoSource}, f.top(i))) return false;
  }
  f.drop(n);
  f.push(Owned(set));
  return true;
}

bool Opcodes::set_add(Executor& x, Frame& f, uint32_t depth) {
  if (!add_to_set(x, f.top(depth + 1), f.top())) return false;
  f.pop();
  return true;
}

bool Opcodes::set_update(Executor& x, Frame& f, uint32_t depth) {
  const Value set = f.top(depth + 1);
  if (!x.for_each(f.top(), [&](Value item) { return add_to_set(x, set, item); })) return false;
  f.pop();
  return true;
}

bool Opcodes::build_map(Executor& x, Frame& f, uint32_t n) {
  const Ref dict = Ref::steal(PyDict_New());
  if (!dict) return false;
  x.prov.add_fresh(dict.get());
  for (int64_t i = static_cast<int64_t>(n); i > 0; i--) {
    if (!x.dict_set({dict.get(), kNoSource}, f.top(2 * i), f.top(2 * i - 1))) return false;
  }
  f.drop(2 * static_cast<int64_t>(n));
  f.push(Owned(dict));
  return true;
}

bool Opcodes::build_const_key_map(Executor& x, Frame& f, uint32_t n) {
  const Ref dict = Ref::steal(PyDict_New());
  if (!dict) return false;
  x.prov.add_fresh(dict.get());
  const Ref keys = Ref::borrow(f.top().object);
  const auto count = static_cast<int64_t>(n);
  for (int64_t i = 0; i < count; i++) {
    if (!x.dict_set({dict.get(), kNoSource}, {PyTuple_GET_ITEM(keys.get(), i), kNoSource}, f.top(count + 1 - i))) {
      return false;
    }
  }
  f.drop(count + 1);
  f.push(Owned(dict));
  return true;
}

bool Opcodes::build_string(Executor& x, Frame& f, uint32_t n) {
  static PyObject* const empty = PyUnicode_New(0, 0);
  for (int64_t i = n; i > 0; i--) x.prov.use_constant(f.top(i));
  PyObject* s = _PyUnicode_JoinArray(empty, f.sp - n, static_cast<Py_ssize_t>(n));
  return replace(f, static_cast<int64_t>(n), Owned::steal(s));
}

bool Opcodes::build_slice(Executor& x, Frame& f, uint32_t n) {
  const Value start = f.top(n), stop = f.top(n - 1), step = n == 3 ? f.top() : Value{};
  const Ref slice = Ref::steal(PySlice_New(start.object, stop.object, step.object));
  if (!slice) return false;
  for (const Value& v : {start, stop, step}) x.prov.stored(slice.get(), v);
  return replace(f, static_cast<int64_t>(n), Owned(slice));
}

namespace {

Owned slice_of(Executor& x, Value start, Value stop) {
  const Ref slice = Ref::steal(PySlice_New(start.object, stop.object, nullptr));
  if (!slice) return {};
  for (const Value& v : {start, stop}) x.prov.stored(slice.get(), v);
  return Owned(slice);
}

}  // namespace

// Stack: container, start, stop.
bool Opcodes::binary_slice(Executor& x, Frame& f) {
  const Owned slice = slice_of(x, f.top(2), f.top());
  return slice && replace(f, 3, x.subscript(f.top(3), slice.get()));
}

// Stack: value, container, start, stop.
bool Opcodes::store_slice(Executor& x, Frame& f) {
  const Owned slice = slice_of(x, f.top(2), f.top());
  if (!slice || !x.set_subscript(f.top(3), slice.get(), f.top(4))) return false;
  f.drop(4);
  return true;
}

// 1: str, 2: repr, 3: ascii.
Owned Opcodes::converted(Executor& x, Value value, uint32_t conversion) {
  if (conversion == 0) return Owned::borrow(value);
  Owned text = x.to_string(value, conversion != 1);
  if (!text || conversion != 3) return text;
  return Owned::steal(PyObject_ASCII(value.object));
}

bool Opcodes::format_value(Executor& x, Frame& f, uint32_t flags) {
  const bool with_spec = (flags & kFormatWithSpec) != 0;
  const Owned spec = with_spec ? f.pop() : Owned();
  if (spec) x.prov.use_constant(spec.get());
  const Owned value = f.pop();
  const Owned text = converted(x, value.get(), flags & 3);
  if (!text) return false;
  Owned out = x.format(text.get(), spec.ref.get());
  if (!out) return false;
  f.push(std::move(out));
  return true;
}

bool Opcodes::list_extend(Executor& x, Frame& f, uint32_t depth) {
  const Value list = f.top(depth + 1);
  const Value items = f.top();
  if (!x.for_each(items, [&](Value item) { return x.list_append(list, item); })) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) && Py_TYPE(items.object)->tp_iter == nullptr &&
        !PySequence_Check(items.object)) {
      PyErr_Format(PyExc_TypeError, "Value after * must be an iterable, not %.200s", Py_TYPE(items.object)->tp_name);
    }
    return false;
  }
  f.pop();
  return true;
}

bool Opcodes::list_to_tuple(Executor& x, Frame& f) {
  const Value list = x.seen(f.top());
  const Ref tuple = Ref::steal(PyList_AsTuple(list.object));
  if (!tuple) return false;
  copy_sources(x, list, tuple.get());
  return replace(f, 1, Owned(tuple));
}

bool Opcodes::dict_merge(Executor& x, Frame& f, uint32_t depth, bool reject_duplicates) {
  const Value dict = f.top(depth + 1), other = f.top();
  const bool ok = for_each_pair(x, other, [&](Value key, Value value) {
    if (reject_duplicates && x.dict_get(dict, key).object != nullptr) {
      PyErr_Format(PyExc_TypeError, "%V got multiple values for keyword argument '%S'", nullptr, "function", key.object);
      return false;
    }
    return x.dict_set(dict, key, value);
  });
  if (!ok) return false;
  f.pop();
  return true;
}

bool Opcodes::unpack(Executor& x, Frame& f, uint32_t before, int64_t after) {
  const Owned sequence = f.pop();
  const auto n_before = static_cast<int64_t>(before);
  const int64_t least = n_before + (after < 0 ? 0 : after);
  std::vector<Owned> items;
  const Owned iterator = x.iterate(sequence.get());
  if (!iterator) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) && Py_TYPE(sequence.ref.get())->tp_iter == nullptr &&
        !PySequence_Check(sequence.ref.get())) {
      PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", Py_TYPE(sequence.ref.get())->tp_name);
    }
    return false;
  }
  for (;;) {
    if (after < 0 && static_cast<int64_t>(items.size()) > n_before) break;
    Owned item = x.next(iterator.get());
    if (!item) {
      if (PyErr_Occurred()) return false;
      break;
    }
    items.push_back(std::move(item));
  }
  const auto n = static_cast<int64_t>(items.size());
  if (after < 0 ? n != n_before : n < least) {
    if (after < 0 && n > n_before) {
      PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", static_cast<int>(n_before));
    } else if (after < 0) {
      PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %d, got %d)", static_cast<int>(n_before),
                   static_cast<int>(n));
    } else {
      PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %d)",
                   static_cast<int>(least), static_cast<int>(n));
    }
    return false;
  }
  for (int64_t i = n - 1; i >= n - (after < 0 ? 0 : after); i--) f.push(std::move(items[static_cast<size_t>(i)]));
  if (after >= 0) {
    std::vector<Value> middle;
    for (int64_t i = n_before; i < n - after; i++) middle.push_back(items[static_cast<size_t>(i)].get());
    Owned list = x.make_list(middle.data(), static_cast<int64_t>(middle.size()));
    if (!list) return false;
    f.push(std::move(list));
  }
  for (int64_t i = n_before - 1; i >= 0; i--) f.push(std::move(items[static_cast<size_t>(i)]));
  return true;
}

bool Opcodes::match_kind(Executor& x, Frame& f, unsigned long flag) {
  x.prov.use_type(f.top());
  f.push(Owned::boolean((Py_TYPE(f.top().object)->tp_flags & flag) != 0));
  return true;
}

namespace {

// CPython words the errors of patterns that can't be.
bool has_duplicates(PyObject* tuple) {
  const Ref set = Ref::steal(PySet_New(tuple));
  if (!set) PyErr_Clear();
  return !set || PySet_GET_SIZE(set.get()) != PyTuple_GET_SIZE(tuple);
}

}  // namespace

// Stack: subject, keys; pushes the values or None.
bool Opcodes::match_keys(Executor& x, Frame& f) {
  const Value subject = f.top(2), keys = f.top();
  if (!PyDict_Check(subject.object)) x.fail("matching keys of a mapping that is no dict");
  std::vector<Value> values;
  if (has_duplicates(keys.object)) x.fail("a mapping pattern with a key twice");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys.object); i++) {
    const Value v = x.dict_get(subject, {PyTuple_GET_ITEM(keys.object, i), kNoSource});
    if (v.object == nullptr) {
      if (PyErr_Occurred()) return false;
      f.push(Owned::none());
      return true;
    }
    values.push_back(v);
  }
  Owned tuple = x.make_tuple(values.data(), static_cast<int64_t>(values.size()));
  if (!tuple) return false;
  f.push(std::move(tuple));
  return true;
}

// Stack: subject, class, names of keyword patterns; replaced by a tuple of attributes or None.
bool Opcodes::match_class(Executor& x, Frame& f, uint32_t n) {
  const Value subject = f.top(3), type = f.top(2), names = f.top();
  const Owned instance = x.call(builtin("isinstance"), {subject, type});
  if (!instance) return false;
  if (instance.ref.get() != Py_True) return replace(f, 3, Owned::none());
  std::vector<Owned> parts;
  if (n > 0) {
    static PyTypeObject* const kSelf[] = {&PyBool_Type, &PyByteArray_Type, &PyBytes_Type, &PyDict_Type, &PyFloat_Type,
                                          &PyFrozenSet_Type, &PyLong_Type, &PyList_Type, &PySet_Type, &PyUnicode_Type,
                                          &PyTuple_Type};
    static PyObject* const match_args = PyUnicode_InternFromString("__match_args__");
    bool self = false;
    for (PyTypeObject* t : kSelf) self = self || type.object == reinterpret_cast<PyObject*>(t);
    const Owned args = self ? Owned() : x.find_attribute(type, match_args);
    if (PyErr_Occurred()) return false;
    if (self && n == 1) {
      parts.push_back(Owned::borrow(subject));
    } else if (args && PyTuple_CheckExact(args.ref.get()) && PyTuple_GET_SIZE(args.ref.get()) >= static_cast<Py_ssize_t>(n)) {
      const Ref positional = Ref::steal(PyTuple_GetSlice(args.ref.get(), 0, static_cast<Py_ssize_t>(n)));
      const Ref all = positional ? Ref::steal(PySequence_Concat(positional.get(), names.object)) : Ref();
      if (!all || has_duplicates(all.get())) x.fail("a class pattern with an attribute twice");
      for (Py_ssize_t i = 0; i < static_cast<Py_ssize_t>(n); i++) {
        if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(args.ref.get(), i))) x.fail("a class whose __match_args__ are not strings");
        Owned part = x.find_attribute(subject, PyTuple_GET_ITEM(args.ref.get(), i));
        if (!part) return PyErr_Occurred() ? false : replace(f, 3, Owned::none());
        parts.push_back(std::move(part));
      }
    } else {
      x.fail("a class pattern with more positional patterns than the class takes");
    }
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.object); i++) {
    Owned part = x.find_attribute(subject, PyTuple_GET_ITEM(names.object, i));
    if (!part) return PyErr_Occurred() ? false : replace(f, 3, Owned::none());
    parts.push_back(std::move(part));
  }
  std::vector<Value> values;
  for (const Owned& part : parts) values.push_back(part.get());
  return replace(f, 3, x.make_tuple(values.data(), static_cast<int64_t>(values.size())));
}

}  // namespace braze::capture
