// Models of list, tuple, dict, set and OrderedDict: constructors and methods. Items keep their sources.
#include "braze/capture/execute/missing.h"
#include "braze/capture/execute/types.h"
#include "braze/capture/natives/arity.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

void require_native_hash(Executor& x, Value key) {
  switch (x.prov.category(key.object)) {
    case Category::Constant: case Category::Referent: case Category::Method: return;
    case Category::Tuple:
      if (PyTuple_Check(key.object)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key.object); i++) {
          require_native_hash(x, {PyTuple_GET_ITEM(key.object, i), kNoSource});
        }
      }
      return;
    case Category::Symbolic: x.fail("a symbolic number as the key of a dict");
    case Category::Identity: case Category::Tensor: case Category::Unset: {
      PyTypeObject* type = Py_TYPE(key.object);
      x.prov.use_as_key(key.object);
      if (type->tp_hash == PyBaseObject_Type.tp_hash && type->tp_richcompare == PyBaseObject_Type.tp_richcompare) return;
      if (x.prov.category(key.object) == Category::Tensor) return;   // hashed and found by identity
      if (type->tp_hash == PyObject_HashNotImplemented) return;      // raises
      x.fail(std::string("a key that is hashed or compared by Python code (") + type->tp_name + ")");
    }
  }
}

bool add_to_set(Executor& x, Value set, Value item) {
  const Owned fixed = x.concrete(item);
  item = fixed.get();
  require_native_hash(x, item);
  x.prov.use_constant(item);
  if (x.prov.category(item.object) == Category::Tuple) x.prov.use_deep(item);
  if (!x.prov.is_fresh(set.object)) {
    const PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(set.object));
    if (type != reinterpret_cast<PyObject*>(&PySet_Type)) x.require_fresh(set, "changing");
    static PyObject* const add = _PyType_Lookup(&PySet_Type, interned("add"));
    ArgumentList arguments;
    arguments.add(set);
    arguments.add(item);
    return static_cast<bool>(x.mutate(add, arguments.get()));
  }
  return PySet_Add(set.object, item.object) == 0;
}

void copy_sources(Executor& x, Value from, PyObject* to) {
  from = x.seen(from);
  if (PyDict_Check(from.object)) {
    x.prov.use_keys(from);
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(from.object, &position, &key, &value)) x.prov.stored(to, x.prov.value_of(from, key, value));
    return;
  }
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(from.object);
  if (from.src != kNoSource) x.prov.use_length(from, n);
  for (Py_ssize_t i = 0; i < n; i++) {
    x.prov.stored(to, x.prov.item_of(from, PySequence_Fast_GET_ITEM(from.object, i), i));
  }
}

bool for_each_pair_of(Executor& x, Value mapping, PairFunction f, void* state) {
  mapping = x.seen(mapping);
  if (PyDict_Check(mapping.object)) {
    PyObject* keys_method = _PyType_Lookup(Py_TYPE(mapping.object), interned("keys"));
    if (keys_method == nullptr || !PyFunction_Check(keys_method)) {
      if (!x.prov.has_origin(mapping)) x.fail("a dict of unknown origin");
      x.prov.use_keys(mapping);
      std::vector<std::pair<Ref, Ref>> pairs;
      if (!storage_pairs(mapping.object, pairs)) return false;
      for (const auto& [key, value] : pairs) {
        const Value at{key.get(), x.prov.recall(mapping.object, key.get())};
        if (!f(state, at, x.prov.value_of(mapping, at, value.get()))) return false;
      }
      return true;
    }
  }
  const Owned method = x.get_attribute(mapping, interned("keys"));
  const Owned keys = method ? x.call(method.get(), {}) : Owned();
  if (!keys) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
      PyErr_Format(PyExc_TypeError, "'%.200s' object is not a mapping", Py_TYPE(mapping.object)->tp_name);
    }
    return false;
  }
  return x.for_each(keys.get(), [&](Value key) {
    const Owned value = x.subscript(mapping, key);
    return value && f(state, key, value.get());
  });
}

