#include "braze/capture/provenance.h"

#include <algorithm>
#include <cstring>

#include "braze/capture/execute/types.h"
#include "braze/capture/exits/frame_hook.h"
#include "braze/capture/guards/constant.h"
#include "braze/capture/guards/object.h"

namespace braze::capture {

namespace {

bool is_enum_type(PyTypeObject* type) {
  static PyObject* const meta = [] {
    const Ref module = Ref::steal(PyImport_ImportModule("enum"));
    PyObject* found = module ? PyObject_GetAttrString(module.get(), "EnumMeta") : nullptr;
    PyErr_Clear();
    return found;
  }();
  return meta != nullptr && PyType_IsSubtype(Py_TYPE(type), reinterpret_cast<PyTypeObject*>(meta));
}

// torch.SymInt and its like stand for sizes that the tensor domain keeps symbolic and guards by itself.
bool is_symbolic_type(PyTypeObject* type) {
  return std::strcmp(type->tp_name, "SymInt") == 0 || std::strcmp(type->tp_name, "SymFloat") == 0 ||
         std::strcmp(type->tp_name, "SymBool") == 0;
}

// Compiled regular expressions never change.
PyTypeObject* pattern_type() {
  static auto* const type = [] {
    const Ref module = Ref::steal(PyImport_ImportModule("re"));
    PyObject* const found = module ? PyObject_GetAttrString(module.get(), "Pattern") : nullptr;
    PyErr_Clear();
    return reinterpret_cast<PyTypeObject*>(found);
  }();
  return type;
}

bool is_referent_type(PyTypeObject* type) {
  static PyTypeObject* const kTypes[] = {
      &PyFunction_Type, &PyCFunction_Type, &PyModule_Type, &PyCode_Type, &PyMethodDescr_Type, &PyWrapperDescr_Type,
      &PyGetSetDescr_Type, &PyMemberDescr_Type, &PyClassMethodDescr_Type, &PyProperty_Type, &PyStaticMethod_Type,
      &PyClassMethod_Type, method_wrapper_type(), &PyCMethod_Type};
  for (PyTypeObject* t : kTypes) {
    if (type == t) return true;
  }
  return PyType_IsSubtype(type, &PyType_Type) || PyType_IsSubtype(type, &PyModule_Type);
}

bool is_mutable_class(PyTypeObject* type) {
  return PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && !PyType_HasFeature(type, Py_TPFLAGS_IMMUTABLETYPE);
}

// Keys that guards reach by a path: objects, and tuples that hold more than plain constants.
bool is_object_key(Category c, PyObject* key) {
  return c == Category::Identity || c == Category::Tensor ||
         (c == Category::Tuple && PyTuple_Check(key) && !is_value_constant(key));
}

}  // namespace

Shadow::Attribute* Shadow::find(PyObject* name) {
  for (size_t i = attributes.size(); i-- > 0;) {
    Attribute& a = attributes[i];
    if (a.name.get() == name || PyUnicode_Compare(a.name.get(), name) == 0) return &a;
  }
  return nullptr;
}

Provenance::~Provenance() {
  for (Fresh& fresh : fresh_records_) {
    if (PyGen_CheckExact(fresh.object.get())) forget_generator(fresh.object.get());
  }
}

Category Provenance::category(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  Category& c = categories_[type];
  if (c == Category::Unset) {
    if (domain().is_tensor(object)) {
      c = Category::Tensor;
    } else if (domain().is_constant(object)) {
      c = Category::Constant;
    } else {
      c = category_of_type(type);
    }
  }
  return c;
}

Category Provenance::category_of_type(PyTypeObject* type) {
  static PyTypeObject* const kConstants[] = {&PyLong_Type, &PyFloat_Type, &PyBool_Type, &PyUnicode_Type, &PyBytes_Type,
                                             &PyComplex_Type, &PyRange_Type, Py_TYPE(Py_None), Py_TYPE(Py_Ellipsis),
                                             Py_TYPE(Py_NotImplemented)};
  for (PyTypeObject* t : kConstants) {
    if (type == t) return Category::Constant;
  }
  if (type == &PyTuple_Type || type == &PyFrozenSet_Type || type == &PySlice_Type ||
      (PyType_IsSubtype(type, &PyTuple_Type) && type->tp_dictoffset == 0)) {
    return Category::Tuple;
  }
  if (type == &PyMethod_Type) return Category::Method;
  if (type == pattern_type()) return Category::Referent;
  if (is_referent_type(type)) return Category::Referent;
  if (is_enum_type(type)) return Category::Constant;
  if (is_symbolic_type(type)) return Category::Symbolic;
  return Category::Identity;
}

Value Provenance::found(PyObject* object, Src src) {
  if (src == kNoSource) return {object, src};
  if (objects_.size() <= src) objects_.resize(src + 64, nullptr);
  objects_[src] = object;
  const Category c = category(object);
  if (c != Category::Identity && c != Category::Tensor) return {object, src};
  if (is_fresh(object)) return {object, kNoSource};
  Src& known = known_[object];
  if (known == kNoSource) {
    known = src;
    kept_.push_back(Ref::borrow(object));
  } else if (known != src && once(src, kSame)) {
    guards_.same(known, src);
  }
  return {object, known};
}

Src Provenance::constant_source(PyObject* object) {
  Src& src = constants_[object];
  if (src == kNoSource) {
    src = sources_.intern(SourceKind::Constant, kNoSource, 0, nullptr, object);
    flags(src) |= kType | kConstant | kIdentity;
    if (objects_.size() <= src) objects_.resize(src + 64, nullptr);
    objects_[src] = object;
  }
  return src;
}

Fresh& Provenance::add_fresh(PyObject* object) {
  if (const uint32_t* index = fresh_.find(object)) return fresh_records_[*index];
  fresh_[object] = static_cast<uint32_t>(fresh_records_.size());
  fresh_records_.push_back({});
  fresh_records_.back().object = Ref::borrow(object);
  fresh_records_.back().birth = now();
  return fresh_records_.back();
}

uint64_t Provenance::birth_of(PyObject* object) {
  if (const Fresh* fresh = find_fresh(object)) return fresh->birth;
  const uint64_t* derived = derived_.find(object);
  return derived == nullptr ? 0 : *derived;
}

void Provenance::add_fresh_storage(PyObject* dict, PyObject* owner) {
  add_fresh(owner);
  if (is_fresh(dict)) return;
  Fresh& record = add_fresh(dict);
  record.shares = *fresh_.find(owner);
  record.function = {owner, kNoSource};
}

void Provenance::stored(PyObject* container, Value item) {
  if (item.src == kNoSource || item.object == nullptr) return;
  const Category c = category(item.object);
  if (c == Category::Identity || c == Category::Tensor) return;   // known_ has it
  if (flags(item.src) & (kConstant | kIdentity)) {
    if (c == Category::Constant) return;                          // guarded: as good as a literal
  }
  Fresh& own = add_fresh(container);
  Fresh& fresh = own.shares < 0 ? own : fresh_records_[static_cast<size_t>(own.shares)];
  for (const Value& v : fresh.items) {
    if (v.object != item.object) continue;
    if (v.src == item.src) return;
    // Two sources for one pointer, of which the first is read back: they have to stay the same.
    if (c == Category::Constant) {
      use_constant(item);
    } else if (once(item.src, kSame)) {
      guards_.same(v.src, item.src);
    }
    return;
  }
  fresh.items.push_back(item);
}

Src Provenance::recall(PyObject* container, PyObject* item) {
  if (const Src* known = known_.find(item)) return *known;
  if (is_derived(container)) {
    const Category c = category(item);
    if ((c == Category::Identity || c == Category::Tuple) && !is_fresh(item) && !is_derived(item)) add_derived(item);
    return kNoSource;
  }
  const Fresh* fresh = find_fresh(container);
  if (fresh == nullptr) return kNoSource;
  if (fresh->shares >= 0) fresh = &fresh_records_[static_cast<size_t>(fresh->shares)];
  for (const Value& v : fresh->items) {
    if (v.object == item) return v.src;
  }
  return kNoSource;
}

Value Provenance::item_of(Value container, PyObject* item, int64_t index) {
  if (container.src != kNoSource) return found(item, intern(SourceKind::Item, container.src, index));
  return {item, recall(container.object, item)};
}

// The keys are guarded by their positions.
Src Provenance::value_by_position(Value dict, PyObject* key) {
  if (PyODict_Check(dict.object)) unsupported("an OrderedDict with keys that are hashed by Python code");
  Py_ssize_t position = 0, i = 0;
  PyObject *other = nullptr, *value = nullptr;
  for (; PyDict_Next(dict.object, &position, &other, &value); i++) {
    if (other == key) return intern(SourceKind::DictValue, dict.src, i);
  }
  unsupported("an existing dict with a key of unknown origin");
}

Value Provenance::value_of(Value dict, Value key, PyObject* value) {
  if (dict.src == kNoSource) return {value, recall(dict.object, value)};
  const Source& s = sources_[dict.src];
  if (s.kind == SourceKind::Dict) return found(value, intern(SourceKind::Attr, s.base, 0, key.object));
  if (is_object_key(category(key.object), key.object)) {
    if (Py_hash_t hash = 0; !object::native_hash(key.object, hash)) return found(value, value_by_position(dict, key.object));
    const Src key_src = key_source(key);
    if (key_src == kNoSource) unsupported("an existing dict with a key of unknown origin");
    return found(value, intern(SourceKind::Lookup, dict.src, static_cast<int64_t>(key_src)));
  }
  return found(value, intern(SourceKind::Key, dict.src, 0, key.object));
}

void Provenance::use_key(Value key) {
  switch (category(key.object)) {
    case Category::Constant:
    case Category::Referent: return use_constant(key);
    case Category::Identity:
    case Category::Tensor:
      use_type(key);
      return use_as_key(key.object);
    case Category::Tuple: {
      if (!is_object_key(Category::Tuple, key.object)) return use_deep(key);
      const Py_ssize_t n = PyTuple_GET_SIZE(key.object);
      use_length(key, n);
      for (Py_ssize_t i = 0; i < n; i++) use_key(item_of(key, PyTuple_GET_ITEM(key.object, i), i));
      return;
    }
    case Category::Method:
    case Category::Symbolic:
    case Category::Unset: unsupported(std::string("a key of a dict of type ") + Py_TYPE(key.object)->tp_name);
  }
}

Src Provenance::key_source(Value key) {
  const Category c = category(key.object);
  if (c == Category::Identity || c == Category::Tensor) {
    if (const Src* known = known_.find(key.object)) return *known;
    if (is_fresh(key.object) || c == Category::Tensor) return kNoSource;
    unsupported("an existing dict with a key of unknown origin");
  }
  if (!is_object_key(c, key.object)) return constant_source(key.object);
  const Py_ssize_t n = PyTuple_GET_SIZE(key.object);
  const Ref numbers = Ref::steal(PyTuple_New(n));
  for (Py_ssize_t i = 0; i < n; i++) {
    const Src element = key_source(item_of(key, PyTuple_GET_ITEM(key.object, i), i));
    if (element == kNoSource) return kNoSource;
    PyTuple_SET_ITEM(numbers.get(), i, PyLong_FromUnsignedLong(element));
  }
  return intern(SourceKind::KeyTuple, kNoSource, 0, numbers.get());
}

bool Provenance::has_origin(Value v) {
  if (v.src != kNoSource) return true;
  const Category c = category(v.object);
  return (c != Category::Identity && c != Category::Tensor) || is_fresh(v.object) || is_derived(v.object);
}

uint8_t& Provenance::flags(Src src) {
  if (flags_.size() <= src) flags_.resize(src + 256, 0);
  return flags_[src];
}

bool Provenance::once(Src src, Flag flag) {
  uint8_t& f = flags(src);
  if (f & flag) return false;
  f = static_cast<uint8_t>(f | flag);
  return true;
}

void Provenance::use_slots(PyTypeObject* type) {
  for (; is_mutable_class(type) && !slots_[type]; type = Py_TYPE(type)) {
    slots_[type] = true;
    guards_.type_slots(type);
  }
}

void Provenance::use_type(Value v) {
  use_slots(Py_TYPE(v.object));
  if (v.src == kNoSource || (flags(v.src) & (kType | kConstant | kIdentity))) return;
  if (!once(v.src, kType)) return;
  if (sources_[v.src].kind == SourceKind::Dict) return;   // always a dict
  guards_.type(v.src, Py_TYPE(v.object));
}

void Provenance::use_identity(Value v) {
  if (v.src != kNoSource && !(flags(v.src) & kConstant) && once(v.src, kIdentity)) guards_.identity(v.src, v.object);
}

void Provenance::use_constant(Value v) {
  if (v.src == kNoSource) return;
  const Category c = category(v.object);
  if (c == Category::Referent) return use_identity(v);
  if (c != Category::Constant) return;
  if (flags(v.src) & kIdentity) return;
  if (once(v.src, kConstant)) guards_.constant(v.src, v.object);
}

void Provenance::reject_changed_storage(Value v) {
  if (shadows_.empty() || v.src == kNoSource || sources_[v.src].kind != SourceKind::Dict) return;
  if (find_shadow(object_at(sources_[v.src].base)) != nullptr) {
    unsupported("all attributes of an object that the call has changed");
  }
}

void Provenance::use_length(Value v, int64_t n) {
  reject_changed_storage(v);
  use_type(v);
  if (v.src != kNoSource && once(v.src, kLength)) guards_.length(v.src, n);
}

void Provenance::use_truth(Value v, bool truth) {
  reject_changed_storage(v);
  use_type(v);
  if (v.src != kNoSource && !(flags(v.src) & (kLength | kConstant | kKeys)) && once(v.src, kTruth)) {
    guards_.truth(v.src, truth);
  }
}

void Provenance::use_keys(Value dict) {
  reject_changed_storage(dict);
  use_type(dict);
  if (dict.src == kNoSource || !once(dict.src, kKeys)) return;
  const Ref keys = storage_keys(dict.object);
  if (!keys) PyErr_Clear(), unsupported("keys of a dict that can't be listed");
  const auto by_path = [&](PyObject* key) { return is_object_key(category(key), key); };
  PyObject** const first = PySequence_Fast_ITEMS(keys.get());
  PyObject** const last = first + PyList_GET_SIZE(keys.get());
  if (std::any_of(first, last, by_path)) {   // which guards don't hold
    if (once(dict.src, kLength)) guards_.length(dict.src, last - first);
    for (PyObject** key = first; key != last; ++key) {
      const Value v = found(*key, intern(SourceKind::DictKey, dict.src, key - first));
      use_key(v);
    }
    return;
  }
  const Ref tuple = Ref::steal(PyList_AsTuple(keys.get()));
  guards_.keys(dict.src, tuple.get());
}

void Provenance::use_absent(Value owner, PyObject* name) {
  if (owner.src == kNoSource) return;
  const Src src = intern(SourceKind::Attr, owner.src, 0, name);
  if (once(src, kAbsent)) guards_.absent(owner.src, name);
}

void Provenance::use_key_absent(Value dict, Value key) {
  if (dict.src == kNoSource || (flags(dict.src) & kKeys)) return;
  if (is_object_key(category(key.object), key.object)) {
    const Src key_src = key_source(key);
    if (key_src != kNoSource) guards_.lookup_absent(dict.src, key_src);
    return;
  }
  const Source& s = sources_[dict.src];
  if (s.kind == SourceKind::Dict && category(object_at(s.base)) == Category::Identity) {
    return use_absent({object_at(s.base), s.base}, key.object);
  }
  const Src src = intern(SourceKind::Key, dict.src, 0, key.object);
  if (once(src, kAbsent)) guards_.key_absent(dict.src, key.object);
}

void Provenance::use_empty_slot(Value owner, PyObject* name) {
  if (owner.src == kNoSource) return;
  use_type(owner);
  const Src src = intern(SourceKind::Member, owner.src, 0, name);
  if (once(src, kAbsent)) guards_.empty_slot(owner.src, name);
}

void Provenance::use_present(Value v) {
  if (v.src == kNoSource) return;
  if (category(v.object) == Category::Constant && v.object == Py_None) return use_constant(v);
  use_type(v);
}

bool Provenance::is_changed_class_name(PyObject* name) const {
  for (const Ref& changed : changed_class_names_) {
    if (changed.get() == name || PyUnicode_Compare(changed.get(), name) == 0) return true;
  }
  return false;
}

Value Provenance::class_attribute(PyTypeObject* type, PyObject* name, PyObject* object) {
  if (!changed_class_names_.empty() && is_changed_class_name(name)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); i++) {
      PyObject* const base = PyTuple_GET_ITEM(type->tp_mro, i);
      Shadow* const shadow = find_shadow(base);
      if (Shadow::Attribute* a = shadow == nullptr ? nullptr : shadow->find(name)) {
        class_attribute_as_found(type, name, object);   // the guard: no class before this one gains the name
        return a->value.get();
      }
      PyObject* const own = reinterpret_cast<PyTypeObject*>(base)->tp_dict;
      if (own != nullptr && PyDict_Contains(own, name) == 1) break;
    }
  }
  return class_attribute_as_found(type, name, object);
}

