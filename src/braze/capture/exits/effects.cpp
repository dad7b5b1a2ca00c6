#include "braze/capture/exits/effects.h"

#include <algorithm>

#include "braze/capture/execute/executor.h"
#include "braze/capture/execute/missing.h"
#include "braze/capture/execute/types.h"
#include "braze/capture/exits/storage.h"
#include "braze/capture/guards/load.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

namespace {

// Of the native class, past what a class in Python puts over it.
PyObject* method_of(PyTypeObject* type, const char* name) {
  type = native_base(type);
  PyObject* found = _PyType_Lookup(type, interned(name));
  if (found == nullptr) unsupported(std::string(type->tp_name) + " has no " + name);
  return found;
}

bool is_native(const PyTypeObject* type, const char* name) { return std::strcmp(type->tp_name, name) == 0; }

// Classes in Python that derive from a dict, too: their own methods are frames of the trace.
bool can_change(PyObject* o) {
  const PyTypeObject* const base = native_base(Py_TYPE(o));
  return PyList_CheckExact(o) || PySet_CheckExact(o) || load::is_deque(o) || base == &PyDict_Type ||
         base == &PyODict_Type || is_native(base, "collections.defaultdict");
}

// A dict of the same class with the same pairs, in order.
Ref copy_of_dict(PyObject* dict) {
  PyTypeObject* const type = Py_TYPE(dict);
  const Ref nothing = Ref::steal(PyTuple_New(0));
  Ref copy = nothing ? Ref::steal(native_base(type)->tp_new(type, nothing.get(), nullptr)) : Ref();
  if (copy && is_native(native_base(type), "collections.defaultdict")) {
    const Ref factory = Ref::steal(PyObject_GetAttr(dict, interned("default_factory")));
    if (!factory || PyObject_GenericSetAttr(copy.get(), interned("default_factory"), factory.get()) < 0) return {};
  }
  const Ref keys = storage_keys(dict);
  if (!copy || !keys) return {};
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); i++) {
    PyObject* const key = PyList_GET_ITEM(keys.get(), i);
    PyObject* const value = PyDict_GetItemWithError(dict, key);
    if (value == nullptr) return {};
    const int rc = PyODict_Check(dict) ? PyODict_SetItem(copy.get(), key, value) : PyDict_SetItem(copy.get(), key, value);
    if (rc < 0) return {};
  }
  return copy;
}

}  // namespace

Changed* Executor::find_changed(PyObject* owner) {
  for (auto& c : changed_) {
    if (c->owner.get() == owner) return c.get();
  }
  return nullptr;
}

Changed& Executor::changed(Value v) {
  if (Changed* c = find_changed(v.object)) return *c;
  if (v.src == kNoSource || !can_change(v.object)) require_fresh(v, "changing");
  if (prov.sources()[v.src].kind == SourceKind::Dict) fail("changing the __dict__ of an existing object");
  require_no_shadow_over(*this, v);
  prov.use_type(v);
  changed_.push_back(std::make_unique<Changed>());
  changed_.back()->owner = Ref::borrow(v.object);
  changed_.back()->src = v.src;
  return *changed_.back();
}

void Executor::add_effect(PyObject* callable, const Arguments& a) {
  Effect e;
  e.callable = Ref::borrow(callable);
  e.kwnames = Ref::borrow(a.kwnames);
  for (int64_t i = 0; i < a.n; i++) e.arguments.push_back(Owned::borrow(a[i]));
  effects.push_back(std::move(e));
}

