#include "braze/partition/partition.h"

#include "braze/partition/joint.h"
#include "braze/partition/split.h"

namespace braze::partition {

using graph::Node;
using graph::Value;

namespace {

// What eager's autograd saves: the values that the backward pass uses directly, without the views on the way.
std::vector<bool> eager_saves(const Joint& joint) {
  std::vector<bool> saved(joint.n_ids(), false), seen(joint.n_ids(), false);
  std::vector<const Value*> open;
  const auto need = [&](const Value* value) {
    const auto id = static_cast<size_t>(value->id);
    if (seen[id]) return;
    seen[id] = true;
    if (value->producer == nullptr) return;
    const bool again = value->producer->op->has(graph::kView) || (value->producer->tags & graph::kBackward) != 0;
    if (again)
      open.push_back(value);
    else
      saved[id] = true;
  };
  joint.for_each_need(need);
  while (!open.empty()) {
    const Node& node = *open.back()->producer;
    open.pop_back();
    for (const graph::Argument& argument : node.arguments) graph::for_each_value(argument, need);
  }
  return saved;
}

}  // namespace

Result<Partitioned> partition(const graph::Graph& graph, size_t n_forward_outputs, const PartitionOptions&) {
  TRY(const Joint joint, analyze(graph, n_forward_outputs));
  return split(joint, eager_saves(joint));
}

}  // namespace braze::partition
