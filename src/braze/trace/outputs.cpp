// The end of a trace: mutations to copy back, outputs and what they alias, the inputs that were needed.
#include <c10/core/InferenceMode.h>
#include <ATen/FunctionalStorageImpl.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "braze/graph/text.h"
#include "braze/support/check.h"
#include "braze/support/log.h"
#include "braze/trace/abort.h"
#include "braze/trace/clock.h"
#include "braze/trace/session.h"
#include "braze/trace/transforms.h"
#include "braze/trace/types.h"
#include "braze/trace/unused_checks.h"

namespace braze::trace {
namespace {

namespace functional = at::functionalization::impl;
using at::functionalization::FunctionalStorageImpl;
using graph::Value;

c10::StorageImpl* storage_of(const at::Tensor& wrapper) { return wrapper.storage().unsafeGetStorageImpl(); }

Value* value_of(const at::Tensor& wrapper) {
  functional::sync(wrapper);
  TracedImpl* impl = traced(functional::from_functional_tensor(wrapper));
  if (impl == nullptr) unsupported("a tensor whose contents were exchanged");
  return impl->value();
}

graph::Shape exprs(c10::SymIntArrayRef values) {
  graph::Shape out;
  for (const c10::SymInt& v : values) out.push_back(to_expr(v));
  return out;
}

// Known to be contiguous, row-major.
bool is_plain(const graph::TensorType& type) { return graph::is_contiguous(type); }

// Every element once and no gaps: can be allocated by itself with these strides.
bool is_dense(const graph::TensorType& type, sym::ShapeEnv& env) {
  if (!type.is_strided) return false;
  std::vector<size_t> order(type.sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return env.hint(type.strides[a]) < env.hint(type.strides[b]); });
  graph::Expr expected = 1;
  for (size_t d : order) {
    if (type.sizes[d] == graph::Expr(0)) return true;
    if (type.sizes[d] == graph::Expr(1)) continue;
    if (!env.guard(sym::eq(type.strides[d], expected), {"layout of an output"})) return false;
    expected = expected * type.sizes[d];
  }
  return true;
}

// A row for an output that shows a part of other memory; which, and from where on, the caller says.
graph::OutputAlias alias_of(size_t output, const at::Tensor& tensor) {
  graph::OutputAlias alias;
  alias.output = static_cast<int32_t>(output);
  alias.sizes = exprs(tensor.sym_sizes());
  alias.strides = exprs(tensor.sym_strides());
  alias.conj = tensor.is_conj();
  alias.neg = tensor.is_neg();
  alias.detached = !tensor.is_view();
  return alias;
}

// Of the parts of complex numbers; else Other.
DType real_type(DType dtype) {
  if (dtype == DType::C64) return DType::F32;
  return dtype == DType::C128 ? DType::F64 : DType::Other;
}

// The same memory as numbers of the real type.
Value* as_real(graph::Graph& graph, Value* value) {
  graph::TensorType type = value->type;
  type.dtype = real_type(type.dtype);
  for (graph::Expr& stride : type.strides) stride = stride * 2;
  type.offset = type.offset * 2;
  type.sizes.push_back(2);
  type.strides.push_back(1);
  return graph.add_node(graph::intern_op("aten::view_as_real(Tensor(a) self) -> Tensor(a)"), {value}, {type})->result();
}

// Expanded: some elements share memory.
// True where two indices may show one place: expanded tensors, and windows that overlap.
bool has_shared_elements(const at::Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dims;   // stride, size
  for (int64_t d = 0; d < tensor.dim(); ++d)
    if (tensor.size(d) != 1) dims.emplace_back(tensor.stride(d), tensor.size(d));
  if (tensor.numel() == 0) return false;
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;   // of the dimensions with smaller strides
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

}  // namespace

struct Session::Outputs {
  std::unordered_map<const c10::TensorImpl*, int32_t> seen;            // output object -> its first place
  std::unordered_map<const c10::StorageImpl*, Value*> input_storages;  // -> the input that lives there
  std::unordered_map<const c10::StorageImpl*, int> uses;               // distinct outputs per storage
  std::unordered_map<const c10::StorageImpl*, int32_t> owners;         // -> output that shows all of it, if several share it
  std::unordered_map<const c10::StorageImpl*, int32_t> bases;          // -> hidden output that holds the whole storage
  std::vector<Value*> hidden;
  std::vector<at::Tensor> hidden_tracked;                              // by what autograd knows a hidden output, or undefined
  std::vector<at::Tensor> visible;                                     // what the caller asked for
  std::vector<at::Tensor> tracked;                                     // the same of each output that the caller asked for
  bool detaches = false;                                               // an output views a tensor that requires grad, but does not
  size_t n_visible = 0;
};

int32_t Session::input_index(const Value* value) {
  const std::vector<Value*>& inputs = recorder_.graph().inputs;
  const auto found = std::find(inputs.begin(), inputs.end(), value);
  CHECK((found != inputs.end()));
  return static_cast<int32_t>(found - inputs.begin());
}

// Autograd saw the changes: the caller's tensor gets a gradient function too.
bool Session::is_recorded(const StandIn& input) const { return input.wrapper.grad_fn().get() != input.grad_fn; }

// `plain`: the stand-in, unless `wrapper` is the base of several.
void Session::add_mutation(const at::Tensor& wrapper, Value* input, const StandIn* plain) {
  auto* impl = functional::unsafeGetFunctionalWrapper(wrapper);
  if (impl->has_metadata_mutation() || impl->was_storage_changed() || impl->was_inductor_storage_resized())
    unsupported("the sizes, strides or storage of an input are changed");
  Value* value = value_of(wrapper);
  if (!impl->has_data_mutation()) {
    if (value != input) unsupported("the contents of an input are exchanged (.data, set_)");
    return;
  }
  if (value->type.sizes != input->type.sizes || value->type.dtype != input->type.dtype)
    unsupported("the sizes or type of an input are changed");
  if (plain != nullptr && !is_plain(input->type)) {
    recorder_.request_storage_bases();
    unsupported("an input that is not contiguous is changed");
  }
  recorder_.graph().mutations.push_back({input_index(input), value, plain == nullptr || !is_recorded(*plain)});
}

// What traced code did to a stand-in beside its contents does not reach the caller's tensor.
void Session::refuse_autograd_changes() const {
  for (const StandIn& input : stand_ins_) {
    if (input.wrapper.requires_grad() != input.real.requires_grad() && input.wrapper.is_leaf())
      unsupported("requires_grad of an input is changed");
    auto* meta = torch::autograd::impl::get_autograd_meta(input.wrapper);
    if (meta == nullptr) continue;
    if (meta->grad().defined() && !input.knows_gradient) unsupported("the gradient of an input is changed");
    if (input.wrapper.retains_grad() || !torch::autograd::impl::hooks(input.wrapper).empty() ||
        torch::autograd::impl::post_acc_grad_hooks(input.wrapper) != nullptr)
      unsupported("a hook on an input");
  }
}

void Session::add_mutations() {
  for (const StandIn& input : stand_ins_)
    if (has_shared_elements(input.real) && functional::unsafeGetFunctionalWrapper(input.wrapper)->has_data_mutation())
      unsupported("an input whose elements share memory is changed");
  std::unordered_map<const void*, int> storages;   // real storages of plain inputs
  for (const StandIn& input : stand_ins_)
    if (input.base == nullptr) ++storages[input.real.storage().unsafeGetStorageImpl()];
  for (const StandIn& input : stand_ins_) {
    if (input.base != nullptr) {
      auto* impl = functional::unsafeGetFunctionalWrapper(input.wrapper);
      if (impl->has_metadata_mutation() || impl->was_storage_changed())
        unsupported("the sizes, strides or storage of an input are changed");
      if (!impl->has_data_mutation() && value_of(input.wrapper) != input.first)
        unsupported("the contents of an input are exchanged (.data, set_)");
      if (is_recorded(input)) unsupported("an input that shares memory or is not contiguous is changed in a way that autograd records");
      continue;
    }
    const size_t before = recorder_.graph().mutations.size();
    add_mutation(input.wrapper, input.value, &input);
    if (recorder_.graph().mutations.size() > before && storages[input.real.storage().unsafeGetStorageImpl()] > 1) {
      recorder_.request_storage_bases();
      unsupported("an input that shares memory with another input is changed");
    }
  }
  std::unordered_map<const void*, bool> written;   // real storage -> by a base of one element type
  for (const auto& [key, base] : bases_) {
    const size_t before = recorder_.graph().mutations.size();
    add_mutation(base.wrapper, base.value, nullptr);
    const bool now = recorder_.graph().mutations.size() > before;
    const auto [place, first] = written.emplace(key.first, now);
    if (!first && (now || place->second)) unsupported("memory that inputs of different types share is changed");
  }
}

// Outputs must be new tensors in each call: a constant is copied.
Value* Session::returnable(Value* value) {
  if (value->producer != nullptr) return value;
  if (!recorder_.constants().contains(value)) unsupported("an output holds an input under another storage");
  return copy_of(value);
}

Value* Session::copy_of(Value* value) {
  graph::TensorType type = value->type;
  type.offset = 0;
  type.requires_grad = false;
  const graph::Op* clone = graph::intern_op("aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor");
  return recorder_.graph().add_node(clone, {value, graph::None{}}, {type})->result();
}

// The graph input for the caller's tensor as it is; based stand-ins get one that no node reads.
Value* Session::whole_input(StandIn& input) {
  if (input.base == nullptr) return input.value;
  for (const auto& [value, index] : whole_inputs_)
    if (&stand_ins_[index] == &input) return const_cast<Value*>(value);
  Value* value = recorder_.graph().add_input(input_type(input.real, {}, input.src), graph::InputKind::User);
  whole_inputs_[value] = static_cast<size_t>(&input - stand_ins_.data());
  return value;
}

namespace {

using torch::autograd::CreationMeta;

// The tensor whose view `tensor` is for autograd; itself if it is none.
at::Tensor autograd_base(const at::Tensor& tensor) {
  if (!tensor.is_view()) return tensor;
  switch (torch::autograd::impl::get_view_autograd_meta(tensor)->get_creation_meta()) {
    case CreationMeta::DEFAULT:
    case CreationMeta::MULTI_OUTPUT_NODE: return at::Tensor(tensor._base());
    case CreationMeta::IN_CUSTOM_FUNCTION:
    case CreationMeta::NO_GRAD_MODE:
    case CreationMeta::INFERENCE_MODE: break;
  }
  unsupported("a view that autograd does not record as one leaves the call");
}

void refuse_new_leaf(const at::Tensor& tensor) {
  if (tensor.requires_grad() && tensor.is_leaf()) unsupported("a tensor that starts to require gradients in the call leaves it");
}

}  // namespace

// The graph input for the caller's tensor that an output views for autograd too.
Value* Session::tracked_view_input(const at::Tensor& tensor) {
  const at::Tensor base = autograd_base(tensor);
  const auto found = by_wrapper_.find(base.unsafeGetTensorImpl());
  if (found == by_wrapper_.end()) unsupported("an output shares memory with an input, but not its gradients");
  return whole_input(stand_ins_[found->second]);
}

void Session::add_view_of_input(size_t output, const at::Tensor& tensor, Value* input, Outputs& outputs) {
  graph::Graph& g = recorder_.graph();
  if (tensor.requires_grad()) {
    input = tracked_view_input(tensor);
  } else {
    for (const StandIn& owner : stand_ins_)
      if (owner.value == input) outputs.detaches |= owner.wrapper.requires_grad();
  }
  if (value_of(tensor)->type.dtype != input->type.dtype) unsupported("an output views an input as another type");
  for (const graph::Mutation& mutation : g.mutations)
    if (g.inputs[static_cast<size_t>(mutation.input)] == input && mutation.value->type.strides != input->type.strides)
      unsupported("an output views an input whose layout changed");
  graph::OutputAlias alias = alias_of(output, tensor);
  alias.input = input_index(input);
  alias.offset = to_expr(tensor.sym_storage_offset()) - input->type.offset;
  // Tensors made of a storage count from its start, the caller's tensor as a whole from its own first element.
  if (const auto whole = whole_inputs_.find(input); whole != whole_inputs_.end())
    alias.offset = alias.offset - stand_ins_[whole->second].real.storage_offset();
  g.aliases.push_back(std::move(alias));
  g.outputs.push_back(input);
}

// Of outputs that share memory, one that shows all of it can be what the others view.
void Session::find_owners(Outputs& outputs) {
  for (size_t i = 0; i < outputs.visible.size(); ++i) {
    const at::Tensor& tensor = outputs.visible[i];
    const c10::StorageImpl* storage = storage_of(tensor);
    if (outputs.uses[storage] < 2 || tensor.is_view() || outputs.input_storages.contains(storage) ||
        !functional::unsafeGetFunctionalWrapper(tensor)->view_metas().empty() ||
        !is_dense(value_of(tensor)->type, *recorder_.env()))
      continue;
    outputs.owners.emplace(storage, static_cast<int32_t>(i));
  }
}

void Session::add_fresh_output(size_t output, const at::Tensor& tensor, Outputs& outputs) {
  graph::Graph& g = recorder_.graph();
  refuse_new_leaf(tensor);
  if (tensor.requires_grad()) autograd_base(tensor);   // in-place changes of some views are errors
  Value* value = value_of(tensor);
  c10::StorageImpl* storage = storage_of(tensor);
  const auto owner = outputs.owners.find(storage);
  const bool owns = owner != outputs.owners.end() && owner->second == static_cast<int32_t>(output);
  const bool dynamic = !value->type.is_strided;
  const bool lazy = tensor.is_conj() || tensor.is_neg();   // its memory holds other values
  if (owns || (!lazy && outputs.uses[storage] == 1 && (dynamic || is_dense(value->type, *recorder_.env())))) {
    g.outputs.push_back(returnable(value));
    if (tensor.requires_grad()) outputs.tracked[output] = tensor;
    return;
  }
  if (dynamic) unsupported("outputs that share memory whose size depends on data");
  // It shares memory with another output, or shows only a part of its memory: a view of another output or of a base
  // that is returned too.
  TracedImpl* base = traced(static_cast<FunctionalStorageImpl*>(storage)->base());
  if (base == nullptr) unsupported("a tensor whose contents were exchanged");
  Value* whole = base->value();
  if (whole->type.dtype != value->type.dtype) {
    if (outputs.uses[storage] > 1 || real_type(whole->type.dtype) != value->type.dtype)
      unsupported("outputs that show the same memory as different types");
    whole = as_real(g, whole);
  }
  if (!is_dense(whole->type, *recorder_.env())) unsupported("an output with gaps in its memory");
  int32_t base_output = -1;
  at::Tensor* tracked_base = nullptr;
  if (owner != outputs.owners.end()) {
    base_output = owner->second;
  } else {
    const auto [place, first] = outputs.bases.emplace(storage, 0);
    if (first) {
      place->second = static_cast<int32_t>(outputs.n_visible + outputs.hidden.size());
      outputs.hidden.push_back(returnable(whole));
      outputs.hidden_tracked.emplace_back();
    }
    base_output = place->second;
    tracked_base = &outputs.hidden_tracked[static_cast<size_t>(base_output) - outputs.n_visible];
  }
  if (tensor.requires_grad()) {
    const at::Tensor seen = autograd_base(tensor);
    if (tracked_base == nullptr) {
      if (!seen.is_same(outputs.visible[static_cast<size_t>(base_output)]))
        unsupported("outputs share memory, but not their gradients");
    } else {
      const graph::TensorType& type = value_of(seen)->type;
      if ((tracked_base->defined() && !tracked_base->is_same(seen)) || type.sizes != whole->type.sizes ||
          type.strides != whole->type.strides || type.dtype != whole->type.dtype)
        unsupported("outputs share memory, but not their gradients");
      *tracked_base = seen;
    }
  }
  graph::OutputAlias alias = alias_of(output, tensor);
  alias.base_output = base_output;
  alias.offset = to_expr(tensor.sym_storage_offset()) - whole->type.offset;
  g.aliases.push_back(std::move(alias));
  g.outputs.push_back(whole);
}

void Session::add_output(const at::Tensor& tensor, Outputs& outputs) {
  graph::Graph& g = recorder_.graph();
  const size_t output = g.outputs.size();
  // What the call itself makes of the output would not be in the gradient that it keeps.
  if (tensor.retains_grad()) unsupported("an output keeps its gradient (retain_grad)");
  const auto [seen, first] = outputs.seen.emplace(tensor.unsafeGetTensorImpl(), static_cast<int32_t>(output));
  if (const auto found = by_wrapper_.find(tensor.unsafeGetTensorImpl()); found != by_wrapper_.end()) {
    Value* whole = whole_input(stand_ins_[found->second]);
    graph::OutputAlias alias;
    alias.output = static_cast<int32_t>(output);
    alias.input = input_index(whole);
    alias.same_object = true;
    alias.sizes = whole->type.sizes;
    alias.strides = whole->type.strides;
    g.aliases.push_back(std::move(alias));
    g.outputs.push_back(whole);
    return;
  }
  if (!first) {
    graph::OutputAlias alias;
    alias.output = static_cast<int32_t>(output);
    alias.base_output = seen->second;
    alias.same_object = true;
    g.aliases.push_back(std::move(alias));
    g.outputs.push_back(g.outputs[static_cast<size_t>(seen->second)]);
    return;
  }
  if (const auto input = outputs.input_storages.find(storage_of(tensor)); input != outputs.input_storages.end())
    add_view_of_input(output, tensor, input->second, outputs);
  else
    add_fresh_output(output, tensor, outputs);
}

// What follows the outputs that the caller asked for: bases, and new contents of inputs whose changes autograd records.
void Session::add_hidden_outputs(Outputs& outputs) {
  graph::Graph& g = recorder_.graph();
  for (Value* hidden : outputs.hidden) g.outputs.push_back(hidden);
  outputs.tracked.insert(outputs.tracked.end(), outputs.hidden_tracked.begin(), outputs.hidden_tracked.end());
  for (const graph::OutputAlias& alias : g.aliases)
    if (alias.base_output >= 0)
      g.outputs[static_cast<size_t>(alias.output)] = g.outputs[static_cast<size_t>(alias.base_output)];
  for (const graph::Mutation& mutation : g.mutations) {
    if (mutation.under_no_grad) continue;
    const Value* changed = g.inputs[static_cast<size_t>(mutation.input)];
    for (const StandIn& input : stand_ins_)
      if (input.value == changed) outputs.tracked.push_back(input.wrapper);
    g.outputs.push_back(mutation.value);
  }
}

std::optional<JointPlan> Session::make_joint(const Outputs& outputs) {
  bool any = outputs.detaches;
  for (const at::Tensor& tensor : outputs.tracked) any |= tensor.defined();
  if (!any) {
    for (graph::Node* node : recorder_.graph().nodes) node->tags &= ~static_cast<uint32_t>(graph::kNoGrad);
    return std::nullopt;
  }
  JointPlan plan = add_gradients(outputs.tracked);
  for (const at::Tensor& tensor : outputs.visible) plan.tracked.push_back(tensor.requires_grad());
  return plan;
}

// Inputs that no node, output or mutation uses are dropped; their tensors are guarded all the same.
void Session::drop_unused_inputs(std::optional<JointPlan>& joint) {
  graph::Graph& g = recorder_.graph();
  std::vector<bool> used(g.inputs.size());
  for (size_t i = 0; i < g.inputs.size(); ++i) used[i] = g.has_uses(g.inputs[i]);
  for (const graph::Mutation& m : g.mutations) used[static_cast<size_t>(m.input)] = true;
  for (const graph::OutputAlias& a : g.aliases)
    if (a.input >= 0) used[static_cast<size_t>(a.input)] = true;
  for (size_t i = 0; i < g.inputs.size(); ++i)
    for (graph::Expr size : g.inputs[i]->type.sizes)
      if (!size.is_constant() && g.input_kinds[i] != graph::InputKind::Tangent)
        used[i] = true;     // the sizes may be read from here alone
  for (const Number& number : numbers_)   // read before the call
    if (number.stand_in >= 0) used[static_cast<size_t>(input_index(stand_ins_[static_cast<size_t>(number.stand_in)].value))] = true;
  for (const StandIn& input : stand_ins_)
    if (input.gets_gradient) used[static_cast<size_t>(input_index(input.value))] = true;
  std::vector<int32_t> new_index(g.inputs.size(), -1);
  size_t kept = 0;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    if (!used[i]) continue;
    new_index[i] = static_cast<int32_t>(kept);
    g.inputs[i]->index = static_cast<int32_t>(kept);
    g.inputs[kept] = g.inputs[i];
    g.input_kinds[kept] = g.input_kinds[i];
    ++kept;
  }
  g.inputs.resize(kept);
  g.input_kinds.resize(kept);
  for (graph::Mutation& m : g.mutations) m.input = new_index[static_cast<size_t>(m.input)];
  for (graph::OutputAlias& a : g.aliases)
    if (a.input >= 0) a.input = new_index[static_cast<size_t>(a.input)];
  if (!joint) return;
  for (JointPlan::Tangent& t : joint->tangents)
    if (t.input >= 0) t.input = new_index[static_cast<size_t>(t.input)];
}

