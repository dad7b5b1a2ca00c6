// Random zeros and ones have the dtype of what they mask (dropout). Where there is a backward pass they are kept for it
// as booleans, and become numbers again on both sides of the partition.
#include <algorithm>

#include "braze/graph/builder.h"
#include "braze/rewrite/pass_manager.h"

namespace braze::rewrite {

using graph::Node;
using graph::OpId;
using graph::Value;

namespace {

bool is_mask(const Node& node) {
  switch (node.op->id) {
    case OpId::bernoulli: case OpId::bernoulli_p: case OpId::bernoulli_Tensor: return is_floating(node.result()->type.dtype);
    default: return false;
  }
}

bool is_narrowed(const Value& mask) {
  return std::ranges::any_of(mask.users, [](const Node* user) {
    return user->op->id == OpId::_to_copy && user->result()->type.dtype == DType::Bool;
  });
}

}  // namespace

bool narrow_masks(graph::Graph& graph) {
  const auto is_backward = [](const Node* node) { return (node->tags & graph::kBackward) != 0; };
  if (std::ranges::none_of(graph.nodes, is_backward)) return false;
  bool changed = false;
  for (auto it = graph.nodes.begin(); it != graph.nodes.end();) {
    Node* node = *it++;
    if (!is_mask(*node) || is_backward(node) || !graph.has_uses(node->result()) || is_narrowed(*node->result())) continue;
    graph::Builder build(graph, it == graph.nodes.end() ? nullptr : *it);
    Value* bits = build.cast(node->result(), DType::Bool);
    Value* numbers = build.cast(bits, node->result()->type.dtype);
    for (Node* made : build.made()) {
      made->origin = node->origin;
      made->tags = node->tags;
    }
    // What a checkpoint draws is kept, as the state of its generator is in eager.
    bits->producer->tags &= ~uint32_t{graph::kRecompute};
    graph.replace_uses(node->result(), numbers);
    graph.set_argument(bits->producer, 0, node->result());
    changed = true;
  }
  return changed;
}

}  // namespace braze::rewrite