Value Provenance::class_attribute_as_found(PyTypeObject* type, PyObject* name, PyObject* object) {
  Src& src = type_attributes_[{type, name}];
  if (src == kNoSource) {
    if (!is_mutable_class(type)) {
      src = object == nullptr ? intern(SourceKind::TypeAttr, constant_source(reinterpret_cast<PyObject*>(type)), 0, name)
                              : constant_source(object);
    } else {
      const Src base = constant_source(reinterpret_cast<PyObject*>(type));
      src = intern(SourceKind::TypeAttr, base, 0, name);
      guards_.type_attribute(base, type, name, object);
      use_slots(type);
      if (object != nullptr) use_slots(Py_TYPE(object));   // whether it is a descriptor
    }
    assume_constant(src);
  }
  return object == nullptr ? Value{} : found(object, src);
}

void Provenance::use_type_attribute(PyTypeObject* type, PyObject* name, PyObject* object) {
  class_attribute(type, name, object);
}

void Provenance::use_distinct(Value a, Value b) {
  if (a.src != kNoSource && b.src != kNoSource) guards_.distinct(a.src, b.src);
}

// The guard holds a copy: the set itself may change.
void Provenance::use_set(Value v) {
  if (v.src == kNoSource || !once(v.src, kConstant)) return;
  const Ref copy = Ref::steal(PyFrozenSet_CheckExact(v.object) ? PyFrozenSet_New(v.object) : PySet_New(v.object));
  if (!copy || Py_TYPE(copy.get()) != Py_TYPE(v.object) || !is_value_constant(copy.get())) {
    PyErr_Clear();
    unsupported("the members of an existing set that are no plain constants");
  }
  guards_.constant(v.src, copy.get());
}

