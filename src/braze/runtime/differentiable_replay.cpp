#include "braze/runtime/differentiable_replay.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "braze/runtime/differentiable_forms.h"
#include "braze/runtime/operator_call.h"
#include "braze/runtime/size_slots.h"

namespace braze::runtime {
namespace {

// Also what draws random numbers, so that those behind it draw theirs.
bool is_needed(const graph::Node& node, const std::unordered_set<const graph::Value*>& values) {
  return node.op->has(graph::kRandom) ||
         std::any_of(node.results.begin(), node.results.end(), [&](const graph::Value* v) { return values.contains(v); });
}

struct Step {
  OperatorCall call;
  std::vector<size_t> operands, results;   // value numbers
  bool no_grad;
  const graph::Node* node = nullptr;
  DifferentiableForm form = nullptr;       // run instead of the call
};

class Replay final : public DifferentiableReplay {
 public:
  Replay(std::shared_ptr<const graph::Graph> joint, const GraphContext& context)
      : joint_(std::move(joint)), sizes_(*joint_), n_forward_(context.joint->n_forward) {
    std::unordered_map<const graph::Value*, size_t> number;
    for (const graph::Value* input : joint_->inputs) number.emplace(input, number.size());
    const SizeSlot slot = [&](graph::Expr e) { return sizes_.slot(e); };
    const ObjectOf object = [&](int32_t i) { return context.objects[static_cast<size_t>(i)]; };
    const std::unordered_set<const graph::Value*> needed = values_for_gradients(*joint_, n_forward_);
    for (const graph::Node* node : joint_->nodes) {
      if (!is_needed(*node, needed)) continue;
      Step step{OperatorCall(*node, slot, object), {}, {}, (node->tags & graph::kNoGrad) != 0, node,
                differentiable_form(*node->op)};
      for (const graph::Argument& argument : node->arguments)
        graph::for_each_value(argument, [&](graph::Value* v) { step.operands.push_back(number.at(v)); });
      for (const graph::Value* result : node->results) step.results.push_back(number.emplace(result, number.size()).first->second);
      steps_.push_back(std::move(step));
    }
    n_values_ = number.size();
    for (size_t i = n_forward_; i < joint_->outputs.size(); ++i)
      gradients_.push_back(joint_->outputs[i] == nullptr ? -1 : static_cast<int64_t>(number.at(joint_->outputs[i])));
  }

  std::vector<at::Tensor> run(std::span<const at::Tensor> inputs, std::span<const int64_t> size_inputs) const override {
    std::vector<at::Tensor> values(inputs.begin(), inputs.end()), operands, results;
    values.resize(n_values_);
    std::vector<int64_t> sizes(static_cast<size_t>(sizes_.count()));
    sizes_.evaluate(inputs, sizes.data(), size_inputs);
    for (const Step& step : steps_) {
      operands.clear();
      results.clear();
      for (size_t v : step.operands) operands.push_back(values[v]);
      const c10::AutoGradMode mode(!step.no_grad);
      if (step.form != nullptr) results = step.form(*step.node, operands);
      else step.call.run(operands, sizes.data(), results);
      for (size_t i = 0; i < step.results.size(); ++i) values[step.results[i]] = std::move(results[i]);
    }
    std::vector<at::Tensor> out;
    for (int64_t v : gradients_) out.push_back(v < 0 ? at::Tensor() : values[static_cast<size_t>(v)]);
    return out;
  }

 private:
  std::shared_ptr<const graph::Graph> joint_;
  SizeSlots sizes_;
  size_t n_forward_, n_values_ = 0;
  std::vector<Step> steps_;
  std::vector<int64_t> gradients_;     // value numbers, -1: none
};

}  // namespace

std::unique_ptr<DifferentiableReplay> make_differentiable_replay(std::shared_ptr<const graph::Graph> joint,
                                                                 const GraphContext& context) {
  return std::make_unique<Replay>(std::move(joint), context);
}

std::unordered_set<const graph::Value*> values_for_gradients(const graph::Graph& joint, size_t n_forward) {
  std::unordered_set<const graph::Value*> needed(joint.outputs.begin() + static_cast<int64_t>(n_forward), joint.outputs.end());
  for (auto it = joint.nodes.rbegin(); it != joint.nodes.rend(); ++it) {
    if (!is_needed(**it, needed)) continue;
    for (const graph::Argument& argument : (*it)->arguments)
      graph::for_each_value(argument, [&](graph::Value* v) { needed.insert(v); });
  }
  return needed;
}

bool draws_random_numbers(const graph::Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const graph::Node* node) { return node->op->has(graph::kRandom); });
}

}  // namespace braze::runtime
