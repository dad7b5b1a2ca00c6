// Runs a joint graph under autograd, so that its gradients can be differentiated again: node by node, or as a compiled
// region of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "braze/graph/graph.h"
#include "braze/runtime/inputs.h"
#include "braze/trace/retrace.h"

namespace braze::runtime {

class DifferentiableReplay {
 public:
  virtual ~DifferentiableReplay() = default;
  // inputs: one tensor per graph input, with the history that gradients shall reach. Gives the graph's outputs from
  // number n_forward on. Needs grad mode; throws what operators throw.
  virtual std::vector<at::Tensor> run(std::span<const at::Tensor> inputs, std::span<const int64_t> size_inputs) const = 0;
};

std::unique_ptr<DifferentiableReplay> make_differentiable_replay(std::shared_ptr<const graph::Graph> joint,
                                                                 const GraphContext& context);

// Compiles a function of tensors for inputs like the examples; with the GIL.
using CompileFunction = std::function<Result<trace::Retraced>(std::span<const at::Tensor> examples, const trace::TensorFunction& function)>;

// Traces the other replay when inputs of a kind first come, and runs it itself where that is not possible.
std::unique_ptr<DifferentiableReplay> make_compiled_replay(std::unique_ptr<DifferentiableReplay> by_node, CompileFunction compile);

// What a replay computes or reads: everything that the gradients, the outputs from number n_forward on, depend on.
std::unordered_set<const graph::Value*> values_for_gradients(const graph::Graph& joint, size_t n_forward);

// Whether a node draws random numbers.
bool draws_random_numbers(const graph::Graph& graph);

}  // namespace braze::runtime
