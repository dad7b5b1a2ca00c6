#include "braze/runtime/training_executor.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "braze/runtime/backward_chain.h"
#include "braze/runtime/differentiable_replay.h"
#include "braze/runtime/gil.h"
#include "braze/runtime/python_tensor.h"
#include "braze/runtime/size_slots.h"
#include "braze/support/check.h"
#include "braze/trace/torch_compat.h"

namespace braze::runtime {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using BackwardInput = TrainingPlan::BackwardInput;

// What every call and every backward node of one compiled region share.
struct Region {
  TrainingPlan plan;
  std::shared_ptr<GraphProgram> forward;
  std::shared_ptr<const graph::Graph> joint;
  GraphContext context;                        // of the joint graph
  bool random = false;                         // the joint graph draws random numbers
  std::vector<bool> is_primal, is_written;     // per graph input: gradients depend on it; the forward pass writes it
  std::vector<int32_t> tangent_inputs;         // of the joint graph, per tangent (-1: unused)
  std::vector<std::vector<size_t>> depends;    // per gradient: the tangents that it depends on

  std::shared_ptr<GraphProgram> backward() {
    std::call_once(made_, [&] {
      const PyGILState_STATE state = PyGILState_Ensure();
      try {
        backward_ = make_backward();
      } catch (...) {
        PyGILState_Release(state);
        throw;
      }
      PyGILState_Release(state);
      make_backward = nullptr;
    });
    return backward_;
  }
  // One part, unless hooks wait for the gradients.
  std::shared_ptr<const BackwardParts> parts(const torch::autograd::edge_list& edges, const variable_list& differentiated) {
    if (!hooks_wait(edges)) return nullptr;
    std::call_once(split_, [&] {
      std::vector<int64_t> bytes;
      for (const at::Tensor& tensor : differentiated) bytes.push_back(static_cast<int64_t>(tensor.nbytes()));
      parts_ = std::make_shared<BackwardParts>(split_backward(backward()->last_uses(), bytes));
    });
    return parts_->count() > 1 ? parts_ : nullptr;
  }
  const DifferentiableReplay& replay() {
    std::call_once(replay_made_, [&] { replay_ = make_differentiable_replay(joint, context); });
    return *replay_;
  }

  MakeBackward make_backward;

 private:
  std::once_flag made_, replay_made_, split_;
  std::shared_ptr<const BackwardParts> parts_;
  std::shared_ptr<GraphProgram> backward_;
  std::unique_ptr<DifferentiableReplay> replay_;
};

struct Layout {
  c10::SmallVector<int64_t, 5> sizes, strides;
  explicit Layout(const at::Tensor& output) : sizes(output.sizes()), strides(output.strides()) {
    // Gradients of outputs whose elements share memory were traced dense.
    if (output.is_non_overlapping_and_dense()) return;
    int64_t stride = 1;
    for (size_t d = sizes.size(); d-- > 0; stride *= std::max<int64_t>(sizes[d], 1)) strides[d] = stride;
  }
  bool matches(const at::Tensor& tensor) const {
    for (size_t d = 0; d < sizes.size(); ++d)
      if (sizes[d] != 1 && tensor.strides()[d] != strides[d]) return false;
    return true;
  }
};

// One backward step of a compiled region: all its results' gradients to all its inputs' gradients.
class RegionBackward final : public torch::autograd::Node {
 public:
  // `chain`: the node is the head of one, or nullptr.
  RegionBackward(std::shared_ptr<Region> region, torch::autograd::edge_list edges, std::shared_ptr<BackwardChain> chain)
      : Node(std::move(edges)), region_(std::move(region)), chain_(std::move(chain)) {}

  std::string name() const override { return "CompiledRegionBackward"; }

  // outputs: of the forward program; the tracked ones have this node as their history already. callers: the
  // Python-visible tensor of each graph input (undefined for constants).
  void save(std::span<const at::Tensor> callers, std::span<const at::Tensor> outputs) {
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

  // The size inputs of the backward graph, and of the joint one.
  void save_sizes(std::vector<int64_t> sizes, std::vector<int64_t> joint_sizes) {
    sizes_ = std::move(sizes);
    joint_sizes_ = std::move(joint_sizes);
  }

  // The inputs as they were before the call, for a backward pass that is differentiated.
  void save_primals(std::span<const at::Tensor> callers, std::vector<at::Tensor> written, at::Tensor random_state) {
    for (size_t i = 0; i < callers.size(); ++i)
      primals_.emplace_back(!region_->is_primal[i] ? at::Tensor() : written[i].defined() ? written[i] : callers[i], false);
    random_state_ = std::move(random_state);
  }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard lock(mutex_);
    std::vector<at::Tensor> tangents;
    for (size_t i = 0; i < layouts_.size(); ++i) tangents.push_back(tangent(gradients[i], i));
    // As in eager, an input has no gradient if no result that depends on it took part.
    std::vector<bool> took_part;
    for (const std::vector<size_t>& depends : region_->depends)
      took_part.push_back(depends.empty() || std::any_of(depends.begin(), depends.end(), [&](size_t t) { return gradients[t].defined(); }));
    if (chain_ != nullptr) return begin_chain(tangents, std::move(took_part));
    variable_list results = c10::GradMode::is_enabled() ? differentiable_gradients(tangents) : this->gradients(tangents);
    for (size_t i = 0; i < results.size(); ++i)
      if (!took_part[i]) results[i].reset();
    return results;
  }