void Executor::make_payload(Changed& c) {
  PyObject* o = c.owner.get();
  const Value original{o, c.src};
  if (PyList_CheckExact(o)) {
    prov.use_length(original, PyList_GET_SIZE(o));
    std::vector<Value> items;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); i++) items.push_back(prov.item_of(original, PyList_GET_ITEM(o, i), i));
    c.payload = make_list(items.data(), static_cast<int64_t>(items.size())).ref;
  } else if (load::is_deque(o)) {
    const Py_ssize_t n = PyObject_Size(o);
    prov.use_length(original, n);
    const Ref maxlen = Ref::steal(PyObject_GetAttr(o, interned("maxlen")));
    if (!maxlen) fail("a deque without a maxlen");
    prov.use_constant(prov.found(maxlen.get(), prov.intern(SourceKind::Member, c.src, 0, interned("maxlen"))));
    c.payload = Ref::steal(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(Py_TYPE(o)), o, maxlen.get(), nullptr));
    prov.add_fresh(c.payload.get());
    for (Py_ssize_t i = 0; i < n; i++) {
      const Ref item = Ref::steal(PySequence_GetItem(o, i));
      prov.stored(c.payload.get(), prov.item_of(original, item.get(), i));
    }
  } else if (PyDict_Check(o)) {
    prov.use_keys(original);
    c.payload = PyDict_CheckExact(o) ? Ref::steal(PyDict_Copy(o)) : copy_of_dict(o);
    if (!c.payload) PyErr_Clear(), fail("a dict that can't be copied");
    prov.add_fresh(c.payload.get());
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(o, &position, &key, &value)) prov.stored(c.payload.get(), prov.value_of(original, key, value));
  } else {
    prov.use_set(original);
    c.payload = Ref::steal(PySet_New(o));
    prov.add_fresh(c.payload.get());
  }
  for (const size_t index : c.effects) {
    std::vector<PyObject*> arguments{c.payload.get()};
    const Effect& e = effects[index];
    for (size_t i = 1; i < e.arguments.size(); i++) {
      arguments.push_back(e.arguments[i].ref.get());
      prov.stored(c.payload.get(), e.arguments[i].get());
    }
    const Ref done = Ref::steal(PyObject_Vectorcall(e.callable.get(), arguments.data(), arguments.size(), nullptr));
    if (!done) {
      PyErr_Clear();
      fail("a change of an existing container that raises");
    }
  }
  c.entries.clear();
}

Value Executor::seen(Value v) {
  Changed* c = changed_.empty() ? nullptr : find_changed(v.object);
  if (c == nullptr) {
    require_no_shadow_over(*this, v);
    if (v.src == kNoSource || !load::is_deque(v.object)) return v;
    c = &changed(v);   // read through a payload, since its items can't be read one by one
  }
  if (!c->payload) make_payload(*c);
  return {c->payload.get(), kNoSource};
}

bool Executor::is_payload(PyObject* object) const {
  for (const auto& c : changed_) {
    if (c->payload.get() == object) return true;
  }
  return false;
}

Owned Executor::mutate(PyObject* method, const Arguments& a) {
  PyObject* target = a.objects[0];
  Changed* existing = nullptr;
  if (!prov.is_fresh(target)) {
    existing = &changed(a[0]);
    if (!existing->payload) make_payload(*existing);
    target = existing->payload.get();
  }
  std::vector<PyObject*> objects(a.objects, a.objects + a.n);
  objects[0] = target;
  for (int64_t i = 1; i < a.n; i++) prov.stored(target, a[i]);
  const Arguments on_target{objects.data(), a.srcs, a.n, a.kwnames};
  Owned r = call_natively(method, on_target);
  if (r && existing != nullptr) {   // what raises has changed nothing
    existing->effects.push_back(effects.size());
    add_effect(method, a);
  }
  if (r) r.src = prov.recall(target, r.ref.get());
  return r;
}

bool Executor::list_append(Value list, Value item) {
  if (!prov.is_fresh(list.object)) {
    Changed& c = changed(list);
    c.effects.push_back(effects.size());
    ArgumentList arguments;
    arguments.add(list);
    arguments.add(item);
    add_effect(method_of(Py_TYPE(list.object), "append"), arguments.get());
    if (!c.payload) return true;
    list = {c.payload.get(), kNoSource};
  }
  item = number(item);
  prov.stored(list.object, item);
  return PyList_Append(list.object, item.object) == 0;
}

