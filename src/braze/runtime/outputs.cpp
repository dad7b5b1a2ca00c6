#include "braze/runtime/outputs.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "braze/runtime/gil.h"
#include "braze/runtime/python_tensor.h"

namespace braze::runtime {
namespace {

std::vector<int64_t> values(const graph::Shape& shape, const SizeValue& size_value) {
  std::vector<int64_t> out;
  out.reserve(shape.size());
  for (graph::Expr e : shape) out.push_back(e.is_constant() ? e.constant() : size_value(e));
  return out;
}

}  // namespace

AliasSizeSlots alias_size_slots(const OutputPlan& plan, SizeSlots& sizes) {
  AliasSizeSlots slots;
  const auto note = [&](graph::Expr e) {
    if (!e.is_constant()) slots[e] = sizes.slot(e);
  };
  for (const graph::OutputAlias& alias : plan.aliases) {
    for (graph::Expr e : alias.sizes) note(e);
    for (graph::Expr e : alias.strides) note(e);
    note(alias.offset);
  }
  return slots;
}

void plan_inputs(OutputPlan& plan, std::span<const InputBinding> bindings) {
  for (const InputBinding& binding : bindings) {
    plan.inputs.push_back(binding.kind);
    plan.versions.push_back(binding.versions);
  }
}

void finish_outputs(const OutputPlan& plan, std::span<const at::Tensor> callers,
                    std::span<const at::Tensor> new_values, const SizeValue& size_value,
                    std::vector<at::Tensor>& outputs, std::vector<int32_t>& same_input) {
  for (size_t i = 0; i < plan.mutations.size(); ++i) {
    const auto input = static_cast<size_t>(plan.mutations[i].input);
    at::Tensor target = callers[input];
    const int32_t versions = plan.versions[input];
    c10::AutoGradMode no_grad(!plan.mutations[i].under_no_grad);
    if (plan.inputs[input] == InputBinding::Kind::StorageBase) {
      bind({InputBinding::Kind::StorageBase, 0, {}}, target).copy_(new_values[i]);
      target.unsafeGetTensorImpl()->bump_version();
    } else if (versions == 0) {
      target.variable_data().copy_(new_values[i]);
    } else {
      target.copy_(new_values[i]);
      for (int32_t n = 1; n < versions; ++n) target.unsafeGetTensorImpl()->bump_version();
    }
  }
  for (const graph::OutputAlias& alias : plan.aliases) {
    const auto output = static_cast<size_t>(alias.output);
    if (alias.same_object) {
      if (alias.input >= 0) same_input[output] = alias.input;
      else outputs[output] = outputs[static_cast<size_t>(alias.base_output)];
      continue;
    }
    const at::Tensor& base = alias.input >= 0 ? callers[static_cast<size_t>(alias.input)]
                                              : outputs[static_cast<size_t>(alias.base_output)];
    const int64_t offset = alias.offset.is_constant() ? alias.offset.constant() : size_value(alias.offset);
    const bool detached = !plan.tracked.empty() && !plan.tracked[output];
    at::Tensor view = (detached ? base.detach() : base).as_strided(values(alias.sizes, size_value),
                                                                   values(alias.strides, size_value),
                                                                   base.storage_offset() + offset);
    if (alias.conj) view = view._conj();
    if (alias.neg) view = view._neg_view();
    if (alias.detached) view = view.detach();
    outputs[output] = std::move(view);
  }
}

namespace {

// The same memory as a tensor of inference mode.
at::Tensor as_inference(const at::Tensor& tensor) {
  const c10::InferenceMode mode;
  at::Tensor made = at::empty({0}, tensor.options().requires_grad(false));
  made.unsafeGetTensorImpl()->set_storage_keep_dtype(tensor.storage());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return made;
}

void make_inference_outputs(const std::vector<bool>& which, std::vector<at::Tensor>& results) {
  const std::vector<at::Tensor> before(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(which.size()));
  for (size_t i = 0; i < which.size(); ++i) {
    if (!which[i] || !before[i].defined()) continue;
    size_t first = 0;
    while (!before[first].is_same(before[i])) ++first;
    results[i] = first < i ? results[first] : as_inference(before[i]);
  }
}

}  // namespace

bool give_outputs(const OutputPlan& plan, PyObject* const* caller_inputs, std::span<const InputBinding> bindings,
                  std::vector<at::Tensor>& results, std::span<const int32_t> same_input, PyObject** outputs) {
  if (!plan.inference.empty()) make_inference_outputs(plan.inference, results);
  for (size_t i = 0; i < static_cast<size_t>(plan.n_outputs); ++i) {
    if (same_input[i] >= 0) {
      outputs[i] = Py_NewRef(caller_inputs[bindings[static_cast<size_t>(same_input[i])].caller]);
    } else if (!results[i].defined()) {
      outputs[i] = Py_NewRef(Py_None);
    } else {
      outputs[i] = wrap(std::move(results[i]));
    }
    if (outputs[i] == nullptr) {
      for (size_t j = 0; j < i; ++j) Py_CLEAR(outputs[j]);
      return false;
    }
  }
  return true;
}

}  // namespace braze::runtime