  void will_release_variables() override { releases_ = true; }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    for (SavedVariable& saved : saved_) saved.reset_data();
    for (SavedVariable& primal : primals_) primal.reset_data();
  }

 private:
  // Backward was traced for gradients with the layout of the results.
  at::Tensor tangent(const at::Tensor& gradient, size_t i) const {
    const Layout& layout = layouts_[i];
    const bool plain = gradient.defined() && gradient.layout() == c10::kStrided && !gradient.is_conj() && !gradient.is_neg();
    if (plain && layout.matches(gradient)) return gradient;
    at::Tensor out = at::empty_strided(layout.sizes, layout.strides, options_[i]);
    if (!gradient.defined()) return out.zero_();
    return out.copy_(gradient.layout() == c10::kStrided ? gradient : gradient.to_dense());
  }

  std::vector<at::Tensor> bind_backward(std::span<const at::Tensor> tangents) {
    const TrainingPlan& plan = region_->plan;
    std::vector<at::Tensor> bound;
    for (size_t i = 0; i < plan.backward_inputs.size(); ++i) {
      const BackwardInput& input = plan.backward_inputs[i];
      switch (input.kind) {
        case BackwardInput::Kind::Input:
          bound.push_back(bind(plan.inputs[static_cast<size_t>(input.index)], saved_[i].unpack()));
          break;
        case BackwardInput::Kind::Output: bound.push_back(saved_[i].unpack(getptr())); break;
        case BackwardInput::Kind::Tangent: bound.push_back(tangents[static_cast<size_t>(input.index)]); break;
      }
    }
    if (releases_)
      for (SavedVariable& saved : saved_) saved.reset_data();   // the program frees each when it was used
    return bound;
  }

  variable_list gradients(std::span<const at::Tensor> tangents) {
    variable_list results;
    region_->backward()->run_tensors(bind_backward(tangents), sizes_, results);
    return results;
  }

  variable_list begin_chain(std::span<const at::Tensor> tangents, std::vector<bool> took_part) {
    BackwardPass pass;
    pass.took_part = std::move(took_part);
    if (c10::GradMode::is_enabled()) {
      pass.results = differentiable_gradients(tangents);
    } else {
      pass.program = region_->backward();
      pass.run = pass.program->start(bind_backward(tangents), sizes_);
    }
    return chain_->begin(std::move(pass));
  }

  variable_list differentiable_gradients(std::span<const at::Tensor> tangents) {
    const TrainingPlan& plan = region_->plan;
    TORCH_CHECK(plan.joint.no_double_backward.empty(), "braze: the backward pass of this compiled region can't be "
                "differentiated: ", plan.joint.no_double_backward, "; run the function without braze.compile to do so");
    std::vector<at::Tensor> inputs(region_->joint->inputs.size());
    for (size_t i = 0; i < plan.inputs.size(); ++i) {
      const at::Tensor primal = primals_[i].unpack();
      TORCH_CHECK(plan.inputs[i].kind != InputBinding::Kind::StorageBase,
                  "braze: the backward pass of a compiled region whose inputs share memory can't be differentiated; "
                  "run the function without braze.compile to do so");
      inputs[i] = plan.inputs[i].kind == InputBinding::Kind::Constant ? plan.inputs[i].constant : primal;
    }
    for (size_t i = 0; i < tangents.size(); ++i)
      if (const int32_t input = region_->tangent_inputs[i]; input >= 0) inputs[static_cast<size_t>(input)] = tangents[i];
    if (!region_->random) return region_->replay().run(inputs, joint_sizes_);
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
      results = region_->replay().run(inputs, joint_sizes_);
    } catch (...) {
      restore();
      throw;
    }
    restore();
    return results;
  }

  std::shared_ptr<Region> region_;
  std::shared_ptr<BackwardChain> chain_;
  std::vector<SavedVariable> saved_;       // one per backward input
  std::vector<SavedVariable> primals_;     // one per graph input of the forward graph
  std::vector<Layout> layouts_;            // of the tangents
  std::vector<at::TensorOptions> options_;
  std::vector<int64_t> sizes_, joint_sizes_;   // size inputs
  at::Tensor random_state_;
  bool releases_ = false;                  // this backward pass is the last one
};

class TrainingExecutor final : public Executable {
 public:
  TrainingExecutor(std::shared_ptr<Region> region, const graph::Graph& forward)
      : region_(std::move(region)), sizes_(forward) {
    alias_slots_ = alias_size_slots(region_->plan.outputs, sizes_);
    for (graph::Expr e : region_->plan.backward_sizes) backward_sizes_.push_back(sizes_.ref(e));
  }

