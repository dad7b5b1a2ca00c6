// Entering and leaving real CPython frames.
//
// A function or a generator is started by CPython itself (argument binding, frame memory, generator state and their
// errors are its own); the frame evaluation hook (PEP 523), armed for exactly that frame, gives the frame to a
// FrameRunner instead of CPython's loop. One file per Python version (frame_hook_311.cpp) knows the frame's layout.
#pragma once

#include <cstdint>

#include "braze/capture/ref.h"

struct _PyInterpreterFrame;

namespace braze::capture {

using NativeFrame = _PyInterpreterFrame;

class FrameRunner {
 public:
  // Runs a frame to its end or next yield. New reference, or nullptr with an error set.
  virtual PyObject* run_frame(NativeFrame* frame, bool throwing) = 0;
  // A generator that this runner drives, whoever resumes it.
  virtual bool owns(PyObject* generator) = 0;

 protected:
  ~FrameRunner() = default;
};

// Keeps the hook installed; the first in the process installs it, the last restores what stood there before.
class HookScope {
 public:
  explicit HookScope(FrameRunner* runner);
  ~HookScope();
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

 private:
  FrameRunner* outer_;
};

// The next frame that this thread starts goes to `runner`.
void arm(FrameRunner* runner);
// True if a frame was started since arm() (so no longer armed).
bool disarm();
// Starts a frame of the function, to run `code`, that goes to `runner` before its first instruction; the runner
// overwrites it, so no arguments are bound. Where no HookScope stands, the hook does only until then.
PyObject* start_frame(PyObject* function, PyCodeObject* code, FrameRunner* runner);
// CPython's own loop takes the frame over, at its next instruction or (throwing) with the error that is set.
PyObject* hand_over(NativeFrame* frame, bool throwing);
// Frames that CPython ran by itself on this thread while a hook stood: native code called back into Python.
uint64_t frames_run_natively();

struct FrameView {
  PyFunctionObject* function;
  PyCodeObject* code;
  PyObject* globals;
  PyObject* builtins;
  PyObject* locals;        // class bodies and module code; nullptr for functions
  PyObject** slots;        // locals, cells, free variables, then the stack
  int* n_slots_used;       // where the stack ends, as CPython reads it
  uint16_t** last_instruction;
  uint16_t* first_instruction;
  bool of_generator;
};
FrameView view(NativeFrame* frame);

// Links the frame to the thread's frames, so that super(), locals(), warnings and tracebacks see it.
class FrameLink {
 public:
  explicit FrameLink(NativeFrame* frame);
  ~FrameLink();
  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;

 private:
  NativeFrame* frame_;
};

// The generator that owns the frame becomes suspended at its present position.
void suspend_generator(NativeFrame* frame);
// Drops a suspended generator's state, so that its finally clauses don't run when it is freed.
void forget_generator(PyObject* generator);
// The generator around a frame; nullptr for other frames.
PyObject* generator_of_frame(NativeFrame* frame);
// The frame inside a generator.
NativeFrame* frame_of_generator(PyObject* generator);
// Adds the running frame to the traceback of the error that is set.
void add_traceback();

}  // namespace braze::capture