bool Executor::dict_set(Value dict, Value key, Value value) {
  const Owned fixed = concrete(key);
  key = fixed.get();
  const bool in_python = is_hashed_in_python(*this, key.object);
  if (!in_python) {
    require_native_hash(*this, key);
    prov.use_key(key);
  }
  if (dict.src != kNoSource && prov.sources()[dict.src].kind == SourceKind::Dict && PyUnicode_CheckExact(key.object)) {
    const Src owner = prov.sources()[dict.src].base;   // an instance's __dict__: an attribute of the instance
    PyObject* object = prov.object_at(owner);
    if (prov.category(object) == Category::Identity) {
      Shadow& shadow = prov.shadow({object, owner});
      if (Shadow::Attribute* a = shadow.find(key.object); a != nullptr && a->value) return a->value = Owned::borrow(value), true;
      own_attribute({object, owner}, key.object);      // guards presence or absence
      shadow.attributes.push_back({Ref::borrow(key.object), Owned::borrow(value)});
      return true;
    }
  }
  if (!prov.is_fresh(dict.object)) {
    Changed& c = changed(dict);
    if (in_python) {   // the payload is made before the change, which is made by known hash
      const Value payload = seen(dict);
      value = number(value);
      prov.stored(payload.object, value);
      if (!store_in_python(payload, key, value)) return false;
    }
    c.effects.push_back(effects.size());
    ArgumentList arguments;
    for (const Value& v : {dict, key, value}) arguments.add(v);
    add_effect(method_of(Py_TYPE(dict.object), "__setitem__"), arguments.get());
    if (in_python) return true;
    if (!c.payload) {
      if (Changed::Entry* e = c.find(key.object)) {
        e->value = Owned::borrow(value);
      } else {
        c.entries.push_back({Ref::borrow(key.object), Owned::borrow(value)});
      }
      return true;
    }
    dict = {c.payload.get(), kNoSource};
  }
  value = number(value);
  prov.stored(dict.object, value);
  if (in_python) return store_in_python(dict, key, value);
  return (PyODict_Check(dict.object) ? PyODict_SetItem(dict.object, key.object, value.object)
                                     : PyDict_SetItem(dict.object, key.object, value.object)) == 0;
}

bool Executor::dict_delete(Value dict, Value key) {
  const Value present = dict_get(dict, key);
  if (present.object == nullptr) {
    if (!PyErr_Occurred()) raise_missing_key(key.object);
    return false;
  }
  prov.use_present(present);
  const bool in_python = is_hashed_in_python(*this, key.object);
  if (in_python && prov.is_fresh(dict.object)) return remove_in_python(dict, key);
  if (!prov.is_fresh(dict.object)) {
    Changed& c = changed(dict);
    if (in_python && !remove_in_python(seen(dict), key)) return false;
    c.effects.push_back(effects.size());
    ArgumentList arguments;
    arguments.add(dict);
    arguments.add(key);
    add_effect(method_of(Py_TYPE(dict.object), "__delitem__"), arguments.get());
    if (in_python) return true;
    if (!c.payload) {
      if (Changed::Entry* e = c.find(key.object)) {
        e->value = Owned();
      } else {
        c.entries.push_back({Ref::borrow(key.object), Owned()});
      }
      return true;
    }
    dict = {c.payload.get(), kNoSource};
  }
  return (PyODict_Check(dict.object) ? PyODict_DelItem(dict.object, key.object)
                                     : PyDict_DelItem(dict.object, key.object)) == 0;
}