  int64_t n_outputs() const override { return region_->plan.outputs.n_outputs; }

  bool run(PyObject* const* inputs, int64_t, PyObject** outputs) override {
    try {
      const TrainingPlan& plan = region_->plan;
      std::vector<at::Tensor> callers(plan.inputs.size()), differentiated;
      for (size_t i = 0; i < callers.size(); ++i)
        if (plan.inputs[i].caller >= 0) callers[i] = unpack(inputs[plan.inputs[i].caller]);
      for (int32_t caller : plan.joint.gradients) differentiated.push_back(unpack(inputs[caller]));
      std::vector<int64_t> size_inputs = unpack_sizes(region_->context.size_callers, inputs);
      std::vector<at::Tensor> results;
      std::vector<int32_t> same_input(static_cast<size_t>(plan.outputs.n_outputs), -1);
      GilRelease scope(true);
      run_forward(callers, differentiated, std::move(size_inputs), results, same_input);
      scope.acquire();
      return give_outputs(plan.outputs, inputs, plan.inputs, results, same_input, outputs);
    } catch (...) {
      set_python_error();
      return false;
    }
  }

 private:
  void run_forward(std::span<const at::Tensor> callers, const variable_list& differentiated,
                   std::vector<int64_t> size_inputs, std::vector<at::Tensor>& results, std::vector<int32_t>& same_input) {
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
    std::vector<int64_t> sizes(static_cast<size_t>(sizes_.count())), backward_sizes;
    sizes_.evaluate(bound, sizes.data(), size_inputs);
    for (SizeSlots::Ref ref : backward_sizes_) backward_sizes.push_back(SizeSlots::value(ref, sizes.data()));
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
      node->save_sizes(std::move(backward_sizes), std::move(size_inputs));
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

  std::shared_ptr<Region> region_;
  SizeSlots sizes_;
  AliasSizeSlots alias_slots_;
  std::vector<SizeSlots::Ref> backward_sizes_;
};

// Whether each graph input has a part in the gradients.
std::vector<bool> primals_of(const graph::Graph& joint, size_t n_forward) {
  const std::unordered_set<const graph::Value*> needed = values_for_gradients(joint, n_forward);
  std::vector<bool> out;
  for (const graph::Value* input : joint.inputs) out.push_back(needed.contains(input));
  return out;
}

// For each gradient the tangents that it depends on.
std::vector<std::vector<size_t>> dependences(const graph::Graph& joint, const trace::JointPlan& plan) {
  std::unordered_map<const graph::Value*, std::vector<bool>> of;
  for (size_t t = 0; t < plan.tangents.size(); ++t) {
    if (plan.tangents[t].input < 0) continue;
    std::vector<bool>& own = of[joint.inputs[static_cast<size_t>(plan.tangents[t].input)]];
    own.resize(plan.tangents.size());
    own[t] = true;
  }
  for (const graph::Node* node : joint.nodes) {
    std::vector<bool> all;
    for (const graph::Argument& argument : node->arguments)
      graph::for_each_value(argument, [&](graph::Value* v) {
        const auto found = of.find(v);
        if (found == of.end()) return;
        all.resize(plan.tangents.size());
        for (size_t t = 0; t < all.size(); ++t) all[t] = all[t] || found->second[t];
      });
    if (all.empty()) continue;
    for (const graph::Value* result : node->results) of[result] = all;
  }
  std::vector<std::vector<size_t>> out;
  for (size_t i = plan.n_forward; i < joint.outputs.size(); ++i) {
    std::vector<size_t>& tangents = out.emplace_back();
    const auto found = of.find(joint.outputs[i]);
    if (found == of.end()) continue;
    for (size_t t = 0; t < found->second.size(); ++t)
      if (found->second[t]) tangents.push_back(t);
  }
  return out;
}

}  // namespace

std::shared_ptr<Executable> make_training_executor(TrainingPlan plan, std::shared_ptr<GraphProgram> forward,
                                                   const graph::Graph& forward_graph, MakeBackward make_backward,
                                                   std::shared_ptr<const graph::Graph> joint,
                                                   const GraphContext& context) {
  CHECK(context.joint.has_value());
  auto region = std::make_shared<Region>();
  region->is_written.resize(plan.inputs.size());
  for (const graph::Mutation& mutation : plan.outputs.mutations)
    region->is_written[static_cast<size_t>(mutation.input)] = true;
  for (const trace::JointPlan::Tangent& tangent : plan.joint.tangents) region->tangent_inputs.push_back(tangent.input);
  region->is_primal = primals_of(*joint, context.joint->n_forward);
  region->depends = dependences(*joint, *context.joint);
  region->random = draws_random_numbers(*joint);
  region->plan = std::move(plan);
  region->forward = std::move(forward);
  region->make_backward = std::move(make_backward);
  region->context = context;
  region->joint = std::move(joint);
  return std::make_shared<TrainingExecutor>(std::move(region), forward_graph);
}

}  // namespace braze::runtime