namespace {

using List = std::vector<Owned>;

bool collect(Executor& x, Value iterable, List& out) {
  return x.for_each(iterable, [&](Value v) { return out.push_back(Owned::borrow(v)), true; });
}

Owned sequence_of(Executor& x, const List& items, bool list) {
  std::vector<Value> values;
  for (const Owned& o : items) values.push_back(o.get());
  const auto n = static_cast<int64_t>(values.size());
  return list ? x.make_list(values.data(), n) : x.make_tuple(values.data(), n);
}

// What iterates by frames of the trace is iterated by another one, so that all of them can be cut.
bool iterated_by_frames(Executor& x, const char* function, const Arguments& a, Owned& out) {
  const After after = x.take_after();
  if (after == After::None || a.n != 1 || a.n_keywords() > 0) return false;
  if (!PyGen_CheckExact(a.objects[0]) && !is_python_class(Py_TYPE(a.objects[0]))) return false;
  x.expect(after);
  out = x.call({polyfill(function).get(), kNoSource}, {a[0]});
  return true;
}

Owned model_list(Executor& x, Value, const Arguments& a) {
  List items;
  if (Owned made; iterated_by_frames(x, "list_of", a, made)) return made;
  require_arity("list", a, 0, 1);
  if ((a.n == 1 && !collect(x, a[0], items))) return {};
  return sequence_of(x, items, true);
}

Owned model_tuple(Executor& x, Value, const Arguments& a) {
  require_arity("tuple", a, 0, 1);
  if (Owned made; iterated_by_frames(x, "tuple_of", a, made)) return made;
  if (a.n == 1 && PyTuple_CheckExact(a.objects[0])) return Owned::borrow(a[0]);
  List items;
  if (a.n == 1 && !collect(x, a[0], items)) return {};
  return sequence_of(x, items, false);
}

Owned set_of(Executor& x, const Arguments& a, bool frozen) {
  require_arity(frozen ? "frozenset" : "set", a, 0, 1);
  const Ref set = Ref::steal(PySet_New(nullptr));
  x.prov.add_fresh(set.get());
  if (a.n == 1 && !x.for_each(a[0], [&](Value v) { return add_to_set(x, {set.get(), kNoSource}, v); })) return {};
  if (frozen) return Owned::steal(PyFrozenSet_New(set.get()));
  return Owned(set);
}

Owned model_set(Executor& x, Value, const Arguments& a) {
  if (Owned made; iterated_by_frames(x, "set_of", a, made)) return made;
  return set_of(x, a, false);
}
Owned model_frozenset(Executor& x, Value, const Arguments& a) { return set_of(x, a, true); }

// dict.update and the constructor: a mapping or pairs, then keywords.
bool update(Executor& x, Value dict, const Arguments& a, int64_t first) {
  if (a.n_positional() > first) {
    const Value other = a[first];
    PyObject* keys = _PyType_Lookup(Py_TYPE(other.object), interned("keys"));
    if (PyDict_Check(other.object) || keys != nullptr) {
      if (!for_each_pair(x, other, [&](Value k, Value v) { return x.dict_set(dict, k, v); })) return false;
    } else {
      const bool ok = x.for_each(other, [&](Value pair) {
        List parts;
        if (!collect(x, pair, parts)) return false;
        if (parts.size() != 2) {
          PyErr_Format(PyExc_ValueError, "dictionary update sequence element has length %zu; 2 is required", parts.size());
          return false;
        }
        return x.dict_set(dict, parts[0].get(), parts[1].get());
      });
      if (!ok) return false;
    }
  }
  for (int64_t k = 0; k < a.n_keywords(); k++) {
    if (!x.dict_set(dict, {PyTuple_GET_ITEM(a.kwnames, k), kNoSource}, a[a.n_positional() + k])) return false;
  }
  return true;
}

Owned model_dict(Executor& x, Value, const Arguments& a) {
  const Ref dict = Ref::steal(PyDict_New());
  x.prov.add_fresh(dict.get());
  return update(x, {dict.get(), kNoSource}, a, 0) ? Owned(dict) : Owned();
}

Owned model_ordered_dict(Executor& x, Value, const Arguments& a) {
  const Ref dict = Ref::steal(PyODict_New());
  x.prov.add_fresh(dict.get());
  return update(x, {dict.get(), kNoSource}, a, 0) ? Owned(dict) : Owned();
}

Owned dict_init(Executor& x, Value, const Arguments& a) {
  x.require_fresh(a[0], "changing");
  return update(x, a[0], a, 1) ? Owned::none() : Owned();
}

Owned dict_get(Executor& x, Value, const Arguments& a) {
  const Value v = x.dict_get(a[0], a[1]);
  if (v.object != nullptr) return Owned::borrow(v);
  if (PyErr_Occurred()) return {};
  return a.n > 2 ? Owned::borrow(a[2]) : Owned::none();
}

Owned dict_view(Executor& x, Value callable, const Arguments& a) {
  if (!x.prov.has_origin(a[0])) x.fail("a dict of unknown origin");
  x.prov.use_type(a[0]);
  const Value dict = x.seen(a[0]);
  Owned view = Owned::steal(PyObject_Vectorcall(callable.object, &dict.object, 1, nullptr));
  if (view) x.prov.add_fresh(view.ref.get());
  if (view) x.prov.stored(view.ref.get(), dict);
  return view;
}

Owned dict_contains(Executor& x, Value, const Arguments& a) {
  const Value v = x.dict_get(a[0], a[1]);
  if (v.object == nullptr && PyErr_Occurred()) return {};
  if (v.object != nullptr) x.prov.use_present(v);
  return Owned::boolean(v.object != nullptr);
}

Owned dict_getitem(Executor& x, Value, const Arguments& a) {
  const Value v = x.dict_get(a[0], a[1]);
  if (v.object == nullptr && !PyErr_Occurred()) raise_missing_key(a.objects[1]);
  return v.object == nullptr ? Owned() : Owned::borrow(v);
}

Owned dict_setitem(Executor& x, Value, const Arguments& a) {
  return x.dict_set(a[0], a[1], a[2]) ? Owned::none() : Owned();
}

Owned dict_setdefault(Executor& x, Value, const Arguments& a) {
  const Value v = x.dict_get(a[0], a[1]);
  if (v.object != nullptr) return Owned::borrow(v);
  if (PyErr_Occurred()) return {};
  const Value value = a.n > 2 ? a[2] : Value{Py_None, kNoSource};
  return x.dict_set(a[0], a[1], value) ? Owned::borrow(value) : Owned();
}

Owned dict_pop(Executor& x, Value, const Arguments& a) {
  const Value v = x.dict_get(a[0], a[1]);
  if (v.object == nullptr) {
    if (PyErr_Occurred()) return {};
    if (a.n > 2) return Owned::borrow(a[2]);
    raise_missing_key(a.objects[1]);
    return {};
  }
  Owned out = Owned::borrow(v);
  return x.dict_delete(a[0], a[1]) ? out : Owned();
}

Owned dict_delitem(Executor& x, Value, const Arguments& a) { return x.dict_delete(a[0], a[1]) ? Owned::none() : Owned(); }

Owned dict_update(Executor& x, Value, const Arguments& a) { return update(x, a[0], a, 1) ? Owned::none() : Owned(); }

Owned dict_copy(Executor& x, Value callable, const Arguments& a) {
  x.prov.use_type(a[0]);
  if (Py_TYPE(a.objects[0]) != &PyDict_Type && Py_TYPE(a.objects[0]) != &PyODict_Type) x.fail("a copy of a dict's subclass");
  const Value from = x.seen(a[0]);
  const Ref copy = Ref::steal(PyObject_Vectorcall(callable.object, &from.object, 1, nullptr));
  if (!copy) return {};
  x.prov.add_fresh(copy.get());
  copy_sources(x, from, copy.get());
  return Owned(copy);
}

// Methods that change their object and otherwise touch only arguments.
Owned changing(Executor& x, Value callable, const Arguments& a) {
  for (int64_t i = 1; i < a.n; i++) x.prov.use_constant(a[i]);
  return x.mutate(callable.object, a);
}

// The same for methods that compare items with an argument.
Owned changing_with_comparison(Executor& x, Value callable, const Arguments& a) {
  x.prov.use_deep(x.seen(a[0]));
  return changing(x, callable, a);
}

Owned list_append(Executor& x, Value, const Arguments& a) {
  if (a.n != 2) return PyErr_Format(PyExc_TypeError, "list.append() takes exactly one argument (%d given)",
                                    static_cast<int>(a.n - 1)), Owned();
  return x.list_append(a[0], a[1]) ? Owned::none() : Owned();
}

Owned list_extend(Executor& x, Value, const Arguments& a) {
  if (!PyList_CheckExact(a.objects[1]) && !PyTuple_CheckExact(a.objects[1])) {   // it may look at the list meanwhile
    return x.for_each(a[1], [&](Value v) { return x.list_append(a[0], v); }) ? Owned::none() : Owned();
  }
  List items;
  if (!collect(x, a[1], items)) return {};
  for (const Owned& item : items) {
    if (!x.list_append(a[0], item.get())) return {};
  }
  return Owned::none();
}

Owned list_copy(Executor& x, Value, const Arguments& a) {
  List items;
  return collect(x, a[0], items) ? sequence_of(x, items, true) : Owned();
}

Owned list_init(Executor& x, Value, const Arguments& a) {
  if (a.n > 2) x.fail("list.__init__ with several arguments");
  static PyObject* const clear = _PyType_Lookup(&PyList_Type, interned("clear"));
  if (x.length(a[0]) > 0 && !x.mutate(clear, {a.objects, a.srcs, 1, nullptr})) return {};
  return a.n == 2 ? list_extend(x, {}, a) : Owned::none();
}

Owned sequence_index(Executor& x, Value, const Arguments& a, bool count) {
  int64_t found = -1, n = 0, total = 0;
  const bool ok = x.for_each(a[0], [&](Value item) {
    if (found < 0 || count) {
      Owned equal = x.is_same(a[1], item) == 1 ? Owned::boolean(true) : x.compare(Py_EQ, item, a[1]);
      const int t = equal ? x.truth(equal.get()) : -1;
      if (t < 0) return false;
      if (t == 1) total++;
      if (t == 1 && found < 0) found = n;
    }
    n++;
    return true;
  });
  if (!ok) return {};
  if (count) return Owned::steal(PyLong_FromLongLong(total));
  if (found < 0) return PyErr_Format(PyExc_ValueError, "%R is not in list", a.objects[1]), Owned();
  return Owned::steal(PyLong_FromLongLong(found));
}

Owned list_index(Executor& x, Value c, const Arguments& a) {
  if (a.n != 2) x.fail("list.index with bounds");
  return sequence_index(x, c, a, false);
}
Owned list_count(Executor& x, Value c, const Arguments& a) { return sequence_index(x, c, a, true); }

Owned container_len(Executor& x, Value, const Arguments& a) {
  const Value v = x.seen(a[0]);
  const int64_t n = PyObject_Size(v.object);
  if (n < 0) return {};
  x.prov.use_length(v, n);
  return Owned::steal(PyLong_FromLongLong(n));
}

// __iter__ of the builtin, called past a subclass's own.
Owned container_iter(Executor& x, Value callable, const Arguments& a) {
  if (!x.prov.is_fresh(a.objects[0])) x.fail("iteration over a subclass of a builtin container through super()");
  Ref it = Ref::steal(PyObject_Vectorcall(callable.object, a.objects, 1, nullptr));
  return x.fresh(it);
}

Owned tuple_getitem(Executor& x, Value callable, const Arguments& a) {
  x.prov.use_deep(a[1]);
  x.prov.use_type(a[0]);
  if (a[0].src != kNoSource) x.prov.use_length(a[0], PyObject_Size(a.objects[0]));
  Owned r = x.call_natively(callable.object, a);
  if (r && a[0].src != kNoSource) {
    if (!PyLong_Check(a.objects[1])) x.fail("a slice of a subclass of list or tuple");
    Py_ssize_t i = PyLong_AsSsize_t(a.objects[1]);
    if (i < 0) i += PyObject_Size(a.objects[0]);
    return Owned::borrow(x.prov.item_of(a[0], r.ref.get(), i));
  }
  if (r) r.src = x.prov.recall(a.objects[0], r.ref.get());
  return r;
}

Owned set_method(Executor& x, Value callable, const Arguments& a) {   // union and the like: a new set
  std::vector<PyObject*> objects;
  for (int64_t i = 0; i < a.n; i++) {
    const Value v = x.seen(a[i]);
    x.prov.use_deep(v);
    objects.push_back(v.object);
  }
  return x.fresh_native(x.call_natively(callable.object, {objects.data(), a.srcs, a.n, nullptr}).ref);
}

Owned set_add(Executor& x, Value, const Arguments& a) {
  require_arity("add", a, 2, 2);
  return add_to_set(x, a[0], a[1]) ? Owned::none() : Owned();
}

Owned set_update(Executor& x, Value, const Arguments& a) {
  for (int64_t i = 1; i < a.n; i++) {
    if (!x.for_each(a[i], [&](Value v) { return add_to_set(x, a[0], v); })) return {};
  }
  return Owned::none();
}

Owned str_join(Executor& x, Value, const Arguments& a) {
  List items;
  x.prov.use_constant(a[0]);
  if (!collect(x, a[1], items)) return {};
  const Ref list = Ref::steal(PyList_New(0));
  for (const Owned& item : items) {
    x.prov.use_constant(item.get());
    PyList_Append(list.get(), item.ref.get());
  }
  return Owned::steal(PyUnicode_Join(a.objects[0], list.get()));
}

Owned dict_fromkeys(Executor& x, Value, const Arguments& a) {   // (class, keys, value)
  if (a.objects[0] != reinterpret_cast<PyObject*>(&PyDict_Type)) x.fail("fromkeys of a dict's subclass");
  const Ref dict = Ref::steal(PyDict_New());
  x.prov.add_fresh(dict.get());
  const Value value = a.n > 2 ? a[2] : Value{Py_None, kNoSource};
  if (!x.for_each(a[1], [&](Value key) { return x.dict_set({dict.get(), kNoSource}, key, value); })) return {};
  return Owned(dict);
}

Owned model_slice(Executor& x, Value, const Arguments& a) {
  require_arity("slice", a, 1, 3);
  const Value none{Py_None, kNoSource};
  const Value parts[] = {a.n == 1 ? none : a[0], a.n == 1 ? a[0] : a[1], a.n == 3 ? a[2] : none};
  const Ref slice = Ref::steal(PySlice_New(parts[0].object, parts[1].object, parts[2].object));
  if (!slice) return {};
  for (const Value& v : parts) x.prov.stored(slice.get(), v);
  return Owned(slice);
}

// deque: iterable and maxlen.
Owned deque_init(Executor& x, Value, const Arguments& a) {
  List items;
  Value maxlen = a.keyword("maxlen");
  if (a.n_positional() > 2) maxlen = a[2];
  if (maxlen.object != nullptr) x.prov.use_constant(maxlen);
  const Value none{Py_None, kNoSource};
  if (a.n_positional() > 1 && !collect(x, a[1], items)) return {};
  x.require_fresh(a[0], "changing");
  const Owned list = sequence_of(x, items, true);
  copy_sources(x, list.get(), a.objects[0]);
  const Ref args = Ref::steal(PyTuple_Pack(2, list.ref.get(), maxlen.object == nullptr ? none.object : maxlen.object));
  return Py_TYPE(a.objects[0])->tp_init(a.objects[0], args.get(), nullptr) < 0 ? Owned() : Owned::none();
}

// append, appendleft, insert: what they store keeps its source.
Owned deque_append(Executor& x, Value callable, const Arguments& a) {
  if (a.n == 3) x.prov.use_constant(a[1]);
  return x.mutate(callable.object, a);
}

Owned deque_extend(Executor& x, Value callable, const Arguments& a) {
  List items;
  require_arity("extend", a, 2, 2);
  if (!collect(x, a[1], items)) return {};
  const Owned list = sequence_of(x, items, true);
  ArgumentList arguments;
  arguments.add(a[0]);
  arguments.add(list.get());
  Owned done = x.mutate(callable.object, arguments.get());
  if (done) copy_sources(x, list.get(), x.seen(a[0]).object);
  return done;
}

Owned defaultdict_init(Executor& x, Value, const Arguments& a) {
  x.require_fresh(a[0], "changing");
  if (a.n_positional() > 1) {
    x.prov.stored(a.objects[0], a[1]);
    if (PyObject_SetAttr(a.objects[0], interned("default_factory"), a.objects[1]) < 0) return {};
  }
  return update(x, a[0], a, 2) ? Owned::none() : Owned();
}

Owned defaultdict_missing(Executor& x, Value, const Arguments& a) {   // (dict, key)
  const Owned factory = x.get_attribute(a[0], interned("default_factory"));
  if (!factory) return {};
  if (factory.ref.get() == Py_None) {
    x.prov.use_constant(factory.get());
    raise_missing_key(a.objects[1]);
    return {};
  }
  const Owned value = x.call(factory.get(), {});
  return value && x.dict_set(a[0], a[1], value.get()) ? value : Owned();
}

// Read-only views: of immutable tables (the parameters of a signature) where they stand in existing objects.
Owned dict_proxy(Executor& x, Value callable, const Arguments& a) {
  if (!x.prov.has_origin(a[0])) x.fail("a mapping of unknown origin");
  x.prov.use_identity(a[0]);
  for (int64_t i = 1; i < a.n; i++) x.prov.use_constant(a[i]);
  Owned r = x.call_natively(callable.object, a);
  if (!r) return r;
  if (PyDictViewSet_Check(r.ref.get()) || PyDictValues_Check(r.ref.get())) {
    x.prov.add_derived(viewed_dict(r.ref.get()));
  }
  if (!x.prov.is_fresh(r.ref.get())) x.prov.add_derived(r.ref.get());
  return r;
}

}  // namespace