Value Executor::dict_get(Value dict, Value key) {
  const Owned fixed = concrete(key);
  key = fixed.get();
  if (is_hashed_in_python(*this, key.object)) return dict_get_in_python(dict, key);
  require_native_hash(*this, key);
  prov.use_key(key);
  if (!prov.has_origin(dict)) fail("a dict of unknown origin");
  prov.use_type(dict);
  require_no_shadow_over(*this, dict);
  if (dict.src != kNoSource && prov.has_shadows() && prov.sources()[dict.src].kind == SourceKind::Dict &&
      PyUnicode_CheckExact(key.object)) {
    const Src owner = prov.sources()[dict.src].base;
    if (Shadow* shadow = prov.find_shadow(prov.object_at(owner))) {
      if (Shadow::Attribute* a = shadow->find(key.object)) return a->value.get();
    }
  }
  if (!changed_.empty()) {
    if (Changed* c = find_changed(dict.object)) {
      if (c->payload) {
        dict = {c->payload.get(), kNoSource};
      } else if (Changed::Entry* e = c->find(key.object)) {
        return e->value.get();
      }
    }
  }
  const uint64_t before = frames_run_natively();
  PyObject* value = nullptr;
  {
    const RefuseFrames refuse;
    Py_hash_t hash = 0;   // of a tensor: its __hash__ is Python code
    const bool known = !PyUnicode_CheckExact(key.object) && object::native_hash(key.object, hash);
    value = known ? _PyDict_GetItem_KnownHash(dict.object, key.object, hash) : PyDict_GetItemWithError(dict.object, key.object);
  }
  if (frames_run_natively() != before) PyErr_Clear(), fail("keys of a dict with equal hashes, compared by Python code");
  if (value != nullptr) return prov.value_of(dict, key, value);
  if (PyErr_Occurred()) return {};
  prov.use_key_absent(dict, key);
  return {};
}

// A module whose parameters are exchanged for a call and put back (torch.func.functional_call) has not changed. What an
// effect of another kind does may look at anything.
void Executor::mark_superseded() {
  std::vector<const Changed*> of(effects.size(), nullptr);
  for (const auto& c : changed_)
    for (const size_t i : c->effects) of[i] = c.get();
  struct Assigned {
    const Changed* dict;   // nullptr: an assignment before the last one is seen, too
    PyObject* key;
    size_t last;
  };
  std::vector<Assigned> assigned;
  for (size_t i = effects.size(); i-- > 0;) {
    const Changed* c = of[i];
    if (c == nullptr) {
      for (Assigned& a : assigned) a.dict = nullptr;
      continue;
    }
    const Effect& e = effects[i];
    if (!PyDict_CheckExact(c->owner.get()) || e.callable.get() != method_of(&PyDict_Type, "__setitem__")) {
      for (Assigned& a : assigned)
        if (a.dict == c) a.dict = nullptr;
      continue;
    }
    PyObject* const key = e.arguments[1].ref.get();
    const auto found = std::find_if(assigned.begin(), assigned.end(), [&](const Assigned& a) {
      return a.dict == c && object::keys_match(a.key, key) == object::Match::Yes;
    });
    PyObject* const before = PyDict_GetItemWithError(c->owner.get(), key);
    PyErr_Clear();
    if (before == nullptr) continue;   // the first assignment makes the key's place
    if (found == assigned.end()) {
      assigned.push_back({c, key, i});
      continue;
    }
    prov.use_present(prov.value_of({c->owner.get(), c->src}, key, before));
    effects[i].superseded = true;
  }
  for (const Assigned& a : assigned) {
    const Changed* c = of[a.last];
    const Value value = effects[a.last].arguments[2].get();
    PyObject* const before = PyDict_GetItemWithError(c->owner.get(), a.key);
    PyErr_Clear();
    const Category kind = prov.category(value.object);
    if (a.dict == nullptr || before != value.object || (kind != Category::Tensor && kind != Category::Identity)) continue;
    prov.use_present(prov.value_of({c->owner.get(), c->src}, a.key, before));
    effects[a.last].superseded = true;
  }
}

// Objects that were changed through one path and read through another must not become one object later.
void Executor::guard_aliases() {
  for (auto& c : changed_) prov.use_distinct_from_others({c->owner.get(), c->src});
  for (auto& s : prov.shadows()) prov.use_distinct_from_others({s->owner.get(), s->src});
}

}  // namespace braze::capture