GraphContext Session::context(size_t n_outputs) {
  graph::Graph& g = recorder_.graph();
  int32_t next = 0;
  std::unordered_map<const Value*, InputBinding> binding;
  for (StandIn& input : stand_ins_) {
    const bool whole = std::any_of(whole_inputs_.begin(), whole_inputs_.end(), [&](const auto& entry) {
      return &stand_ins_[entry.second] == &input;
    });
    const bool used = std::find(g.inputs.begin(), g.inputs.end(), input.value) != g.inputs.end() || whole;
    if (!used) continue;
    input.caller = next++;
    const auto kind = input.base != nullptr ? InputBinding::Kind::StorageBase : InputBinding::Kind::Tensor;
    InputBinding own{kind, input.caller, {}};
    if (input.base == nullptr && !input.wrapper.is_inference())
      own.versions = static_cast<int32_t>(static_cast<uint32_t>(input.wrapper._version()) - input.first_version);
    binding.emplace(input.value, std::move(own));
  }
  for (const auto& [id, value] : recorder_.float_inputs())
    if (std::ranges::find(g.inputs, value) != g.inputs.end())
      binding.emplace(value, InputBinding{InputBinding::Kind::Tensor, next++, {}});
  for (const auto& [value, index] : whole_inputs_)
    binding.emplace(value, InputBinding{InputBinding::Kind::Tensor, stand_ins_[index].caller, {}});
  for (const auto& [value, tensor] : recorder_.constants())
    binding.emplace(value, InputBinding{InputBinding::Kind::Constant, -1, tensor});
  GraphContext out;
  for (size_t i = 0; i < g.size_inputs.size(); ++i) out.size_callers.push_back(next++);
  for (size_t i = 0; i < g.inputs.size(); ++i)
    out.inputs.push_back(g.input_kinds[i] == graph::InputKind::Tangent ? InputBinding{} : binding.at(g.inputs[i]));
  // Views of a storage count from the start of the tensor through which the caller passes it.
  for (graph::OutputAlias& alias : g.aliases) {
    if (alias.input < 0 || alias.same_object) continue;
    const InputBinding& viewed = out.inputs[static_cast<size_t>(alias.input)];
    if (viewed.kind != InputBinding::Kind::StorageBase) continue;
    for (const StandIn& input : stand_ins_)
      if (input.caller == viewed.caller) alias.offset = alias.offset - input.real.storage_offset();
  }
  out.objects = recorder_.objects();
  out.n_outputs = n_outputs;
  out.backend = options_.backend;
  out.keep_text = options_.keep_text;
  return out;
}

