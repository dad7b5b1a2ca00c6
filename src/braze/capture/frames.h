// Frames that a graph break cut out of a traced call, outermost first, and how they run on.
//
// A frame's state is its function, the instruction at which it stands, and its slots: locals, cells, free variables,
// then the stack. The innermost frame stands before an instruction; each other one is inside the instruction that
// called the next.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "braze/capture/code.h"
#include "braze/capture/frame_hook.h"

namespace braze::capture {

// What a frame does with the result of the frame that it called.
enum class After : uint8_t {
  None,      // not known to this file: a callee under this instruction can't be cut
  Push,      // the result of the instruction
  Drop,      // setters
  Init,      // __init__: must be None; the object is on the stack
  Again,     // __bool__: the instruction is executed once more, on the result
  Contains,  // __contains__: its truth
  Next,      // __next__: pushed; StopIteration ends the loop
};
// What __init__ and __bool__ must give; else the error is set.
bool is_init_result(PyObject* result);
bool is_bool_result(PyObject* result);

struct FramePoint {
  const Code* code = nullptr;
  uint32_t pc = 0;
  int32_t n_slots = 0;   // that are in use
  After after = After::None;   // of frames that called another one

  bool operator==(const FramePoint&) const = default;
};

struct LiveFrame {
  FramePoint at;
  Ref function;
  std::vector<Ref> slots;   // empty where a slot holds nothing
};

class LiveFrames final : private FrameRunner {
 public:
  // roots: for each frame its function and its slots; new references, taken over.
  LiveFrames(std::span<const FramePoint> points, PyObject** roots);

  // Executes the next instruction of the innermost frame. True: the frames stand one instruction further. False: the
  // frames have run to their end, since the instruction raised or is not one that can be taken alone; `result` is
  // what the outermost frame returned, or nullptr with an error set.
  bool step(PyObject*& result);
  // CPython runs the frames to their end.
  PyObject* finish();

  const std::vector<LiveFrame>& frames() const { return frames_; }
  // Functions and slots in order, without the empty ones. Borrowed.
  std::vector<PyObject*> values() const;
  // What a continuation depends on besides the values.
  std::string key() const;
  void clear() { frames_.clear(); }

 private:
  PyObject* run_frame(NativeFrame* native, bool throwing) override;
  bool owns(PyObject*) override { return false; }
  PyObject* start(size_t i);
  PyObject* run_innermost(NativeFrame* native, LiveFrame& frame);
  static bool take_result(const FrameView& v, const LiveFrame& frame, PyObject* result);
  void take_back(NativeFrame* native, LiveFrame& frame);

  std::vector<LiveFrame> frames_;
  size_t entered_ = 0;
  bool stepping_ = false, stepped_ = false;
};

}  // namespace braze::capture
