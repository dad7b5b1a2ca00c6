// Provenance of a trace: where objects came from, which were made during the trace, what has been guarded.
//
// Invariants. A value with a source stood somewhere reachable before the call. An object is mutable during the trace
// only if it is fresh: registered here when it was made, and kept alive until the trace ends, so addresses are never
// reused. Guards are added when a value is used, not when it is moved about.
//
// Objects with an identity of their own (instances, lists, dicts, tensors, cells) have one canonical source: a second
// path to one gets a guard that both paths lead to the same object. Other sourced values (constants, functions,
// tuples) that are stored in a fresh object are remembered with it, by pointer.
#pragma once

#include <unordered_map>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "braze/capture/guards/guards.h"
#include "braze/capture/pointer_map.h"
#include "braze/capture/value.h"

namespace braze::capture {

enum class Category : uint8_t {
  Unset,
  Constant,   // immutable, compared by value: numbers, strings, None, enums, dtypes
  Referent,   // compared by identity: functions, classes, builtins, modules, code
  Tuple,      // tuples and frozensets: immutable, but what they hold may not be
  Method,     // bound methods
  Symbolic,   // symbolic numbers of the tensor domain: derived, never guarded here
  Tensor,
  Identity,   // everything else
};

// How far a modelled iterator has come; a real CPython iterator stands beside it.
struct Iteration {
  enum class Kind : uint8_t { Native, Sequence, Keys, Values, Items } kind = Kind::Native;
  Value container;          // kept alive by the iterator
  Ref keys;                 // dicts: the keys in order
  int64_t position = 0;
  bool exhausted = false;
};

struct Fresh {
  Ref object;
  std::vector<Value> items;               // sourced values stored in it that have no canonical source
  std::unique_ptr<Iteration> iteration;   // iterators
  std::vector<Src> slots;                 // generators: sources of the frame's slots
  Value function;                         // of generators and functions: their function; of a __dict__: its owner
  int64_t shares = -1;                    // the record that holds this one's items: an instance's __dict__
  uint64_t birth = 0;                     // the instruction before which the trace could end, when it was made
};

// Attributes of an existing object as the traced program left them.
struct Shadow {
  Ref owner;
  Src src = kNoSource;
  struct Attribute {
    Ref name;
    Owned value;   // empty: deleted
  };
  std::vector<Attribute> attributes;

  Attribute* find(PyObject* name);
};

class Provenance {
 public:
  Provenance(SourceTable& sources, GuardSet& guards) : sources_(sources), guards_(guards) {}
  // Forgets the generators that were suspended, then everything else.
  ~Provenance();
  Provenance(const Provenance&) = delete;
  Provenance& operator=(const Provenance&) = delete;

  SourceTable& sources() { return sources_; }
  GuardSet& guards() { return guards_; }
  Category category(PyObject* object);
  Category category_of_type(PyTypeObject* type);

  // A value read at a source: gives identity objects their canonical source.
  Value found(PyObject* object, Src src);
  Src intern(SourceKind kind, Src base, int64_t index = 0, PyObject* key = nullptr) {
    return sources_.intern(kind, base, index, key);
  }
  // The canonical source of an object that lives as long as its guards do: classes, modules.
  Src constant_source(PyObject* object);
  // The object last found at a source.
  PyObject* object_at(Src src) const { return src < objects_.size() ? objects_[src] : nullptr; }

  // --- fresh objects
  Fresh& add_fresh(PyObject* object);
  Fresh* find_fresh(PyObject* object) { return fresh_.find(object) ? &fresh_records_[*fresh_.find(object)] : nullptr; }
  bool is_fresh(PyObject* object) { return fresh_.find(object) != nullptr; }
  // `dict` is the storage of the fresh `owner`.
  void add_fresh_storage(PyObject* dict, PyObject* owner);
  // A value was stored in a fresh object.
  void stored(PyObject* container, Value item);
  // The source of something read from a container that has none.
  Src recall(PyObject* container, PyObject* item);
  Value item_of(Value container, PyObject* item, int64_t index);       // list, tuple
  Value value_of(Value dict, Value key, PyObject* value);              // dict storage
  Value value_of(Value dict, PyObject* key, PyObject* value) { return value_of(dict, Value{key, recall(dict.object, key)}, value); }
  // True if reading the object needs no guard or has a source to guard.
  bool has_origin(Value v);
  // A native made the object out of guarded values: it may be read, like all that it holds, but not changed, since
  // the native may keep it.
  void add_derived(PyObject* object) { if (!known_.find(object)) derived_[object] = now(), kept_.push_back(Ref::borrow(object)); }
  bool is_derived(PyObject* object) const { return derived_.find(object) != nullptr; }

  // The instruction before which the trace could end, when the object was made; 0: not known.
  uint64_t birth_of(PyObject* object);
  void set_clock(const uint64_t* clock) { clock_ = clock; }

