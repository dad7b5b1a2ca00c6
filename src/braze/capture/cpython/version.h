// Which CPython this is built for. What differs between versions stands in this folder, a file for each version.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX < 0x030b0000 || PY_VERSION_HEX >= 0x030e0000
#error "Braze runs on CPython 3.11, 3.12 and 3.13: it knows the frames and instructions of these versions only"
#endif
#ifdef Py_GIL_DISABLED
#error "Braze does not run on free-threaded builds of Python"
#endif
#if defined(PYPY_VERSION) || defined(GRAALVM_PYTHON)
#error "Braze runs on CPython only"
#endif

namespace braze::capture {

// Two stack entries below a call's arguments hold the callable and self. Where there is no self, NULL takes a place:
// above the callable since 3.13, below it before.
inline constexpr bool kNullAboveCallable = PY_VERSION_HEX >= 0x030d0000;

struct Callee {
  int at;          // of the two entries, the one that holds the callable
  bool has_self;   // then it is the upper one
};

inline Callee callee_of(PyObject* const* entries) {
  if (kNullAboveCallable) return {0, entries[1] != nullptr};
  return {entries[0] == nullptr ? 1 : 0, entries[0] != nullptr};
}

// A classmethod of a descriptor gives what the descriptor gives for the class.
inline constexpr bool kClassMethodsChain = PY_VERSION_HEX < 0x030d0000;

// A frame that runs keeps the position of the present instruction; one that stands, of the next instruction (since
// 3.13) or of the unit before it.
inline constexpr int kPositionLag = PY_VERSION_HEX >= 0x030d0000 ? 0 : 1;

}  // namespace braze::capture
