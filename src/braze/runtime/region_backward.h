// The autograd node of one call of a compiled region: from its results' gradients to its inputs' gradients.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "braze/runtime/training_region.h"

namespace braze::runtime {

class RegionBackward final : public torch::autograd::Node {
 public:
  // `chain`: the node is the head of one, or nullptr.
  RegionBackward(std::shared_ptr<TrainingRegion> region, torch::autograd::edge_list edges, std::shared_ptr<BackwardChain> chain)
      : Node(std::move(edges)), region_(std::move(region)), chain_(std::move(chain)) {}

  std::string name() const override { return "CompiledRegionBackward"; }

  // outputs: of the forward program; the tracked ones have this node as their history already. callers: the
  // Python-visible tensor of each graph input (undefined for constants).
  void save(std::span<const at::Tensor> callers, std::span<const at::Tensor> outputs);
  // The size inputs of the backward graph, and TrainingRegion::joint_sizes.
  void save_sizes(std::vector<int64_t> sizes, std::vector<int64_t> joint_sizes);
  // The inputs as they were before the call, for a backward pass that is differentiated.
  void save_primals(std::span<const at::Tensor> callers, std::vector<at::Tensor> written, at::Tensor random_state);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  void will_release_variables() override { releases_ = true; }
  void release_variables() override;

 private:
  struct Layout {
    c10::SmallVector<int64_t, 5> sizes, strides;
    explicit Layout(const at::Tensor& output);
    bool matches(const at::Tensor& tensor) const;
  };
  BackwardSelection selection(const torch::autograd::variable_list& gradients) const;
  at::Tensor tangent(const at::Tensor& gradient, size_t i) const;
  void spend(const BackwardSelection& selection, bool releases);
  void free_unused();
  std::vector<at::Tensor> bind_backward(const BackwardPart<GraphProgram>& part, const torch::autograd::variable_list& gradients);
  torch::autograd::variable_list gradients_of(const BackwardSelection& selection, const torch::autograd::variable_list& gradients);
  torch::autograd::variable_list differentiable_gradients(const BackwardSelection& selection, const torch::autograd::variable_list& gradients);
  torch::autograd::variable_list begin_chain(const BackwardSelection& selection, const torch::autograd::variable_list& gradients);

  std::shared_ptr<TrainingRegion> region_;
  std::shared_ptr<BackwardChain> chain_;
  std::vector<torch::autograd::SavedVariable> saved_;       // one per backward input
  std::vector<torch::autograd::SavedVariable> primals_;     // one per graph input of the forward graph
  std::vector<Layout> layouts_;            // of the tangents
  std::vector<at::TensorOptions> options_;
  std::vector<int64_t> sizes_, joint_sizes_;
  at::Tensor random_state_;
  bool all_spent_ = false;                 // a pass ran that was whole
  std::vector<bool> spent_;                // of BackwardSteps::steps(); empty: as all_spent_ says
  std::vector<bool> unused_;               // saved values that the pass that runs is the last to use
  bool releases_ = false;                  // the pass to come frees what it uses
  bool has_released_ = false;              // and it did
};

}  // namespace braze::runtime
