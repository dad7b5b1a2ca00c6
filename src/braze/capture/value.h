// A Python object with its provenance, and how the executor reports that it can't go on.
//
// Three outcomes exist everywhere in the executor: a value; a Python exception (an empty Owned with the error set, as
// in CPython); and Abort, thrown, which no handler of the traced program sees.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "braze/capture/ref.h"
#include "braze/capture/source.h"
#include "braze/support/result.h"

namespace braze::capture {

struct Value {   // borrowed
  PyObject* object = nullptr;
  Src src = kNoSource;
};

struct Owned {
  Ref ref;
  Src src = kNoSource;

  Owned() = default;
  Owned(Ref r, Src s = kNoSource) : ref(std::move(r)), src(s) {}
  static Owned steal(PyObject* object, Src s = kNoSource) { return {Ref::steal(object), s}; }
  static Owned borrow(PyObject* object, Src s = kNoSource) { return {Ref::borrow(object), s}; }
  static Owned borrow(Value v) { return {Ref::borrow(v.object), v.src}; }
  static Owned none() { return borrow(Py_None); }
  static Owned boolean(bool b) { return borrow(b ? Py_True : Py_False); }
  Value get() const { return {ref.get(), src}; }
  explicit operator bool() const { return static_cast<bool>(ref); }
};

struct Abort {
  Unsupported why;
  // The instruction before which the trace can end instead, as the executor counts them; 0: where the abort was raised.
  uint64_t position = 0;
  bool silent = false;   // an end of the segment that is no news to the user: the next turn of a loop
};

[[noreturn]] void unsupported(std::string reason, std::string remedy = {});
[[noreturn]] void end_segment(std::string reason);   // silently

// An exception of these kinds must reach the caller; the trace is dropped.
bool must_propagate(PyObject* exception_type);

// Arguments of a call as vectorcall lays them out: positionals, then the values of the keywords. Borrowed.
struct Arguments {
  PyObject* const* objects = nullptr;
  const Src* srcs = nullptr;
  int64_t n = 0;
  PyObject* kwnames = nullptr;

  int64_t n_keywords() const { return kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames); }
  int64_t n_positional() const { return n - n_keywords(); }
  // Aborts where there are fewer: models read what the call should have.
  Value operator[](int64_t i) const {
    if (i >= n) unsupported("a call with too few arguments");
    return {objects[i], srcs[i]};
  }
  // The argument of this name, or an empty value.
  Value keyword(const char* name) const;
};

}  // namespace braze::capture
