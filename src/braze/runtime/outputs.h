// The end of a call: mutated inputs are written back, and outputs that alias inputs or each other are made as views.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "braze/graph/graph.h"
#include "braze/runtime/inputs.h"
#include "braze/runtime/size_slots.h"

struct _object;

namespace braze::runtime {

// What the runtime needs of a graph after the graph itself is gone.
struct OutputPlan {
  std::vector<graph::OutputAlias> aliases;
  std::vector<graph::Mutation> mutations;    // values are not used here
  std::vector<InputBinding::Kind> inputs;    // of each graph input
  std::vector<int32_t> versions;             // InputBinding::versions of each
  std::vector<bool> tracked;                 // by autograd, per output asked for; empty: no gradients in this region
  std::vector<bool> inference;               // made in inference mode, per output asked for; empty: as the caller's mode is
  int64_t n_outputs = 0;                     // asked for by the caller; graph outputs beyond are bases of aliases
};

// The slots that hold the symbolic sizes, strides and offsets of the plan's aliases.
using AliasSizeSlots = std::unordered_map<graph::Expr, int>;
AliasSizeSlots alias_size_slots(const OutputPlan& plan, SizeSlots& sizes);

// The value of a symbolic size in this call.
using SizeValue = std::function<int64_t(graph::Expr)>;

// What `bindings` say of the inputs.
void plan_inputs(OutputPlan& plan, std::span<const InputBinding> bindings);

// Copies mutated values into the callers' tensors (new_values[i] for plan.mutations[i]) and replaces aliasing outputs.
// callers: the Python-visible tensor of each graph input (undefined for constants). `same_input[i]` receives the graph
// input whose Python object output i is, or -1.
void finish_outputs(const OutputPlan& plan, std::span<const at::Tensor> callers,
                    std::span<const at::Tensor> new_values, const SizeValue& size_value,
                    std::vector<at::Tensor>& outputs, std::vector<int32_t>& same_input);

// Wraps the results that the caller asked for: new references in outputs. Returns false with an error set; then nothing
// is owned.
bool give_outputs(const OutputPlan& plan, _object* const* caller_inputs, std::span<const InputBinding> bindings,
                  std::vector<at::Tensor>& results, std::span<const int32_t> same_input, _object** outputs);

}  // namespace braze::runtime
