// iter() and next(): real iterators, with the place that each item came from beside them.
#include "braze/capture/execute/executor.h"
#include "braze/capture/execute/types.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

namespace {

Owned with_iteration(Executor& x, PyObject* iterator, Iteration::Kind kind, Value container, Ref keys = {}) {
  const Ref it = Ref::steal(iterator);
  if (!it) return {};
  auto state = std::make_unique<Iteration>();
  state->kind = kind;
  state->container = container;
  state->keys = std::move(keys);
  x.prov.add_fresh(it.get()).iteration = std::move(state);
  return Owned(it);
}

Owned iterate_dict(Executor& x, PyObject* iterator, Iteration::Kind kind, Value dict) {
  const Ref it = Ref::steal(iterator);
  if (!it) return {};
  if (!x.prov.has_origin(dict)) x.fail("a dict of unknown origin");
  x.prov.use_keys(dict);
  const Ref keys = storage_keys(dict.object);
  if (!keys) return {};
  return with_iteration(x, Ref(it).release(), kind, dict, Ref::steal(PyList_AsTuple(keys.get())));
}

bool has_python(PyTypeObject* type, const char* name) {
  PyObject* found = _PyType_Lookup(type, interned(name));
  return found != nullptr && PyFunction_Check(found);
}

}  // namespace

Owned Executor::iterate(Value v) {
  const After after = take_after();
  v = seen(v);
  PyObject* o = v.object;
  PyTypeObject* type = Py_TYPE(o);
  if (PyGen_CheckExact(o)) {
    if (!prov.is_fresh(o)) fail("a generator that was made before the call");
    return Owned::borrow(v);
  }
  if (has_python(type, "__iter__")) {
    const Method method = special(v, interned("__iter__"));
    expect(after);
    Owned it = call_method(method, {});
    return it && is_iterator(it.ref.get()) ? it : Owned();
  }
  switch (prov.category(o)) {
    case Category::Constant: prov.use_constant(v); return fresh(Ref::steal(PyObject_GetIter(o)));
    case Category::Tensor: fail("iteration over a tensor");
    case Category::Symbolic: case Category::Method: break;
    case Category::Referent:
      prov.use_identity(v);
      if (PyType_Check(o)) return fresh(Ref::steal(PyObject_GetIter(o)));   // members of an enum
      break;
    case Category::Tuple:
      if (PyTuple_Check(o)) {
        prov.use_length(v, PyTuple_GET_SIZE(o));
        return with_iteration(*this, PyObject_GetIter(o), Iteration::Kind::Sequence, v);
      }
      if (PyAnySet_Check(o)) break;
      prov.use_deep(v);
      return fresh(Ref::steal(PyObject_GetIter(o)));
    case Category::Identity: case Category::Unset: break;
  }
  if (PyList_Check(o)) {
    if (!prov.has_origin(v)) fail("a list of unknown origin");
    prov.use_length(v, PyList_GET_SIZE(o));
    return with_iteration(*this, PyObject_GetIter(o), Iteration::Kind::Sequence, v);
  }
  if (PyDict_Check(o)) return iterate_dict(*this, PyObject_GetIter(o), Iteration::Kind::Keys, v);
  if (PyDictKeys_Check(o) || PyDictValues_Check(o) || PyDictItems_Check(o)) {
    PyObject* dict = viewed_dict(o);
    const auto kind = PyDictKeys_Check(o)     ? Iteration::Kind::Keys
                      : PyDictValues_Check(o) ? Iteration::Kind::Values
                                              : Iteration::Kind::Items;
    return iterate_dict(*this, PyObject_GetIter(o), kind, {dict, prov.recall(o, dict)});
  }
  if (PyAnySet_Check(o)) {
    prov.use_set(v);
    Py_ssize_t position = 0;
    PyObject* member = nullptr;
    Py_hash_t hash = 0;
    while (_PySet_NextEntry(o, &position, &member, &hash)) {
      const Category c = prov.category(member);
      if (c != Category::Constant && c != Category::Tuple) fail("the order of a set that depends on addresses");
    }
    return fresh(Ref::steal(PyObject_GetIter(o)));
  }
  if (_PyType_Lookup(type, interned("__iter__")) == nullptr && has_python(type, "__getitem__")) {
    return call(Value{polyfill("sequence_iterator").get(), kNoSource}, {v});
  }
  if (PyIter_Check(o)) {   // an iterator already
    if (!prov.is_fresh(o) && !has_python(type, "__next__")) fail("an iterator that was made before the call");
    return Owned::borrow(v);
  }
  if (type->tp_iter == nullptr && !PySequence_Check(o)) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not iterable", type->tp_name);
    return {};
  }
  if (prov.is_fresh(o)) return with_iteration(*this, PyObject_GetIter(o), Iteration::Kind::Native, v);
  if (type == &PyDictProxy_Type && v.src == kNoSource) return fresh(Ref::steal(PyObject_GetIter(o)));
  fail(std::string("iteration over the native type ") + type->tp_name);
}

