// Runs a forward graph and hands its results to autograd with a node that runs the backward graph.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "braze/runtime/differentiable_replay.h"
#include "braze/runtime/graph_program.h"
#include "braze/runtime/outputs.h"

namespace braze::runtime {

// The forward program's outputs are: the joint graph's forward outputs, JointPlan::n_forward of them (undefined where
// an alias row makes the output); saved values; new contents of inputs that are not among the forward outputs.
struct TrainingPlan {
  std::vector<InputBinding> inputs;      // of the joint and the forward graph
  OutputPlan outputs;                    // the joint graph's aliases and mutations
  std::vector<int32_t> new_contents;     // per mutation: the forward program's output that holds the contents
  trace::JointPlan joint;
  struct BackwardInput {
    enum class Kind : uint8_t { Input, Output, Tangent } kind;   // input or output of the forward program, tangent number
    int32_t index;
  };
  std::vector<BackwardInput> backward_inputs;
};

// Makes the program of a backward graph, at the first backward pass that needs it; with the GIL. by_aten: node by node,
// which costs no time to compile.
using MakeBackward = std::function<std::shared_ptr<GraphProgram>(std::shared_ptr<const graph::Graph> backward, bool by_aten)>;

struct TrainingGraphs {
  std::shared_ptr<const graph::Graph> forward, backward;   // what the programs run
  std::shared_ptr<const graph::Graph> joint;               // as it was traced, for backward passes that are differentiated
};

std::shared_ptr<Executable> make_training_executor(TrainingPlan plan, std::shared_ptr<GraphProgram> forward,
                                                   TrainingGraphs graphs, MakeBackward make_backward,
                                                   CompileFunction compile_function, const GraphContext& context);

}  // namespace braze::runtime
