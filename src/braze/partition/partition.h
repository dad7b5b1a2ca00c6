// Joint graph to forward and backward graph. What the backward pass needs of the forward pass is either saved by the
// forward graph or computed again by the backward graph; a minimum cut over bytes and work decides which.
//
//   joint(inputs, tangents) -> forward outputs, gradients
//   forward(inputs) -> forward outputs, saved values
//   backward(saved inputs, saved values, tangents) -> gradients
#pragma once

#include <memory>
#include <vector>

#include "braze/graph/graph.h"
#include "braze/support/result.h"

namespace braze::partition {

struct PartitionOptions {
  // Of the memory that activations take between forward and backward: 1 keeps everything that is worth keeping, and
  // never more than eager; 0 computes everything again that can be.
  double activation_memory_budget = 1.0;
};

// Where the tensor for one input of the backward graph comes from.
struct BackwardInput {
  enum class Kind : uint8_t {
    ForwardInput,   // input `index` of the forward graph, which the forward graph does not change
    SavedOutput,    // output `index` of the forward graph: one of the caller's, or a saved value
    Tangent,        // input `index` of the joint graph, of kind Tangent
  };
  Kind kind = Kind::ForwardInput;
  int32_t index = -1;
  bool operator==(const BackwardInput&) const = default;
};

struct Partitioned {
  // Inputs, mutations and aliases are the joint graph's (all its inputs but the tangents, in order); outputs are the
  // forward outputs, then the saved values.
  std::unique_ptr<graph::Graph> forward;
  // Outputs are the gradients in the joint graph's order; nullptr where that has none. size_inputs are all the size
  // symbols that it uses, whichever of its inputs a backward pass then needs: the forward's inputs give them.
  std::unique_ptr<graph::Graph> backward;
  std::vector<BackwardInput> backward_inputs;   // one per input of the backward graph
  int64_t saved_bytes = 0;                      // of the saved values under the example sizes
};

// joint: inputs of kind Tangent stand after all others; its first n_forward_outputs outputs are the forward's, the rest
// gradients. Nodes tagged kBackward and those that depend on a tangent belong to the backward pass; random nodes run
// once, in their pass. Nodes tagged kRecompute are computed again.
Result<Partitioned> partition(const graph::Graph& joint, size_t n_forward_outputs, const PartitionOptions& options = {});

}  // namespace braze::partition
