// One call of a compiled function, traced: the bytecode of the callee and of all that it calls is executed
// symbolically, and a Segment comes out. Nothing outside is changed, whatever the outcome.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "braze/capture/guards.h"
#include "braze/capture/recipe.h"
#include "braze/capture/tensor_domain.h"

namespace braze::capture {

// What a compiled entry holds. Owned by the entry; holds no user object strongly, except immutable constants.
struct Segment {
  std::unique_ptr<GuardProgram> guards;
  std::shared_ptr<Executable> executable;   // null: the call needs no tensor work
  std::vector<int32_t> inputs;              // executable input i is the guards' fetched value inputs[i]
  Recipe exit;
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
};

struct CallTarget {
  PyObject* callee;               // function, bound method, or nn.Module (any callable)
  PyObject* const* args;          // positionals, then keyword values
  int64_t n_positional;
  PyObject* kwnames;              // tuple or nullptr
};

using CaptureOutcome = std::variant<Segment, CaptureFailure>;

// Needs the GIL. Never leaves a Python error set, except KeyboardInterrupt and MemoryError: then it returns a failure
// and the error stays set for the caller to propagate.
CaptureOutcome trace_call(const CallTarget& target, const TraceOptions& options);

}  // namespace braze::capture
