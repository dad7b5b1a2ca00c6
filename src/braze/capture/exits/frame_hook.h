// Entering and leaving real CPython frames.
//
// A function or a generator is started by CPython itself (argument binding, frame memory, generator state and their
// errors are its own); the frame evaluation hook (PEP 523), armed for exactly that frame, gives the frame to a
// FrameRunner instead of CPython's loop. cpython/frame.h knows the frame's layout.
#pragma once

#include <cstdint>

#include "braze/capture/cpython/version.h"
#include "braze/capture/ref.h"

struct _PyInterpreterFrame;

namespace braze::capture {

using NativeFrame = _PyInterpreterFrame;

class FrameRunner {
 public:
  // Runs a frame to its end or next yield, and leaves it. New reference, or nullptr with an error set.
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
// A generator as a call of the function would make it, with `code`; its variables are dummies, to be overwritten by
// set_generator(). New reference, or nullptr with an error set.
PyObject* new_generator(PyObject* function, PyCodeObject* code);
// Sends None into a generator that stands at any instruction; its frame goes to `runner`, or to the one that owns it.
PySendResult resume_generator(PyObject* generator, FrameRunner* runner, PyObject*& result);
PySendResult resume_generator(PyObject* generator, PyObject*& result);
// CPython's own loop takes the frame over, at its next instruction.
PyObject* hand_over(NativeFrame* frame);
// Ends a frame and drops its stack: what a runner returns then. nullptr: with the error that is set.
PyObject* leave_frame(NativeFrame* frame, PyObject* result);
// Frames that CPython ran by itself on this thread while a hook stood: native code called back into Python.
uint64_t frames_run_natively();
// While it lives, a function in Python that native code calls on this thread raises before it has begun.
class RefuseFrames {
 public:
  RefuseFrames();
  ~RefuseFrames();
  RefuseFrames(const RefuseFrames&) = delete;
  RefuseFrames& operator=(const RefuseFrames&) = delete;
};

struct FrameView {
  PyFunctionObject* function;
  PyCodeObject* code;
  PyObject* globals;
  PyObject* builtins;
  PyObject* locals;        // class bodies and module code; nullptr for functions
  PyObject** slots;        // locals, cells, free variables, then the stack
  int* n_slots_used;       // where the stack ends, as CPython reads it
  uint16_t** position;     // in its instructions, as CPython reads it
  uint16_t* first_instruction;

  // Units are as in Insn::native and Insn::start.
  void run(uint32_t unit) const { *position = first_instruction + unit; }
  void stand_before(uint32_t unit) const { *position = first_instruction + unit - kPositionLag; }
  int64_t running() const { return *position - first_instruction; }
  int64_t next() const { return running() + kPositionLag; }
};
FrameView view(NativeFrame* frame);

// Takes what was sent from the stack of a frame that resume_generator() entered. Where the stack was full, its top had
// to make room: it is given back.
void take_sent(const FrameView& view);

// An error that is not set for a while.
struct Raised {
  Ref type, value, traceback;

  static Raised take();
  void set() &&;
  explicit operator bool() const { return static_cast<bool>(type); }
};

// The error that is set, taken as an exception object that has its traceback.
Ref take_exception();

// Links the frame to the thread's frames, so that super(), locals(), warnings and tracebacks see it.
class FrameLink {
 public:
  explicit FrameLink(NativeFrame* frame);
  ~FrameLink();
  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;

 private:
  NativeFrame* before_;
};

// The generator that owns the frame becomes suspended at its present position, which is that of a `yield from` or not.
void suspend_generator(NativeFrame* frame, bool delegating);
// Drops a suspended generator's state, so that its finally clauses don't run when it is freed.
void forget_generator(PyObject* generator);

// A generator that does not run: where it stands, what it handles.
struct GeneratorState {
  enum class Kind : uint8_t { Created, Suspended, Delegating, Running, Ended } kind = Kind::Ended;
  int64_t position = 0;            // as FrameView::running()
  PyObject* handled = nullptr;     // borrowed
};
GeneratorState generator_state(PyObject* generator);
// slots: borrowed, with nullptr where one holds nothing.
void set_generator(PyObject* generator, const GeneratorState& state, PyObject* const* slots, size_t n);
// The generator around a frame; nullptr for other frames.
PyObject* generator_of_frame(NativeFrame* frame);
// The frame inside a generator.
NativeFrame* frame_of_generator(PyObject* generator);
// The frame object that stands for the frame, if there is one.
Ref frame_object(NativeFrame* frame);
// Of a frame that has ended without variables: it has none to show.
void forget_variables(PyObject* frame_object);
// A row of a traceback in front of `next` (nullptr: the last), with a frame of its own that never ran; as RecipeOp::NewTraceback says.
Ref new_traceback(PyObject* row, PyObject* next);
// Adds the running frame to the traceback of the error that is set.
void add_traceback();

// A call of a Python function, counted against the recursion limit. False: the limit is reached, an error is set.
class RecursionScope {
 public:
  RecursionScope();
  ~RecursionScope();
  RecursionScope(const RecursionScope&) = delete;
  RecursionScope& operator=(const RecursionScope&) = delete;
  explicit operator bool() const { return entered_; }

 private:
  bool entered_;
};
// How many calls are left, of Python functions and of C ones; for putting them back after an abort.
struct RecursionLeft {
  int python, c;
};
RecursionLeft recursion_left();
void restore_recursion(RecursionLeft left);

// CPython's own way to call a function object.
inline PyObject* call_function_object(PyObject* function, PyObject* const* arguments, size_t n, PyObject* kwnames) {
  return reinterpret_cast<PyFunctionObject*>(function)->vectorcall(function, arguments, n, kwnames);
}

}  // namespace braze::capture
