#include "braze/graph/regions.h"
#include "braze/partition/choose.h"
#include "braze/partition/cost.h"

namespace braze::partition {

using graph::Node;
using graph::Value;

namespace {

// What a derivative formula takes from the forward pass.
ValueSet eager_saves(const Joint& joint) {
  ValueSet saved(joint.n_ids(), false);
  const auto is_formula = [&](int32_t node) {
    const auto i = static_cast<size_t>(node);
    return node >= 0 && (joint.sides[i] == Side::Backward || (joint.nodes[i]->tags & graph::kBackward) != 0);
  };
  const auto note = [&](const Value* value) {
    if (!joint.is_backward(value) && !is_formula(joint.producer(value)))
      saved[static_cast<size_t>(owner(value)->id)] = true;
  };
  for (size_t i = 0; i < joint.nodes.size(); ++i) {
    if (!is_formula(static_cast<int32_t>(i))) continue;
    for (const graph::Argument& argument : joint.nodes[i]->arguments) graph::for_each_value(argument, note);
  }
  for (size_t i = joint.n_forward; i < joint.graph.outputs.size(); ++i)
    if (joint.graph.outputs[i] != nullptr) note(joint.graph.outputs[i]);
  return saved;
}

// A checkpoint's node whose result leaves its region: eager's next part of the program has it.
std::vector<bool> leaves_region(const Joint& joint) {
  std::vector<bool> out(joint.nodes.size(), false);
  const auto leaves = [&](const Value* value, const Node* to) {
    const Value* memory = owner(value);
    if (memory->producer == nullptr || (memory->producer->tags & graph::kRecompute) == 0) return;
    const bool inside = to != nullptr && (to->tags & graph::kRecompute) != 0 &&
                        graph::region_of(*to) == graph::region_of(*memory->producer);
    if (!inside) out[static_cast<size_t>(joint.producer(memory))] = true;
  };
  for (size_t i = 0; i < joint.nodes.size(); ++i) {
    const Node& node = *joint.nodes[i];
    if (joint.sides[i] != Side::Forward || is_view(node)) continue;
    for (const graph::Argument& argument : node.arguments)
      graph::for_each_value(argument, [&](const Value* value) { leaves(value, &node); });
  }
  for (size_t i = 0; i < joint.n_forward; ++i)
    if (joint.graph.outputs[i] != nullptr) leaves(joint.graph.outputs[i], nullptr);
  for (const graph::Mutation& mutation : joint.graph.mutations) leaves(mutation.value, nullptr);
  return out;
}

}  // namespace

Rules::Rules(const Joint& joint)
    : must(joint.nodes.size(), false), never(joint.nodes.size(), false), eager(eager_saves(joint)) {
  const std::vector<bool> leaves = leaves_region(joint);
  for (size_t i = 0; i < joint.nodes.size(); ++i) {
    const Node& node = *joint.nodes[i];
    const bool checkpoint = (node.tags & graph::kRecompute) != 0 && joint.sides[i] != Side::Backward;
    never[i] = again(node) == Again::Never || (checkpoint && leaves[i]);
    must[i] = checkpoint && !never[i];
  }
}

}  // namespace braze::partition
