// What trace hands on: a finished graph and what its runtime needs beside it. The module registers the pipeline here.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braze/graph/graph.h"
#include "braze/support/executable.h"
#include "braze/support/result.h"

namespace braze::trace {

// Where the tensor for one graph input comes from.
struct InputBinding {
  enum class Kind : uint8_t {
    Tensor,       // the caller's tensor number `caller`, as it is
    StorageBase,  // the whole storage of the caller's tensor as a 1-D tensor of its element type: several callers'
                  // tensors may live in it, and the graph begins with their as_strided views
    Constant,     // a tensor made while tracing; the executable keeps it
  };
  Kind kind = Kind::Tensor;
  int32_t caller = -1;      // index into TraceSession::inputs() (Tensor, StorageBase); numbers of the call, as weak
                            // 0-dim tensors, follow these
  at::Tensor constant;
  int32_t versions = 1;     // of a tensor that the call writes: how often its version counter is raised, as by eager's
                            // writes; 0: by none of them, which all went through .data
};

// Training. The graph is then a joint one: its outputs are the forward outputs, `n_forward` of them (what the caller
// asked for, then bases that outputs view, then new contents of inputs whose changes autograd records), followed by one
// gradient for each row of `gradients` (nullptr: undefined; a gradient may be an input of the graph, and one value may
// stand for several). Callers' tensors that no output depends on have no row. Nodes that the backward pass alone needs
// carry graph::kBackward. Graph::mutations that autograd records have under_no_grad == false, and their values are the
// last of the forward outputs, in order.
struct JointPlan {
  struct Tangent {
    int32_t output = -1;   // the forward output whose gradient it is
    int32_t input = -1;    // the graph input of kind Tangent; -1: no gradient depends on it
  };
  size_t n_forward = 0;
  std::vector<bool> tracked;                      // per output that the caller asked for: does it require grad? An output
                                                  // made by an alias row and not tracked is detached from what it views
  std::vector<Tangent> tangents;                  // of every forward output that autograd tracks, in their order
  std::vector<int32_t> gradients;                 // the callers' tensors (index into TraceSession::inputs(), not graph
                                                  // inputs: several may enter through one storage base) that get them
  struct Spent {
    int32_t output = -1;
    std::string error;
  };
  std::vector<Spent> spent;                       // forward outputs whose backward pass has run in the call already, or
                                                  // can't run any more: another one raises this error
  std::string no_double_backward;                 // why this graph does not give second derivatives; empty: it does
};

// Outputs: the caller of the executable asked for `n_outputs`; graph outputs beyond these are bases that aliasing
// outputs view (graph.aliases). graph.outputs[i] of an aliasing output is the value that it views, and only the alias
// row says its sizes, strides and offset. The offset counts from the first element of what is viewed: of the caller's
// tensor (also for StorageBase), or of the base output. Rows are in order of outputs; a row with same_object and
// base_output is the same Python object as that output.
struct GraphContext {
  std::vector<InputBinding> inputs;        // one per graph input
  std::vector<int32_t> size_callers;       // per Graph::size_inputs: the place of the Python int among the caller's inputs
  std::vector<c10::IValue> objects;        // graph::Opaque slots: generators
  size_t n_outputs = 0;
  std::vector<bool> inference_outputs;     // made in inference mode where the call is not in it; empty: none
  std::string backend;
  bool keep_text = false;
  // nullopt: no result needs gradients, and none is detached from a caller's tensor that does. Without tangents there
  // is no backward pass.
  std::optional<JointPlan> joint;
};

using CompileGraph =
    std::function<Result<std::shared_ptr<Executable>>(std::unique_ptr<graph::Graph> graph, const GraphContext& context)>;

void set_compiler(CompileGraph compiler);
const CompileGraph& compiler();   // empty until one is set

// How many operators the type tiers decided since the process began, and which went through Python.
struct TypeStatistics {
  int64_t native = 0;
  int64_t structured = 0;    // at::meta
  int64_t cpp_meta = 0;
  int64_t python_meta = 0;
  std::vector<std::pair<std::string, int64_t>> python_ops;
};
TypeStatistics type_statistics();
void reset_type_statistics();

// Time that this thread has spent on tracing since the last call, in ms: torch's own code under a trace included, capture's
// interpreter and the compiler not.
double take_trace_time();

// Registers the tracer as capture's tensor domain and its kernels with libtorch's dispatcher. Call once, with the GIL;
// throws std::runtime_error if another library uses the dispatch keys.
void register_tracer();

}  // namespace braze::trace
