// A joint graph with its nodes and values numbered, and which pass each node may run in.
#pragma once

#include <vector>

#include "braze/graph/graph.h"
#include "braze/support/result.h"

namespace braze::partition {

enum class Side : uint8_t {
  Forward,    // the forward pass needs it: it runs there, and may run in the backward pass again
  Either,     // only gradients need it, but it depends on no tangent: it runs in the pass where that costs less
  Backward,   // depends on a tangent, or draws or acts in the backward pass
};

struct Joint {
  const graph::Graph& graph;
  size_t n_forward;                              // outputs
  std::vector<const graph::Node*> nodes;         // in order
  std::vector<Side> sides;                       // of nodes
  std::vector<int32_t> producers;                // by value id: the node's number; -1: an input
  std::vector<const graph::Value*> values;       // by id; nullptr: unused number
  std::vector<bool> mutated;                     // by input number

  size_t n_ids() const { return values.size(); }
  int32_t producer(const graph::Value* value) const { return producers[static_cast<size_t>(value->id)]; }
  bool is_tangent(const graph::Value* value) const {
    return value->producer == nullptr && graph.input_kinds[static_cast<size_t>(value->index)] == graph::InputKind::Tangent;
  }
  // Only the backward pass can have it.
  bool is_backward(const graph::Value* value) const {
    return value->producer == nullptr ? is_tangent(value)
                                      : sides[static_cast<size_t>(producer(value))] == Side::Backward;
  }
  // Calls f(value) for each value that the backward pass takes from outside of its own nodes, repeats included: operands
  // of Backward nodes, and gradients that no tangent changes.
  template <class F>
  void for_each_need(F&& f) const;
};

// Unsupported: a forward output depends on a tangent, or a tangent stands before another input.
Result<Joint> analyze(const graph::Graph& joint, size_t n_forward);

template <class F>
void Joint::for_each_need(F&& f) const {
  const auto note = [&](const graph::Value* value) {
    if (!is_backward(value)) f(value);
  };
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (sides[i] != Side::Backward) continue;
    for (const graph::Argument& argument : nodes[i]->arguments) graph::for_each_value(argument, note);
  }
  for (size_t i = n_forward; i < graph.outputs.size(); ++i)
    if (graph.outputs[i] != nullptr) note(graph.outputs[i]);
}

}  // namespace braze::partition