  // --- guards; each is added once
  void use_type(Value v);
  void use_identity(Value v);
  void use_constant(Value v);       // constants and referents
  void use_deep(Value v);           // also what builtin containers hold; aborts at what can't be guarded
  void use_length(Value v, int64_t n);
  void use_truth(Value v, bool truth);
  void use_keys(Value dict);        // exact keys in exact order
  void use_absent(Value owner, PyObject* name);
  void use_key_absent(Value dict, Value key);
  // A key of a dict, as far as its hash and its equality go: constants by value, objects by the path that leads to them.
  void use_key(Value key);
  void use_empty_slot(Value owner, PyObject* name);
  void use_present(Value v);
  // Special methods that the class and its metaclass lack; where there is one, its own guard says which.
  void use_slots(PyTypeObject* type);
  void use_type_attribute(PyTypeObject* type, PyObject* name, PyObject* found);
  // A raw class attribute, guarded.
  Value class_attribute(PyTypeObject* type, PyObject* name, PyObject* found);
  // As it was before the call.
  Value class_attribute_as_found(PyTypeObject* type, PyObject* name, PyObject* found);
  void assume_constant(Src src) { flags(src) |= kConstant | kType | kIdentity; }
  bool is_guarded_constant(Src src) { return (flags(src) & (kConstant | kIdentity)) != 0; }
  void use_distinct(Value a, Value b);
  void use_set(Value set);          // exact members
  void use_distinct_from_others(Value v);
  // The traced program tells objects apart by identity, as keys or by id(): those seen as several must stay several.
  void use_as_key(PyObject* object) {
    if (const Src* src = known_.find(object)) keys_.push_back(*src);
  }
  const std::vector<Src>& keys() const { return keys_; }
  // An int made of an address: it may only be compared with its like or be a key of a fresh dict.
  void add_address(const Ref& number) { addresses_[number.get()] = true, kept_.push_back(number); }
  void reject_address(PyObject* number) const {
    if (addresses_.size() > 0 && addresses_.find(number) != nullptr) unsupported("id(): addresses differ between calls");
  }

  // --- shadows
  bool has_shadows() const { return !shadows_.empty(); }
  Shadow* find_shadow(PyObject* owner);
  Shadow& shadow(Value owner);
  std::vector<std::unique_ptr<Shadow>>& shadows() { return shadows_; }
  // Classes have shadows too: plain values of attributes that no descriptor and no special method is.
  void note_class_shadow(PyObject* name) { changed_class_names_.push_back(Ref::borrow(name)); }
  // Some class has a changed attribute of this name.
  bool is_changed_class_name(PyObject* name) const;

 private:
  enum Flag : uint8_t { kType = 1, kConstant = 2, kIdentity = 4, kLength = 8, kTruth = 16, kKeys = 32, kAbsent = 64, kSame = 128 };
  uint8_t& flags(Src src);
  Src key_source(Value key);              // kNoSource: a key with something fresh, which no existing dict can have
  Src value_by_position(Value dict, PyObject* key);
  uint64_t now() const { return clock_ == nullptr ? 0 : *clock_; }
  bool once(Src src, Flag flag);
  void reject_changed_storage(Value v);   // shadows are not seen by bulk reads of a __dict__

  SourceTable& sources_;
  GuardSet& guards_;
  const uint64_t* clock_ = nullptr;
  PointerMap<Category> categories_;
  PointerMap<Src> known_;            // identity objects: canonical source
  PointerMap<Src> constants_;
  PointerMap<bool> slots_;           // types whose slots are guarded
  PointerMap<uint64_t> derived_;     // birth, as in Fresh
  PointerMap<bool> addresses_;
  int depth_ = 0;                    // of the value that use_deep is at, in others
  PointerMap<uint32_t> fresh_;       // index in fresh_records_
  std::vector<Fresh> fresh_records_;
  std::vector<PyObject*> objects_;   // by source; borrowed: existing objects are kept by what holds them
  std::vector<Ref> kept_;            // existing objects whose address is a key here
  std::vector<uint8_t> flags_;
  struct TypeAttribute {
    PyTypeObject* type;
    PyObject* name;
    bool operator==(const TypeAttribute&) const = default;
  };
  struct TypeAttributeHash {
    size_t operator()(const TypeAttribute& a) const {
      return (reinterpret_cast<uintptr_t>(a.type) * 0x9e3779b97f4a7c15u) ^ (reinterpret_cast<uintptr_t>(a.name) >> 4);
    }
  };
  std::unordered_map<TypeAttribute, Src, TypeAttributeHash> type_attributes_;
  std::vector<std::unique_ptr<Shadow>> shadows_;
  std::vector<Ref> changed_class_names_;
  std::vector<Src> keys_;            // existing objects used as keys, perhaps repeated
};

}  // namespace braze::capture