std::vector<MemoryGroup> Session::memory_groups() const {
  std::unordered_map<const Value*, MemoryGroup> by_value;
  for (const StandIn& input : stand_ins_)
    if (input.caller >= 0) by_value[input.value].members.push_back(input.caller);
  const graph::Graph& g = recorder_.graph();
  for (const graph::Mutation& mutation : g.mutations)
    by_value[g.inputs[static_cast<size_t>(mutation.input)]].written = true;
  std::vector<MemoryGroup> groups;
  for (auto& [value, group] : by_value) groups.push_back(std::move(group));
  return groups;
}

Result<capture::TraceSession::Finished> Session::finish(std::span<PyObject* const> objects) {
  CHECK(!finished_);
  TraceClock clock;
  const uint64_t modes_now = pack_modes();
  if (in_transform()) return Unsupported{"a functional transform that the call does not leave", ""};
  mode_guard_.restore();
  if (modes_now != start_modes_) return Unsupported{"a torch mode that was entered is not left again", ""};
  try {
    size_t n_outputs = objects.size();
    std::optional<JointPlan> joint;
    std::vector<bool> inference;     // per output: made in inference mode, where the call is not in it
    bool any_inference = false;
    {
      const RecordingScope recording(recorder_);
      refuse_autograd_changes();
      add_mutations();
      Outputs outputs;
      outputs.n_visible = objects.size();
      std::unordered_set<const c10::TensorImpl*> distinct;
      for (const StandIn& input : stand_ins_) {
        outputs.input_storages.emplace(storage_of(input.wrapper), input.value);
      }
      for (PyObject* object : objects) {
        if (!is_traced(object)) return Unsupported{"an output is not a traced tensor", ""};
        const at::Tensor& tensor = THPVariable_Unpack(object);
        if (trace::is_transformed(tensor)) return Unsupported{"a tensor of a functional transform leaves the call", ""};
        // The runtime makes outputs in the caller's mode; views of inputs are as their inputs are.
        const bool foreign = tensor.is_inference() != c10::InferenceMode::is_enabled() &&
                             outputs.input_storages.find(storage_of(tensor)) == outputs.input_storages.end();
        if (foreign && !tensor.is_inference())
          return Unsupported{"a tensor that is made outside of the inference mode of the call", ""};
        any_inference |= foreign;
        inference.push_back(foreign);
        if (distinct.insert(tensor.unsafeGetTensorImpl()).second) ++outputs.uses[storage_of(tensor)];
        outputs.visible.push_back(tensor);
      }
      find_owners(outputs);
      outputs.tracked.resize(objects.size());
      for (const at::Tensor& tensor : outputs.visible) add_output(tensor, outputs);
      add_hidden_outputs(outputs);
      joint = make_joint(outputs);
    }
    recorder_.remove_autocast_keys();
    check_unused_operators(recorder_.graph());
    drop_unused_inputs(joint);
    recorder_.graph().size_inputs = recorder_.env()->integers();
    GraphContext about = context(n_outputs);
    if (any_inference) about.inference_outputs = std::move(inference);
    if (joint) {
      for (const StandIn& input : stand_ins_)
        if (input.gets_gradient) joint->gradients.push_back(input.caller);
      about.joint = std::move(joint);
    }
    Finished result;
    result.n_ops = static_cast<int64_t>(recorder_.graph().size());
    result.shapes = make_shape_check(recorder_.env(), number_reads(), memory_groups(),
                                     static_cast<int32_t>(inputs().size()));
    std::vector<NumberRequest> requests = number_requests();
    result.n_number_operands = static_cast<int64_t>(requests.size() - number_results_.size());
    result.numbers = make_call_numbers(*recorder_.env(), number_reads(), std::move(requests));
    finished_ = true;
    if (options_.keep_text) result.graph_text = graph::print(recorder_.graph());
    if (log_enabled(Topic::kGraph)) log(Topic::kGraph, graph::print(recorder_.graph()));
    if (!compiler()) return Unsupported{"no compiler is registered", ""};
    const TraceClock::Pause pause(clock);
    TRY(result.executable, compiler()(recorder_.take_graph(), about));
    return result;
  } catch (const Abort& abort) {
    return abort.why;
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& error) {
    return Unsupported{std::string("the end of the trace: ") + error.what(), ""};
  }
}

}  // namespace braze::trace
