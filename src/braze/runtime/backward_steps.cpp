#include "braze/runtime/backward_steps.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace braze::runtime {
namespace {

using Bits = std::vector<bool>;
using graph::Node;
using graph::Value;

bool intersect(const Bits& a, const Bits& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] && b[i]) return true;
  return false;
}

// Sets the bits of `from` in `to`, which may be empty.
void merge(Bits& to, const Bits& from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i]) to[i] = true;
}

template <class F>
void for_each_operand(const Node& node, F&& f) {
  for (const graph::Argument& argument : node.arguments) graph::for_each_value(argument, f);
}

// Per value that depends on tangents: on which.
using TangentsOf = std::unordered_map<const Value*, Bits>;
TangentsOf tangents_of(const graph::Graph& graph, std::span<const int32_t> tangent_of, size_t n_tangents) {
  TangentsOf out;
  for (size_t i = 0; i < tangent_of.size(); ++i) {
    if (tangent_of[i] < 0) continue;
    Bits& own = out[graph.inputs[i]];
    own.resize(n_tangents);
    own[static_cast<size_t>(tangent_of[i])] = true;
  }
  for (const Node* node : graph.nodes) {
    Bits all;
    for_each_operand(*node, [&](const Value* v) {
      if (const auto found = out.find(v); found != out.end()) merge(all, found->second);
    });
    if (all.empty()) continue;
    for (const Value* result : node->results) out[result] = all;
  }
  return out;
}

// Per value that outputs from number `first` on depend on: which of these.
std::unordered_map<const Value*, Bits> gradients_behind(const graph::Graph& graph, size_t first) {
  std::unordered_map<const Value*, Bits> out;
  const size_t n = graph.outputs.size() - first;
  for (size_t i = 0; i < n; ++i) {
    if (graph.outputs[first + i] == nullptr) continue;
    Bits& own = out[graph.outputs[first + i]];
    own.resize(n);
    own[i] = true;
  }
  for (auto it = graph.nodes.rbegin(); it != graph.nodes.rend(); ++it) {
    Bits all;
    for (const Value* result : (*it)->results)
      if (const auto found = out.find(result); found != out.end()) merge(all, found->second);
    if (!all.empty()) for_each_operand(**it, [&](const Value* v) { merge(out[v], all); });
  }
  return out;
}

std::vector<int32_t> tangent_inputs(const graph::Graph& joint, const trace::JointPlan& plan) {
  std::vector<int32_t> out(joint.inputs.size(), -1);
  for (size_t t = 0; t < plan.tangents.size(); ++t)
    if (plan.tangents[t].input >= 0) out[static_cast<size_t>(plan.tangents[t].input)] = static_cast<int32_t>(t);
  return out;
}

// Made of an operand's type alone.
bool reads_no_data(const graph::Op& op) {
  return op.name.ends_with("_like") || op.name.starts_with("aten.new_");
}

}  // namespace

BackwardSteps::BackwardSteps(const graph::Graph& joint, const trace::JointPlan& plan, const graph::Graph& backward,
                             std::span<const int32_t> tangent_of)
    : n_tangents_(plan.tangents.size()), n_gradients_(plan.gradients.size()) {
  {
    const std::vector<int32_t> inputs = tangent_inputs(joint, plan);
    const TangentsOf tangents = tangents_of(joint, inputs, n_tangents_);
    const auto gradients = gradients_behind(joint, plan.n_forward);
    std::unordered_set<const Value*> saved;   // what the forward pass could have saved
    for (size_t i = 0; i < joint.inputs.size(); ++i)
      if (inputs[i] < 0) saved.insert(joint.inputs[i]);
    for (const Node* node : joint.nodes) {
      bool uses_saved = node->op->has(graph::kRandom);
      if (!reads_no_data(*node->op)) for_each_operand(*node, [&](const Value* v) { uses_saved = uses_saved || saved.contains(v); });
      if (!uses_saved || node->results.empty()) continue;
      const auto on = tangents.find(node->result());
      if (on == tangents.end()) {
        saved.insert(node->results.begin(), node->results.end());
        continue;
      }
      Bits behind;
      for (const Value* result : node->results)
        if (const auto found = gradients.find(result); found != gradients.end()) merge(behind, found->second);
      if (!behind.empty()) steps_.push_back({on->second, std::move(behind)});
    }
    std::ranges::sort(steps_);
    const auto repeated = std::ranges::unique(steps_);
    steps_.erase(repeated.begin(), repeated.end());
  }
  const TangentsOf tangents = tangents_of(backward, tangent_of, n_tangents_);
  const auto gradients = gradients_behind(backward, 0);
  using Needs = std::vector<Bits>;
  std::unordered_map<const Value*, Needs> needs;   // of values that depend on no tangent
  const auto note = [&](const Value* v, size_t tangent, const Bits& behind) {
    Needs& own = needs[v];
    own.resize(n_tangents_);
    merge(own[tangent], behind);
  };
  for (size_t g = 0; g < backward.outputs.size(); ++g) {
    if (backward.outputs[g] == nullptr || tangents.contains(backward.outputs[g])) continue;
    Bits behind(n_gradients_);
    behind[g] = true;
    for (size_t t = 0; t < n_tangents_; ++t) note(backward.outputs[g], t, behind);
  }
  for (auto it = backward.nodes.rbegin(); it != backward.nodes.rend(); ++it) {
    for (const Value* result : (*it)->results) {
      const auto on = tangents.find(result);
      const auto behind = gradients.find(result);
      const auto own = needs.find(result);
      const Needs inherited = own == needs.end() ? Needs() : own->second;
      for_each_operand(**it, [&](const Value* v) {
        if (tangents.contains(v)) return;
        for (size_t t = 0; t < n_tangents_; ++t) {
          if (on != tangents.end() && behind != gradients.end() && on->second[t]) note(v, t, behind->second);
          if (!inherited.empty()) note(v, t, inherited[t]);
        }
      });
    }
  }
  for (const Value* input : backward.inputs) {
    const auto found = needs.find(input);
    needs_.push_back(found == needs.end() ? Needs(n_tangents_) : found->second);
  }
}

bool BackwardSteps::runs(const Step& step, const BackwardSelection& selection) {
  return intersect(step.tangents, selection.tangents) && intersect(step.gradients, selection.gradients);
}

std::vector<bool> BackwardSteps::unused_inputs(const std::vector<bool>& spent) const {
  std::vector<Bits> closed(n_tangents_, Bits(n_gradients_));   // per tangent: gradients that meet a spent step on the way
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (!spent[i]) continue;
    for (size_t t = 0; t < n_tangents_; ++t)
      if (steps_[i].tangents[t]) merge(closed[t], steps_[i].gradients);
  }
  std::vector<bool> out;
  for (const std::vector<Bits>& needs : needs_) {
    bool needed = false;
    for (size_t t = 0; t < n_tangents_ && !needed; ++t)
      for (size_t g = 0; g < needs[t].size() && !needed; ++g) needed = needs[t][g] && !closed[t][g];
    out.push_back(!needed);
  }
  return out;
}

std::vector<std::vector<bool>> tangents_of_gradients(const graph::Graph& joint, const trace::JointPlan& plan) {
  const TangentsOf tangents = tangents_of(joint, tangent_inputs(joint, plan), plan.tangents.size());
  std::vector<Bits> out;
  for (size_t i = plan.n_forward; i < joint.outputs.size(); ++i) {
    const auto found = tangents.find(joint.outputs[i]);
    out.push_back(found == tangents.end() ? Bits(plan.tangents.size()) : found->second);
  }
  return out;
}

}  // namespace braze::runtime