void Provenance::use_distinct_from_others(Value v) {
  std::vector<Value> others;
  known_.for_each([&](const void* object, Src src) {
    auto* o = static_cast<PyObject*>(const_cast<void*>(object));
    if (o != v.object && Py_TYPE(o) == Py_TYPE(v.object) && src != kNoSource && (flags(src) & kType)) {
      others.push_back({o, src});
    }
  });
  for (const Value& other : others) use_distinct(v, other);
}

void Provenance::use_deep(Value v) {
  struct Depth {
    int& depth;
    explicit Depth(int& d) : depth(d) { depth++; }
    ~Depth() { depth--; }
  } const depth(depth_);
  constexpr int kDeepest = 200;
  if (depth_ > kDeepest) unsupported("a deeply nested value inside the arguments of a native function");
  reject_address(v.object);
  switch (category(v.object)) {
    case Category::Constant:
    case Category::Referent: return use_constant(v);
    case Category::Symbolic: return;
    case Category::Tensor: unsupported("a tensor inside the arguments of a native function");
    case Category::Method: {
      auto* m = reinterpret_cast<PyMethodObject*>(v.object);
      use_type(v);
      const auto part = [&](PyObject* object, int64_t index) {
        return v.src == kNoSource ? Value{object, recall(v.object, object)}
                                  : found(object, intern(SourceKind::Method, v.src, index));
      };
      use_deep(part(m->im_self, 0));
      return use_deep(part(m->im_func, 1));
    }
    case Category::Tuple: {
      if (PySlice_Check(v.object)) {
        auto* s = reinterpret_cast<PySliceObject*>(v.object);
        if (v.src != kNoSource) return guards_.constant(v.src, v.object);
        for (PyObject* part : {s->start, s->stop, s->step}) use_deep({part, recall(v.object, part)});
        return;
      }
      if (!PyTuple_Check(v.object)) {
        if (v.src != kNoSource && once(v.src, kConstant)) guards_.constant(v.src, v.object);
        return;
      }
      if (v.src != kNoSource && (flags(v.src) & kConstant)) return;
      const Py_ssize_t n = PyTuple_GET_SIZE(v.object);
      if (v.src != kNoSource && is_value_constant(v.object)) {   // one guard for the whole tuple
        if (once(v.src, kConstant)) guards_.constant(v.src, v.object);
        return;
      }
      use_length(v, n);
      for (Py_ssize_t i = 0; i < n; i++) use_deep(item_of(v, PyTuple_GET_ITEM(v.object, i), i));
      return;
    }
    case Category::Identity: {
      if (PyList_CheckExact(v.object)) {
        if (!has_origin(v)) unsupported("a list of unknown origin");
        const Py_ssize_t n = PyList_GET_SIZE(v.object);
        use_length(v, n);
        for (Py_ssize_t i = 0; i < n; i++) use_deep(item_of(v, PyList_GET_ITEM(v.object, i), i));
        return;
      }
      if (PyDict_Check(v.object) && has_origin(v)) {
        use_keys(v);
        PyObject *key = nullptr, *value = nullptr;
        Py_ssize_t position = 0;
        while (PyDict_Next(v.object, &position, &key, &value)) use_deep(value_of(v, key, value));
        return;
      }
      if (PySet_CheckExact(v.object) && v.src != kNoSource) return use_set(v);
      if (is_fresh(v.object)) {
        const Fresh& fresh = *find_fresh(v.object);
        const std::vector<Value> items = fresh.items;
        for (const Value& item : items) use_deep(item);
        return;
      }
      if (is_derived(v.object)) return;   // made of guarded values
      unsupported(std::string("an object of type ") + Py_TYPE(v.object)->tp_name +
                  " inside the arguments of a native function");
    }
    case Category::Unset: break;
  }
}

Shadow* Provenance::find_shadow(PyObject* owner) {
  for (auto& s : shadows_) {
    if (s->owner.get() == owner) return s.get();
  }
  return nullptr;
}

Shadow& Provenance::shadow(Value owner) {
  if (Shadow* s = find_shadow(owner.object)) return *s;
  shadows_.push_back(std::make_unique<Shadow>());
  Shadow& s = *shadows_.back();
  s.owner = Ref::borrow(owner.object);
  s.src = owner.src;
  // Another object of this type must not turn out to be this one under other guards: every pair that the trace saw
  // as two is guarded when the trace ends.
  return s;
}

}  // namespace braze::capture
