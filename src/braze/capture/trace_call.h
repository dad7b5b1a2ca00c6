// One call of a compiled function, traced: the bytecode of the callee and of all that it calls is executed
// symbolically, and a Segment comes out. Nothing outside is changed, whatever the outcome.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "braze/capture/exits/frames.h"
#include "braze/capture/exits/recipe.h"
#include "braze/capture/guards/guards.h"
#include "braze/capture/tensor_domain.h"

namespace braze::capture {

// What a compiled entry holds. Owned by the entry; holds no user object strongly, except immutable constants.
struct Segment {
  std::unique_ptr<GuardProgram> guards;
  std::shared_ptr<Executable> executable;   // null: the call needs no tensor work
  std::vector<int32_t> inputs;              // executable input i is the guards' fetched value inputs[i]
  // Numbers that change between calls. They are computed from the inputs and the fetched values of number_inputs; the
  // first n_number_operands are further inputs of the executable, the others the exit's. Null: none.
  std::shared_ptr<const CallNumbers> numbers;
  std::vector<int32_t> number_inputs;
  int64_t n_number_operands = 0;
  Recipe exit;
  std::vector<FramePoint> frames;           // a graph break: the frames that the exit's roots are for; empty: a return
  std::shared_ptr<const struct CaptureFailure> broken;   // why, then
  std::string graph_text;                   // when asked for
  int64_t n_ops = 0;
};

// Why and where a call can't be captured whole.
struct CaptureFailure {
  std::string reason;
  std::string remedy;
  std::string file;       // the user's file and line, innermost frame first in `stack`
  int line = 0;
  std::string source_line;
  std::string stack;      // formatted, outermost first
  // The program itself raises here (or its arguments do not bind): the call runs eagerly, also under fullgraph=True, so
  // that the error is the user's own.
  bool user_error = false;
  bool silent = false;          // the end of a segment that is no news to the user
  bool at_start = false;        // of frames: the first instruction can't be traced, so no segment would end before it
  uint64_t position = 0;        // the instruction before which the trace could have ended; 0: none
};

struct CallTarget {
  PyObject* callee;               // function, bound method, or nn.Module (any callable)
  PyObject* const* args;          // positionals, then keyword values
  int64_t n_positional;
  PyObject* kwnames;              // tuple or nullptr
  const LiveFrames* frames = nullptr;   // the trace starts at these; `args` are their values()
};

using CaptureOutcome = std::variant<Segment, CaptureFailure>;

// Needs the GIL. Never leaves a Python error set, except KeyboardInterrupt and MemoryError: then it returns a failure
// and the error stays set for the caller to propagate.
CaptureOutcome trace_call(const CallTarget& target, const TraceOptions& options);

}  // namespace braze::capture
