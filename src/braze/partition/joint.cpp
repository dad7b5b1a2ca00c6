#include "braze/partition/joint.h"

#include <algorithm>

#include "braze/support/check.h"

namespace braze::partition {

using graph::Argument;
using graph::Graph;
using graph::InputKind;
using graph::Node;
using graph::Value;

namespace {

bool keeps_its_place(const Node& node) {
  return node.results.empty() || node.op->has(graph::kRandom) || node.op->has(graph::kSideEffect);
}

void number(Joint& joint) {
  const Graph& graph = joint.graph;
  int32_t last = -1;
  const auto see = [&](const Value* value) { last = std::max(last, value->id); };
  for (const Value* input : graph.inputs) see(input);
  for (const Node* node : graph.nodes) std::ranges::for_each(node->results, see);
  joint.values.assign(static_cast<size_t>(last + 1), nullptr);
  joint.producers.assign(static_cast<size_t>(last + 1), -1);
  for (const Value* input : graph.inputs) joint.values[static_cast<size_t>(input->id)] = input;
  joint.nodes.reserve(graph.nodes.size());
  for (const Node* node : graph.nodes) {
    for (const Value* result : node->results) {
      joint.values[static_cast<size_t>(result->id)] = result;
      joint.producers[static_cast<size_t>(result->id)] = static_cast<int32_t>(joint.nodes.size());
    }
    joint.nodes.push_back(node);
  }
}

// Backward: what a tangent reaches, and what acts in the backward pass.
void mark_backward(Joint& joint) {
  for (size_t i = 0; i < joint.nodes.size(); ++i) {
    const Node& node = *joint.nodes[i];
    bool backward = (node.tags & graph::kBackward) != 0 && keeps_its_place(node);
    for (const Argument& argument : node.arguments)
      graph::for_each_value(argument, [&](const Value* value) { backward |= joint.is_backward(value); });
    if (backward) joint.sides[i] = Side::Backward;
  }
}

// Forward: what the caller gets, and what acts in the forward pass, with all that they need.
void mark_forward(Joint& joint) {
  std::vector<int32_t> open;
  const auto mark = [&](int32_t node) {
    if (node < 0 || joint.sides[static_cast<size_t>(node)] != Side::Either) return;
    joint.sides[static_cast<size_t>(node)] = Side::Forward;
    open.push_back(node);
  };
  for (size_t i = 0; i < joint.n_forward; ++i)
    if (joint.graph.outputs[i] != nullptr) mark(joint.producer(joint.graph.outputs[i]));
  for (const graph::Mutation& mutation : joint.graph.mutations) mark(joint.producer(mutation.value));
  for (size_t i = 0; i < joint.nodes.size(); ++i)
    if (keeps_its_place(*joint.nodes[i])) mark(static_cast<int32_t>(i));
  while (!open.empty()) {
    const Node& node = *joint.nodes[static_cast<size_t>(open.back())];
    open.pop_back();
    for (const Argument& argument : node.arguments)
      graph::for_each_value(argument, [&](const Value* value) { mark(joint.producer(value)); });
  }
}

}  // namespace

Result<Joint> analyze(const Graph& graph, size_t n_forward) {
  CHECK(n_forward <= graph.outputs.size());
  Joint joint{.graph = graph, .n_forward = n_forward, .nodes = {}, .sides = {}, .producers = {}, .values = {},
              .mutated = std::vector<bool>(graph.inputs.size(), false)};
  bool tangents = false;
  for (const InputKind kind : graph.input_kinds) {
    if (tangents && kind != InputKind::Tangent) return Unsupported{"partition: a tangent stands before an input", ""};
    tangents |= kind == InputKind::Tangent;
  }
  for (const graph::Mutation& mutation : graph.mutations) joint.mutated[static_cast<size_t>(mutation.input)] = true;
  number(joint);
  joint.sides.assign(joint.nodes.size(), Side::Either);
  mark_backward(joint);
  const auto depends = [&](const Value* value) { return value != nullptr && joint.is_backward(value); };
  for (size_t i = 0; i < n_forward; ++i)
    if (depends(graph.outputs[i])) return Unsupported{"partition: a forward output depends on a tangent", ""};
  for (const graph::Mutation& mutation : graph.mutations)
    if (depends(mutation.value)) return Unsupported{"partition: the new contents of an input depend on a tangent", ""};
  mark_forward(joint);
  return joint;
}

}  // namespace braze::partition
