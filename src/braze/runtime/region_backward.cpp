#include "braze/runtime/region_backward.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace braze::runtime {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using BackwardInput = TrainingPlan::BackwardInput;

RegionBackward::Layout::Layout(const at::Tensor& output) : sizes(output.sizes()), strides(output.strides()) {
  // Gradients of outputs whose elements share memory were traced dense.
  if (output.is_non_overlapping_and_dense()) return;
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0; stride *= std::max<int64_t>(sizes[d], 1)) strides[d] = stride;
}

bool RegionBackward::Layout::matches(const at::Tensor& tensor) const {
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != 1 && tensor.strides()[d] != strides[d]) return false;
  return true;
}

void RegionBackward::save(std::span<const at::Tensor> callers, std::span<const at::Tensor> outputs) {
  const TrainingPlan& plan = region_->plan;
  std::vector<bool> tracked(outputs.size());
  for (const trace::JointPlan::Tangent& tangent : plan.joint.tangents) {
    tracked[static_cast<size_t>(tangent.output)] = true;
    const at::Tensor& output = outputs[static_cast<size_t>(tangent.output)];
    layouts_.emplace_back(output);
    options_.push_back(output.options());
  }
  for (const BackwardInput& input : plan.backward_inputs) {
    const auto i = static_cast<size_t>(input.index);
    switch (input.kind) {
      case BackwardInput::Kind::Input: saved_.emplace_back(callers[i], false); break;
      case BackwardInput::Kind::Output: saved_.emplace_back(outputs[i], tracked[i]); break;
      case BackwardInput::Kind::Tangent: saved_.emplace_back(); break;
    }
  }
}

void RegionBackward::save_sizes(std::vector<int64_t> sizes, std::vector<int64_t> joint_sizes) {
  sizes_ = std::move(sizes);
  joint_sizes_ = std::move(joint_sizes);
}

void RegionBackward::save_primals(std::span<const at::Tensor> callers, std::vector<at::Tensor> written, at::Tensor random_state) {
  for (size_t i = 0; i < callers.size(); ++i)
    primals_.emplace_back(!region_->is_primal[i] ? at::Tensor() : written[i].defined() ? written[i] : callers[i], false);
  random_state_ = std::move(random_state);
}

variable_list RegionBackward::apply(variable_list&& gradients) {
  const std::lock_guard lock(mutex_);
  const BackwardSelection selection = this->selection(gradients);
  spend(selection, std::exchange(releases_, false));
  if (chain_ != nullptr) return begin_chain(selection, gradients);
  return c10::GradMode::is_enabled() ? differentiable_gradients(selection, gradients) : gradients_of(selection, gradients);
}

void RegionBackward::release_variables() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(has_released_, false)) return;
  unused_.assign(saved_.size(), true);   // the history is given up
  free_unused();
}

// Gradients that nobody asks for, as torch.autograd.grad does for some inputs, are not computed.
BackwardSelection RegionBackward::selection(const variable_list& gradients) const {
  BackwardSelection out;
  for (size_t i = 0; i < layouts_.size(); ++i) out.tangents.push_back(gradients[i].defined());
  for (size_t i = 0; i < region_->plan.joint.gradients.size(); ++i)
    out.gradients.push_back((chain_ != nullptr || task_should_compute_output(i)) && region_->takes_part(i, out.tangents));
  return out;
}

// Backward was traced for gradients with the layout of the results.
at::Tensor RegionBackward::tangent(const at::Tensor& gradient, size_t i) const {
  const Layout& layout = layouts_[i];
  if (gradient.layout() == c10::kStrided && !gradient.is_conj() && !gradient.is_neg() && layout.matches(gradient)) return gradient;
  at::Tensor out = at::empty_strided(layout.sizes, layout.strides, options_[i]);
  return out.copy_(gradient.layout() == c10::kStrided ? gradient : gradient.to_dense());
}

