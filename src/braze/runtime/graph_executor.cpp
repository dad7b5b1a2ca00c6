#include "braze/runtime/graph_executor.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <unordered_map>

#include "braze/runtime/gil.h"
#include "braze/runtime/operator_call.h"
#include "braze/runtime/outputs.h"
#include "braze/runtime/python_tensor.h"
#include "braze/runtime/size_slots.h"
#include "braze/support/check.h"

namespace braze::runtime {
namespace {

struct Step {
  OperatorCall call;
  std::vector<int32_t> operands;     // value numbers
  std::vector<int32_t> results;
  std::vector<int32_t> dead;         // values whose last use this is
};

class GraphExecutor final : public GraphProgram {
 public:
  GraphExecutor(std::shared_ptr<const graph::Graph> graph, const GraphContext& context)
      : graph_(std::move(graph)), bindings_(context.inputs), size_callers_(context.size_callers),
        objects_(context.objects), sizes_(*graph_) {
    CHECK(bindings_.size() == graph_->inputs.size());
    plan_.aliases = graph_->aliases;
    plan_.mutations = graph_->mutations;
    plan_.n_outputs = static_cast<int64_t>(context.n_outputs);
    plan_.inference = context.inference_outputs;
    if (context.joint) plan_.tracked = context.joint->tracked;
    plan_inputs(plan_, context.inputs);
    number_values();
    alias_slots_ = alias_size_slots(plan_, sizes_);
  }

  int64_t n_outputs() const override { return plan_.n_outputs; }

  bool run(PyObject* const* inputs, int64_t, PyObject** outputs) override {
    try {
      std::vector<at::Tensor> callers(bindings_.size());
      for (size_t i = 0; i < callers.size(); ++i)
        if (bindings_[i].caller >= 0) callers[i] = unpack(inputs[bindings_[i].caller]);
      std::vector<at::Tensor> values(n_values_);
      std::vector<int64_t> size_values(static_cast<size_t>(sizes_.count()));
      const std::vector<int64_t> size_inputs = unpack_sizes(size_callers_, inputs);
      std::vector<at::Tensor> results, new_values;
      GilRelease scope(true);
      for (size_t i = 0; i < callers.size(); ++i) values[i] = bind(bindings_[i], callers[i]);
      execute(values, size_values, size_inputs);
      for (size_t v : mutation_values_) new_values.push_back(values[v]);
      take_outputs(values, results);
      std::vector<int32_t> same_input(results.size(), -1);
      const SizeValue size_value = [&](graph::Expr e) { return size_values[static_cast<size_t>(size_slot(e))]; };
      finish_outputs(plan_, callers, new_values, size_value, results, same_input);
      scope.acquire();
      return give_outputs(plan_, inputs, bindings_, results, same_input, outputs);
    } catch (...) {
      set_python_error();
      return false;
    }
  }

  void run_tensors(std::vector<at::Tensor> bound, std::span<const int64_t> size_inputs,
                   std::vector<at::Tensor>& outputs) override {
    std::vector<at::Tensor> values = std::move(bound);
    values.resize(n_values_);
    std::vector<int64_t> size_values(static_cast<size_t>(sizes_.count()));
    execute(values, size_values, size_inputs);
    take_outputs(values, outputs);
  }

 private:
  // The first values are the bound inputs.
  void execute(std::vector<at::Tensor>& values, std::vector<int64_t>& size_values,
               std::span<const int64_t> size_inputs) const {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    sizes_.evaluate({values.data(), bindings_.size()}, size_values.data(), size_inputs);
    for (const Step& step : steps_) run_step(step, values, size_values.data());
  }

  void take_outputs(const std::vector<at::Tensor>& values, std::vector<at::Tensor>& outputs) const {
    outputs.clear();
    // A lazily conjugated value is returned as what it shows.
    for (int32_t v : output_values_) {
      const at::Tensor value = v < 0 ? at::Tensor() : values[static_cast<size_t>(v)];
      outputs.push_back(value.defined() ? value.resolve_conj().resolve_neg() : value);
    }
  }

  int size_slot(graph::Expr e) const { return alias_slots_.at(e); }

  void number_values() {
    std::unordered_map<const graph::Value*, int32_t> number;
    const auto give_number = [&](const graph::Value* v) { number[v] = static_cast<int32_t>(n_values_++); };
    for (const graph::Value* input : graph_->inputs) give_number(input);
    const SizeSlot size_slot_of = [&](graph::Expr e) { return sizes_.slot(e); };
    const ObjectOf object_of = [&](int32_t slot) { return objects_[static_cast<size_t>(slot)]; };
    std::vector<int32_t> last_use;
    for (const graph::Node* node : graph_->nodes) {
      Step step{OperatorCall(*node, size_slot_of, object_of), {}, {}, {}};
      for (const graph::Argument& argument : node->arguments)
        for_each_value(argument, [&](graph::Value* v) { step.operands.push_back(number.at(v)); });
      for (const graph::Value* result : node->results) {
        give_number(result);
        step.results.push_back(number.at(result));
      }
      steps_.push_back(std::move(step));
    }
    last_use.assign(n_values_, -1);
    for (size_t s = 0; s < steps_.size(); ++s) {
      for (int32_t v : steps_[s].results) last_use[static_cast<size_t>(v)] = static_cast<int32_t>(s);
      for (int32_t v : steps_[s].operands) last_use[static_cast<size_t>(v)] = static_cast<int32_t>(s);
    }
    const auto keep = [&](const graph::Value* v) {
      const int32_t n = number.at(v);
      last_use[static_cast<size_t>(n)] = -1;
      return n;
    };
    for (const graph::Value* output : graph_->outputs) output_values_.push_back(output == nullptr ? -1 : keep(output));
    for (const graph::Mutation& mutation : graph_->mutations)
      mutation_values_.push_back(static_cast<size_t>(keep(mutation.value)));
    for (size_t v = 0; v < n_values_; ++v)
      if (last_use[v] >= 0) steps_[static_cast<size_t>(last_use[v])].dead.push_back(static_cast<int32_t>(v));
  }

  static void run_step(const Step& step, std::vector<at::Tensor>& values, const int64_t* sizes) {
    std::vector<at::Tensor> operands, results;
    operands.reserve(step.operands.size());
    for (int32_t v : step.operands) operands.push_back(values[static_cast<size_t>(v)]);
    step.call.run(operands, sizes, results);
    CHECK(results.size() >= step.results.size());
    for (size_t i = 0; i < step.results.size(); ++i) values[static_cast<size_t>(step.results[i])] = std::move(results[i]);
    for (int32_t v : step.dead) values[static_cast<size_t>(v)].reset();
  }

  std::shared_ptr<const graph::Graph> graph_;
  std::vector<InputBinding> bindings_;
  std::vector<int32_t> size_callers_;
  std::vector<c10::IValue> objects_;
  SizeSlots sizes_;
  OutputPlan plan_;
  size_t n_values_ = 0;
  std::vector<Step> steps_;
  std::vector<int32_t> output_values_;
  std::vector<size_t> mutation_values_;
  AliasSizeSlots alias_slots_;
};

}  // namespace

std::shared_ptr<GraphProgram> make_graph_executor(std::shared_ptr<const graph::Graph> graph, const GraphContext& context) {
  return std::make_shared<GraphExecutor>(std::move(graph), context);
}

}  // namespace braze::runtime