Owned Executor::next(Value iterator) {
  const After after = take_after();
  PyObject* it = iterator.object;
  PyTypeObject* type = Py_TYPE(it);
  if (PyGen_CheckExact(it)) {
    bool finished = false;
    expect(after);
    Owned value = send(iterator, {Py_None, kNoSource}, finished);
    return finished ? Owned() : value;
  }
  Fresh* record = prov.find_fresh(it);
  if (record != nullptr && record->iteration) {
    Iteration& state = *record->iteration;
    if (state.container.src != kNoSource && has_changed(state.container.object)) {
      fail("an existing container that is changed while it is iterated");
    }
    const Ref item = Ref::steal(type->tp_iternext(it));
    if (!item) {
      state.exhausted = true;
      if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_StopIteration)) PyErr_Clear();
      return {};
    }
    const int64_t at = state.position++;
    switch (state.kind) {
      case Iteration::Kind::Sequence: return Owned::borrow(prov.item_of(state.container, item.get(), at));
      case Iteration::Kind::Keys: return Owned(item);
      case Iteration::Kind::Values:
        return Owned::borrow(prov.value_of(state.container, PyTuple_GET_ITEM(state.keys.get(), at), item.get()));
      case Iteration::Kind::Items: {
        const Value pair[] = {{PyTuple_GET_ITEM(item.get(), 0), kNoSource},
                              prov.value_of(state.container, PyTuple_GET_ITEM(item.get(), 0), PyTuple_GET_ITEM(item.get(), 1))};
        return make_tuple(pair, 2);
      }
      case Iteration::Kind::Native: break;
    }
    return Owned(item, prov.recall(state.container.object, item.get()));
  }
  if (has_python(type, "__next__")) {
    const Method m = special(iterator, interned("__next__"));
    expect(after);
    Owned value = call_method(m, {});
    if (!value && PyErr_ExceptionMatches(PyExc_StopIteration)) PyErr_Clear();
    return value;
  }
  if (record == nullptr) {
    if (type->tp_iternext == nullptr) {
      PyErr_Format(PyExc_TypeError, "'%.200s' object is not an iterator", type->tp_name);
      return {};
    }
    fail("an iterator that was made before the call");
  }
  const uint64_t before = frames_run_natively();
  const Ref item = Ref::steal(type->tp_iternext(it));
  if (frames_run_natively() != before) fail("a native iterator that calls Python code");
  if (!item) {
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_StopIteration)) PyErr_Clear();
    return {};
  }
  const Src src = prov.recall(it, item.get());
  if (src == kNoSource && prov.category(item.get()) == Category::Identity && !prov.is_fresh(item.get())) {
    prov.add_derived(item.get());
  }
  return Owned(item, src);
}

}  // namespace braze::capture