const std::vector<ModelRow>& container_models() {
  static const std::vector<ModelRow> rows = {
      {"builtins.list", model_list, true}, {"builtins.tuple", model_tuple, true}, {"builtins.dict", model_dict},
      {"builtins.set", model_set, true}, {"builtins.frozenset", model_frozenset},
      {"collections.OrderedDict", model_ordered_dict}, {"builtins.slice", model_slice},
      {"builtins.dict.get", dict_get}, {"builtins.dict.keys", dict_view}, {"builtins.dict.values", dict_view},
      {"builtins.dict.items", dict_view}, {"builtins.dict.__contains__", dict_contains},
      {"builtins.dict.__getitem__", dict_getitem}, {"builtins.dict.__setitem__", dict_setitem},
      {"builtins.dict.__delitem__", dict_delitem}, {"builtins.dict.__len__", container_len},
      {"builtins.dict.__iter__", container_iter}, {"builtins.dict.__init__", dict_init},
      {"builtins.dict.setdefault", dict_setdefault}, {"builtins.dict.pop", dict_pop},
      {"builtins.dict.popitem", changing}, {"builtins.dict.update", dict_update}, {"builtins.dict.copy", dict_copy},
      {"builtins.dict.clear", changing}, {"builtins.dict.fromkeys", dict_fromkeys},
      {"collections.OrderedDict.keys", dict_view}, {"collections.OrderedDict.values", dict_view},
      {"collections.OrderedDict.items", dict_view}, {"collections.OrderedDict.__setitem__", dict_setitem},
      {"collections.OrderedDict.__delitem__", dict_delitem}, {"collections.OrderedDict.__init__", dict_init},
      {"collections.OrderedDict.setdefault", dict_setdefault}, {"collections.OrderedDict.pop", dict_pop},
      {"collections.OrderedDict.popitem", changing}, {"collections.OrderedDict.update", dict_update},
      {"collections.OrderedDict.copy", dict_copy}, {"collections.OrderedDict.clear", changing},
      {"collections.OrderedDict.move_to_end", changing}, {"collections.OrderedDict.__iter__", container_iter},
      {"builtins.list.append", list_append}, {"builtins.list.extend", list_extend}, {"builtins.list.copy", list_copy},
      {"builtins.list.insert", changing}, {"builtins.list.pop", changing}, {"builtins.list.clear", changing},
      {"builtins.list.reverse", changing}, {"builtins.list.remove", changing_with_comparison},
      {"builtins.list.index", list_index}, {"builtins.list.count", list_count}, {"builtins.tuple.index", list_index},
      {"builtins.tuple.count", list_count}, {"builtins.list.__init__", list_init},
      {"builtins.list.__len__", container_len}, {"builtins.tuple.__len__", container_len},
      {"builtins.list.__iter__", container_iter}, {"builtins.tuple.__iter__", container_iter},
      {"builtins.list.__getitem__", tuple_getitem}, {"builtins.tuple.__getitem__", tuple_getitem},
      {"builtins.list.__setitem__", changing}, {"builtins.list.__delitem__", changing},
      {"builtins.set.add", set_add}, {"builtins.set.discard", changing}, {"builtins.set.remove", changing},
      {"builtins.set.clear", changing}, {"builtins.set.pop", changing}, {"builtins.set.update", set_update},
      {"builtins.set.union", set_method}, {"builtins.set.intersection", set_method},
      {"builtins.set.difference", set_method}, {"builtins.set.symmetric_difference", set_method},
      {"builtins.set.issubset", set_method}, {"builtins.set.issuperset", set_method},
      {"builtins.set.isdisjoint", set_method}, {"builtins.set.copy", set_method},
      {"builtins.set.__contains__", set_method}, {"builtins.set.__len__", container_len},
      {"builtins.str.join", str_join},
      {"collections.deque.__init__", deque_init}, {"collections.deque.append", deque_append},
      {"collections.deque.appendleft", deque_append}, {"collections.deque.extend", deque_extend},
      {"collections.deque.extendleft", deque_extend}, {"collections.deque.pop", changing},
      {"collections.deque.popleft", changing}, {"collections.deque.rotate", changing},
      {"collections.deque.clear", changing}, {"collections.deque.reverse", changing},
      {"collections.deque.insert", deque_append}, {"collections.deque.remove", changing_with_comparison},
      {"collections.deque.index", list_index}, {"collections.deque.count", list_count},
      {"collections.deque.__len__", container_len}, {"collections.defaultdict.__init__", defaultdict_init},
      {"collections.defaultdict.__missing__", defaultdict_missing},
      {"types.MappingProxyType.get", dict_proxy}, {"types.MappingProxyType.keys", dict_proxy},
      {"types.MappingProxyType.values", dict_proxy}, {"types.MappingProxyType.items", dict_proxy},
  };
  return rows;
}

}  // namespace braze::capture
