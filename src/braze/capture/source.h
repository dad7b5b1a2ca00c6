// Sources: where a Python value came from, as a path from the call's arguments, so that a guard can fetch it again.
//
// A Src is an index in the trace's SourceTable; 0 means "no source": made during the trace, or derived from
// guarded values. Sources are hash-consed: one path has one Src, so guards on it are emitted once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "braze/capture/hash_index.h"
#include "braze/capture/ref.h"

namespace braze::capture {

using Src = uint32_t;
inline constexpr Src kNoSource = 0;

enum class SourceKind : uint8_t {
  None,
  Callee,         // the function or module that was compiled
  Arg,            // index: positional argument of the call, then keyword arguments in order
  Global,         // base: a function; key: the name in its __globals__, else in its __builtins__
  Closure,        // base: a function; index: free variable number; key: its name, if known; the cell's contents
  ClosureCell,    // base: a function; index, key as above; the cell itself
  FuncDefaults,   // base: a function; __defaults__
  FuncKwDefaults, // base: a function; __kwdefaults__
  FuncCode,       // base: a function; __code__
  Attr,           // base, key: instance attribute, read from the object's own dict or inline values
  Member,         // base, key: slot or C member descriptor (getset without Python code)
  TypeAttr,       // base: an object or a class; key: found by MRO lookup on the class (the raw class attribute)
  Type,           // base: type(base)
  Dict,           // base: base.__dict__ of a module or class (never materialised for instances)
  Item,           // base: exact list or tuple (or subclass thereof); index
  Key,            // base: exact dict (or subclass, storage read directly); key: a constant hashable
  DictKey,        // base: dict; index: the i-th key in order
  DictValue,      // base: dict; index: the value at the i-th key in order
  Lookup,         // base: dict (as Key); index: the Src of the key, an object that is compared by identity or a KeyTuple
  KeyTuple,       // key: a tuple of ints, the Srcs of the elements; a tuple made of these, to look it up
  Method,         // base: bound method; index 0: __self__, 1: __func__
  SuperAttr,      // base: the object; key: name; extra: the class whose MRO successor is searched
  ImportedModule, // key: sys.modules[key]
  Handled,        // the exception that the caller handles, or None; index 0: in its own frames, 1: or in those around it
  Constant,       // extra: an object that lives as long as the process (a builtin type, a static object)
};

struct Source {
  SourceKind kind = SourceKind::None;
  Src base = kNoSource;
  int64_t index = 0;
  Ref key;      // interned name or constant key
  Ref extra;    // a class (SuperAttr) or the object itself (Constant)
};

class SourceTable {
 public:
  SourceTable();
  Src callee() { return intern(SourceKind::Callee); }
  Src arg(int64_t index) { return intern(SourceKind::Arg, kNoSource, index); }
  Src intern(SourceKind kind, Src base = kNoSource, int64_t index = 0, PyObject* key = nullptr,
             PyObject* extra = nullptr);
  const Source& operator[](Src src) const { return sources_[src]; }
  size_t size() const { return sources_.size(); }
  // Of a KeyTuple.
  std::vector<Src> elements(Src key_tuple) const;
  // "self.layers[3].weight", as the user would write it.
  std::string describe(Src src) const;
  // The sources alone, to print them later; the user's classes and objects among them are replaced by their names.
  SourceTable snapshot() const;
  // Names of the callee's parameters, so that arguments print by name.
  void set_argument_names(std::vector<std::string> names) { argument_names_ = std::move(names); }
  void set_callee_name(std::string name) { callee_name_ = std::move(name); }   // "self" if not set

 private:
  std::vector<Source> sources_;
  HashIndex index_;
  std::vector<std::string> argument_names_;
  std::string callee_name_ = "self";
};

}  // namespace braze::capture
