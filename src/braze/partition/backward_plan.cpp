#include <algorithm>

#include "braze/partition/cost.h"
#include "braze/partition/split.h"

namespace braze::partition {

using graph::Argument;
using graph::Node;
using graph::Value;

BackwardPlan::BackwardPlan(const Joint& joint, const std::vector<bool>& is_saved) {
  std::vector<bool> taken(joint.n_ids(), false), done(joint.nodes.size(), false);
  std::vector<int32_t> open;
  // Notes an input or saved value; else the node that makes the value has to run first.
  const auto need = [&](const Value* value) {
    const auto id = static_cast<size_t>(value->id);
    const int32_t node = joint.producer(value);
    if (node >= 0 && !is_saved[id]) {
      if (!done[static_cast<size_t>(node)]) open.push_back(node);
    } else if (!taken[id] && !joint.is_tangent(value)) {
      taken[id] = true;
      (node < 0 ? inputs : saved).push_back(value);
    }
  };
  const auto run = [&] {
    while (!open.empty()) {
      const auto next = static_cast<size_t>(open.back());
      const size_t before = open.size();
      if (!done[next])
        for (const Argument& argument : joint.nodes[next]->arguments) graph::for_each_value(argument, need);
      if (open.size() != before) {   // first operands first
        std::reverse(open.begin() + static_cast<std::ptrdiff_t>(before), open.end());
        continue;
      }
      open.pop_back();
      if (done[next]) continue;
      done[next] = true;
      order.push_back(static_cast<int32_t>(next));
    }
  };
  for (size_t i = 0; i < joint.nodes.size(); ++i) {
    if (joint.sides[i] != Side::Backward) continue;
    open.push_back(static_cast<int32_t>(i));
    run();
  }
  for (size_t i = joint.n_forward; i < joint.graph.outputs.size(); ++i) {
    if (joint.graph.outputs[i] == nullptr) continue;
    need(joint.graph.outputs[i]);
    run();
  }
  std::ranges::sort(inputs, {}, &Value::index);
  std::ranges::sort(saved, [&](const Value* a, const Value* b) {
    const int32_t x = joint.producer(a), y = joint.producer(b);
    return x != y ? x < y : a->index < b->index;
  });
}

int64_t peak_of(const Joint& joint, const std::vector<bool>& is_saved) {
  const BackwardPlan plan(joint, is_saved);
  const sym::ShapeEnv& env = *joint.graph.env;
  int64_t saved = 0;
  for (const Value* value : plan.saved) saved += bytes_of(env, value->type);

  // change[i]: bytes of recomputed memory made at step i less those last used at the step before.
  std::vector<int64_t> change(plan.order.size() + 1, 0);
  std::vector<int32_t> last_use(joint.n_ids(), -1);
  for (size_t step = plan.order.size(); step-- > 0;) {
    const auto number = static_cast<size_t>(plan.order[step]);
    const Node& node = *joint.nodes[number];
    for (const Argument& argument : node.arguments)
      graph::for_each_value(argument, [&](const Value* value) {
        int32_t& last = last_use[static_cast<size_t>(owner(value)->id)];
        last = std::max(last, static_cast<int32_t>(step));
      });
    if (joint.sides[number] == Side::Backward || is_view(node)) continue;
    for (const Value* result : node.results) {
      const auto id = static_cast<size_t>(result->id);
      if (is_saved[id]) continue;
      change[step] += bytes_of(env, result->type);
      change[std::max(static_cast<size_t>(last_use[id] + 1), step + 1)] -= bytes_of(env, result->type);
    }
  }
  int64_t live = 0, most = 0;
  for (const int64_t bytes : change) most = std::max(most, live += bytes);
  return saved + most;
}

}  // namespace braze::partition
