// One instruction of a real frame, executed for real: what breaks a graph is taken alone, so that tracing can start
// again at the next one. Only instructions that are one operation on real objects; CPython takes over at all others.
#pragma once

#include "braze/capture/code.h"
#include "braze/capture/exits/frame_hook.h"

namespace braze::capture {

enum class Step : uint8_t {
  Done,       // pc and sp stand at the next instruction
  Raised,     // an error is set; pc and sp are as CPython's unwinding takes them
  RaisedAgain,   // one that had been raised here before, or elsewhere: its traceback gets no further row
  HandOver,   // nothing has happened
};

struct StepFrame {
  const Code& code;
  FrameView view;
  PyObject** sp;
  uint32_t pc;
};

// The frame is linked to the thread's frames.
Step step_instruction(StepFrame& frame);

}  // namespace braze::capture
