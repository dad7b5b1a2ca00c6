#include "braze/runtime/training_region.h"

#include <algorithm>
#include <unordered_set>

#include "braze/graph/restrict.h"
#include "braze/graph/size_symbols.h"
#include "braze/runtime/gil.h"

namespace braze::runtime {
namespace {

// Selections for which code is made; those beyond run node by node.
constexpr size_t kMostCompiled = 8;

std::vector<size_t> all_numbers(size_t n) {
  std::vector<size_t> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = i;
  return out;
}

}  // namespace

TrainingRegion::TrainingRegion(TrainingPlan its_plan, std::shared_ptr<GraphProgram> its_forward, TrainingGraphs its_graphs,
                               MakeBackward make_backward, CompileFunction compile_function, const GraphContext& its_context)
    : plan(std::move(its_plan)), forward(std::move(its_forward)), graphs(std::move(its_graphs)), context(its_context),
      random(draws_random_numbers(*graphs.joint)), joint_sizes(graph::size_symbols(*graphs.joint)),
      make_backward_(std::move(make_backward)), compile_function_(std::move(compile_function)), depends_(tangents_of_gradients(*graphs.joint, plan.joint)) {
  is_written.resize(plan.inputs.size());
  for (const graph::Mutation& mutation : plan.outputs.mutations) is_written[static_cast<size_t>(mutation.input)] = true;
  const std::unordered_set<const graph::Value*> needed = values_for_gradients(*graphs.joint, plan.joint.n_forward);
  for (const graph::Value* input : graphs.joint->inputs) is_primal.push_back(needed.contains(input));
}

BackwardSelection TrainingRegion::whole() const {
  return {std::vector<bool>(plan.joint.tangents.size(), true), std::vector<bool>(plan.joint.gradients.size(), true)};
}

bool TrainingRegion::is_whole(const BackwardSelection& selection) const {
  return std::ranges::find(selection.tangents, false) == selection.tangents.end() &&
         std::ranges::find(selection.gradients, false) == selection.gradients.end();
}

bool TrainingRegion::takes_part(size_t gradient, const std::vector<bool>& tangents) const {
  const std::vector<bool>& on = depends_[gradient];
  bool any = false, there = false;
  for (size_t t = 0; t < on.size(); ++t) {
    any = any || on[t];
    there = there || (on[t] && tangents[t]);
  }
  return there || !any;
}

std::vector<bool> TrainingRegion::absent_inputs(std::vector<int32_t> tangent_of, const std::vector<bool>& tangents) const {
  std::vector<bool> out;
  for (const int32_t t : tangent_of) out.push_back(t >= 0 && !tangents[static_cast<size_t>(t)]);
  return out;
}

std::vector<int32_t> TrainingRegion::backward_tangents() const {
  std::vector<int32_t> out;
  for (const TrainingPlan::BackwardInput& input : plan.backward_inputs)
    out.push_back(input.kind == TrainingPlan::BackwardInput::Kind::Tangent ? input.index : -1);
  return out;
}

const BackwardPart<GraphProgram>& TrainingRegion::backward(const BackwardSelection& selection) {
  BackwardPart<GraphProgram>* part = nullptr;
  bool by_aten = false;
  {
    const std::lock_guard lock(mutex_);
    by_aten = backwards_.size() >= kMostCompiled;
    part = &backwards_[selection];
  }
  std::call_once(part->made, [&] {
    std::shared_ptr<const graph::Graph> graph = graphs.backward;
    std::vector<size_t> inputs = all_numbers(graph->inputs.size());
    const HoldGil gil;
    if (!is_whole(selection)) {
      graph::Restricted some = graph::restrict(*graph, absent_inputs(backward_tangents(), selection.tangents), selection.gradients, false);
      graph = std::move(some.graph);
      inputs = std::move(some.inputs);
    }
    part->inputs = std::move(inputs);
    part->program = make_backward_(std::move(graph), by_aten);
  });
  return *part;
}

const BackwardPart<const DifferentiableReplay>& TrainingRegion::replay(const BackwardSelection& selection) {
  BackwardPart<const DifferentiableReplay>* part = nullptr;
  {
    const std::lock_guard lock(mutex_);
    part = &replays_[selection];
  }
  std::call_once(part->made, [&] {
    std::vector<int32_t> tangent_of(graphs.joint->inputs.size(), -1);
    for (size_t t = 0; t < plan.joint.tangents.size(); ++t)
      if (const int32_t input = plan.joint.tangents[t].input; input >= 0) tangent_of[static_cast<size_t>(input)] = static_cast<int32_t>(t);
    std::vector<bool> wanted(plan.joint.n_forward);
    wanted.insert(wanted.end(), selection.gradients.begin(), selection.gradients.end());
    graph::Restricted some = graph::restrict(*graphs.joint, absent_inputs(std::move(tangent_of), selection.tangents), wanted, true);
    some.graph->size_inputs = joint_sizes;
    part->inputs = std::move(some.inputs);
    std::unique_ptr<DifferentiableReplay> by_node = make_differentiable_replay(std::move(some.graph), context);
    part->program = compile_function_ == nullptr ? std::move(by_node) : make_compiled_replay(std::move(by_node), compile_function_);
  });
  return *part;
}

const BackwardSteps& TrainingRegion::steps() {
  std::call_once(steps_made_, [&] {
    steps_ = std::make_unique<BackwardSteps>(*graphs.joint, plan.joint, *graphs.backward, backward_tangents());
  });
  return *steps_;
}

std::shared_ptr<const BackwardParts> TrainingRegion::parts(const torch::autograd::edge_list& edges,
                                                           const torch::autograd::variable_list& differentiated) {
  if (!hooks_wait(edges)) return nullptr;
  std::call_once(split_, [&] {
    std::vector<int64_t> bytes;
    for (const at::Tensor& tensor : differentiated) bytes.push_back(static_cast<int64_t>(tensor.nbytes()));
    parts_ = std::make_shared<BackwardParts>(split_backward(backward(whole()).program->last_uses(), bytes));
  });
  return parts_->count() > 1 ? parts_ : nullptr;
}

}  // namespace braze::runtime