// Refuses a pass of which a part has run and freed what it saved; notes what this one frees.
void RegionBackward::spend(const BackwardSelection& selection, bool releases) {
  has_released_ = releases;
  unused_.assign(saved_.size(), false);
  const bool is_first = !all_spent_ && spent_.empty();
  if (is_first && !releases) return;
  if (is_first && region_->is_whole(selection)) {
    all_spent_ = true;
    unused_.assign(saved_.size(), true);
    return;
  }
  const BackwardSteps& steps = region_->steps();
  spent_.resize(steps.steps().size(), all_spent_);
  for (size_t i = 0; i < spent_.size(); ++i) {
    if (!BackwardSteps::runs(steps.steps()[i], selection)) continue;
    TORCH_CHECK(!spent_[i], torch::autograd::ERR_BACKWARD_TWICE);
    if (releases) spent_[i] = true;
  }
  if (releases) unused_ = steps.unused_inputs(spent_);
}

// What is bound to a program by then is freed by the program, each when it was used.
void RegionBackward::free_unused() {
  for (size_t i = 0; i < saved_.size(); ++i)
    if (unused_[i]) saved_[i].reset_data();
  if (std::ranges::find(unused_, false) != unused_.end()) return;
  for (SavedVariable& primal : primals_) primal.reset_data();
}

std::vector<at::Tensor> RegionBackward::bind_backward(const BackwardPart<GraphProgram>& part, const variable_list& gradients) {
  const TrainingPlan& plan = region_->plan;
  std::vector<at::Tensor> bound;
  for (const size_t i : part.inputs) {
    const BackwardInput& input = plan.backward_inputs[i];
    const auto n = static_cast<size_t>(input.index);
    switch (input.kind) {
      case BackwardInput::Kind::Input: bound.push_back(bind(plan.inputs[n], saved_[i].unpack())); break;
      case BackwardInput::Kind::Output: bound.push_back(saved_[i].unpack(getptr())); break;
      case BackwardInput::Kind::Tangent: bound.push_back(tangent(gradients[n], n)); break;
    }
  }
  free_unused();
  return bound;
}

variable_list RegionBackward::gradients_of(const BackwardSelection& selection, const variable_list& gradients) {
  const BackwardPart<GraphProgram>& part = region_->backward(selection);
  variable_list results;
  part.program->run_tensors(bind_backward(part, gradients), sizes_, results);
  return results;
}

variable_list RegionBackward::begin_chain(const BackwardSelection& selection, const variable_list& gradients) {
  BackwardPass pass;
  pass.took_part = selection.gradients;
  if (c10::GradMode::is_enabled()) {
    pass.results = differentiable_gradients(selection, gradients);
  } else if (!region_->is_whole(selection)) {
    pass.results = gradients_of(selection, gradients);
  } else {
    const BackwardPart<GraphProgram>& part = region_->backward(selection);
    pass.program = part.program;
    pass.run = pass.program->start(bind_backward(part, gradients), sizes_);
  }
  return chain_->begin(std::move(pass));
}

variable_list RegionBackward::differentiable_gradients(const BackwardSelection& selection, const variable_list& gradients) {
  const TrainingPlan& plan = region_->plan;
  TORCH_CHECK(plan.joint.no_double_backward.empty(), "braze: the backward pass of this compiled region can't be "
              "differentiated: ", plan.joint.no_double_backward, "; run the function without braze.compile to do so");
  const BackwardPart<const DifferentiableReplay>& part = region_->replay(selection);
  std::vector<at::Tensor> inputs;
  for (const size_t i : part.inputs) {
    if (i >= plan.inputs.size()) {
      const auto t = std::ranges::find(plan.joint.tangents, static_cast<int32_t>(i), &trace::JointPlan::Tangent::input);
      const auto n = static_cast<size_t>(t - plan.joint.tangents.begin());
      inputs.push_back(tangent(gradients[n], n));
      continue;
    }
    TORCH_CHECK(plan.inputs[i].kind != InputBinding::Kind::StorageBase,
                "braze: the backward pass of a compiled region whose inputs share memory can't be differentiated; "
                "run the function without braze.compile to do so");
    inputs.push_back(plan.inputs[i].kind == InputBinding::Kind::Constant ? plan.inputs[i].constant : primals_[i].unpack());
  }
  free_unused();
  if (!region_->random) return part.program->run(inputs, joint_sizes_);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  at::Tensor now;
  {
    const std::lock_guard lock(generator.mutex());
    now = generator.get_state();
    generator.set_state(random_state_);
  }
  variable_list results;
  const auto restore = [&] {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(now);
  };
  try {
    results = part.program->run(inputs, joint_sizes_);
  } catch (...) {
    restore();
    throw;
  }
  restore();
  return results;
}

}  // namespace braze::runtime
