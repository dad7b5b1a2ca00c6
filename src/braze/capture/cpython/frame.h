// CPython's frames and thread states, in place. frame_311.h and its neighbours say for their version:
//   code_of, function_of, position_of(frame)   position: see version.h
//   current_frame(thread)                      the innermost frame that is linked
//   python_calls_left, c_calls_left(thread)    before the recursion limit; nullptr: Python's are counted with C's
//   enter_link(frame)                          the frame is entered from C
//   suspend(frame, delegating)                 the generator around it is left at a yield, or (delegating) a yield from
//   kDelegating                                the state of a generator that is left at a yield from
//   kLeftByCallee                              who evaluates a frame clears it and takes it off the stack; before 3.12
//                                              it was who asked for that
#pragma once

#include "braze/capture/cpython/version.h"

#define Py_BUILD_CORE 1
extern "C" {
#include <internal/pycore_frame.h>
}
#undef Py_BUILD_CORE

#include <utility>

#if PY_MINOR_VERSION == 11
#include "braze/capture/cpython/frame_311.h"
#elif PY_MINOR_VERSION == 12
#include "braze/capture/cpython/frame_312.h"
#else
#include "braze/capture/cpython/frame_313.h"
#endif
