#include "braze/runtime/training_executor.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "braze/runtime/gil.h"
#include "braze/runtime/python_tensor.h"
#include "braze/runtime/region_backward.h"
#include "braze/runtime/size_slots.h"
#include "braze/trace/torch_compat.h"

namespace braze::runtime {
namespace {

using torch::autograd::variable_list;

class TrainingExecutor final : public Executable {
 public:
  explicit TrainingExecutor(std::shared_ptr<TrainingRegion> region)
      : region_(std::move(region)), sizes_(*region_->graphs.forward) {
    alias_slots_ = alias_size_slots(region_->plan.outputs, sizes_);
    for (graph::Expr e : region_->graphs.backward->size_inputs) backward_sizes_.push_back(sizes_.ref(e));
    for (graph::Expr e : region_->joint_sizes) joint_sizes_.push_back(sizes_.ref(e));
  }

  int64_t n_outputs() const override { return region_->plan.outputs.n_outputs; }

  bool run(PyObject* const* inputs, int64_t, PyObject** outputs) override {
    try {
      const TrainingPlan& plan = region_->plan;
      std::vector<at::Tensor> callers(plan.inputs.size()), differentiated;
      for (size_t i = 0; i < callers.size(); ++i)
        if (plan.inputs[i].caller >= 0) callers[i] = unpack(inputs[plan.inputs[i].caller]);
      for (int32_t caller : plan.joint.gradients) differentiated.push_back(unpack(inputs[caller]));
      const std::vector<int64_t> size_inputs = unpack_sizes(region_->context.size_callers, inputs);
      std::vector<at::Tensor> results;
      std::vector<int32_t> same_input(static_cast<size_t>(plan.outputs.n_outputs), -1);
      GilRelease scope(true);
      run_forward(callers, differentiated, size_inputs, results, same_input);
      scope.acquire();
      return give_outputs(plan.outputs, inputs, plan.inputs, results, same_input, outputs);
    } catch (...) {
      set_python_error();
      return false;
    }
  }

 private:
  void run_forward(std::span<const at::Tensor> callers, const variable_list& differentiated,
                   std::span<const int64_t> size_inputs, std::vector<at::Tensor>& results, std::vector<int32_t>& same_input) {
    const TrainingPlan& plan = region_->plan;
    std::vector<at::Tensor> bound, written(callers.size());
    for (size_t i = 0; i < callers.size(); ++i) {
      bound.push_back(bind(plan.inputs[i], callers[i]));
      if (region_->is_written[i] && region_->is_primal[i]) {
        const c10::NoGradGuard no_grad;
        written[i] = callers[i].clone();
      }
    }
    at::Tensor random_state;
    if (region_->random && !plan.joint.tangents.empty()) {
      at::Generator generator = at::detail::getDefaultCPUGenerator();
      const std::lock_guard lock(generator.mutex());
      random_state = generator.get_state();
    }
    std::vector<int64_t> sizes(static_cast<size_t>(sizes_.count()));
    sizes_.evaluate(bound, sizes.data(), size_inputs);
    region_->forward->run_tensors(std::move(bound), size_inputs, results);
    for (const trace::JointPlan::Spent& spent : plan.joint.spent)
      torch::autograd::set_history(results[static_cast<size_t>(spent.output)],
                                   trace::make_autograd_node<torch::autograd::Error>(spent.error));
    if (!plan.joint.tangents.empty()) {
      torch::autograd::edge_list edges = torch::autograd::collect_next_edges(differentiated);
      std::shared_ptr<BackwardChain> chain;
      if (const auto parts = region_->parts(edges, differentiated)) {
        chain = std::make_shared<BackwardChain>(parts);
        edges = make_chain(chain, *parts, edges);
      }
      auto node = trace::make_autograd_node<RegionBackward>(region_, std::move(edges), std::move(chain));
      for (const trace::JointPlan::Tangent& tangent : plan.joint.tangents)
        torch::autograd::set_history(results[static_cast<size_t>(tangent.output)], node);
      share_versions(results);
      node->save(callers, results);
      node->save_sizes(values_of(backward_sizes_, sizes), values_of(joint_sizes_, sizes));
      node->save_primals(callers, std::move(written), std::move(random_state));
    }
    finish(callers, sizes, results, same_input);
  }

  // A saved value in the memory of a result must notice when the result is written.
  void share_versions(std::span<const at::Tensor> results) const {
    const size_t n_forward = region_->plan.joint.n_forward;
    for (size_t i = n_forward; i < results.size(); ++i) {
      if (!results[i].defined()) continue;
      for (size_t j = 0; j < n_forward; ++j)
        if (results[j].defined() && results[j].is_alias_of(results[i]))
          torch::autograd::impl::set_version_counter(results[i], torch::autograd::impl::version_counter(results[j]));
    }
  }

  void finish(std::span<const at::Tensor> callers, std::span<const int64_t> sizes, std::vector<at::Tensor>& results,
              std::vector<int32_t>& same_input) const {
    const TrainingPlan& plan = region_->plan;
    std::vector<at::Tensor> new_values;
    for (int32_t output : plan.new_contents) new_values.push_back(results[static_cast<size_t>(output)]);
    const SizeValue size_value = [&](graph::Expr e) { return sizes[static_cast<size_t>(alias_slots_.at(e))]; };
    same_input.resize(results.size(), -1);
    finish_outputs(plan.outputs, callers, new_values, size_value, results, same_input);
  }

  static std::vector<int64_t> values_of(std::span<const SizeSlots::Ref> refs, std::span<const int64_t> sizes) {
    std::vector<int64_t> out;
    for (SizeSlots::Ref ref : refs) out.push_back(SizeSlots::value(ref, sizes.data()));
    return out;
  }

  std::shared_ptr<TrainingRegion> region_;
  SizeSlots sizes_;
  AliasSizeSlots alias_slots_;
  std::vector<SizeSlots::Ref> backward_sizes_, joint_sizes_;
};

}  // namespace

std::shared_ptr<Executable> make_training_executor(TrainingPlan plan, std::shared_ptr<GraphProgram> forward,
                                                   TrainingGraphs graphs, MakeBackward make_backward,
                                                   CompileFunction compile_function, const GraphContext& context) {
  return std::make_shared<TrainingExecutor>(std::make_shared<TrainingRegion>(
      std::move(plan), std::move(forward), std::move(graphs), std::move(make_backward), std::move(compile_function), context));
}

}  // namespace braze::runtime
