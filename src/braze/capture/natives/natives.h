// Native callables that capture knows: tables keyed by object, resolved from dotted names when first used.
//
// Pure: run for real, all arguments guarded. Modelled: a function here. Polyfilled: a Python function of polyfills.cpp
// stands for it, and its frame is interpreted. What no table knows is asked of the tensor domain; what that doesn't
// know either is unknown, and the call is not made.
#pragma once

#include "braze/capture/execute/executor.h"

namespace braze::capture {

using Model = Owned (*)(Executor& x, Value callable, const Arguments& arguments);

struct Native {
  NativeKind kind = NativeKind::Unknown;
  Model model = nullptr;
  PyObject* polyfill = nullptr;
  const char* name = "";
  bool gives_result = false;     // the model's result is that of the one function that it calls, if it calls one
};

// Methods bound to an object in C: the descriptor's entry, and the object to put before the arguments.
struct NativeCall {
  const Native* native = nullptr;
  PyObject* self = nullptr;      // borrowed
  PyObject* descriptor = nullptr;   // borrowed; the unbound form of a bound native, if it has one
};

NativeCall find_native(PyObject* callable);
// Whether C code would see the call: self is of the method's class, and functions of no or one argument get that many.
// Models rely on it; CPython raises TypeError otherwise.
bool fits_native(PyObject* callable, const Arguments& arguments);

struct ModelRow {
  const char* name;   // dotted
  Model model;
  bool gives_result = false;
};
// Each models_*.cpp has one list.
const std::vector<ModelRow>& builtin_models();
const std::vector<ModelRow>& container_models();
const std::vector<ModelRow>& object_models();
const std::vector<ModelRow>& library_models();
// Of polyfilled natives: tried first; an empty result without an error leaves the call to the polyfill.
const std::vector<ModelRow>& shortcuts();
// {dotted name of the native, Python function}
std::vector<std::pair<const char*, Ref>> polyfills();
Ref polyfill(const char* function);

// An object of the builtins module, as a constant.
Value builtin(const char* name);

// --- shared by models and opcodes
bool add_to_set(Executor& x, Value set, Value item);
// Remembers the sources of `from`'s items with `to`.
void copy_sources(Executor& x, Value from, PyObject* to);
// Calls f(key, value) for a dict's pairs, or for a mapping's through keys(); f returns false on error.
using PairFunction = bool (*)(void* state, Value key, Value value);
bool for_each_pair_of(Executor& x, Value mapping, PairFunction f, void* state);
template <class F>
bool for_each_pair(Executor& x, Value mapping, F f) {
  return for_each_pair_of(
      x, mapping, [](void* state, Value key, Value value) { return (*static_cast<F*>(state))(key, value); }, &f);
}
// Keys of dicts and members of sets must compare natively.
void require_native_hash(Executor& x, Value key);
// Whether a dict would call Python code for the key: its hash, its comparison, or those of a tuple's items.
bool is_hashed_in_python(Executor& x, PyObject* key);
struct FoundKey {
  Owned stored;         // the equal key in the dict, if there is one
  Py_hash_t hash = 0;
};
// Such a key in a dict as the traced program sees it, by frames of the trace. False: an error is set.
bool find_key(Executor& x, Value dict, Value key, FoundKey& out);
PyObject* interned(const char* text);   // borrowed, immortal here

}  // namespace braze::capture
