// The handler: what happens to an operator call that reaches the Fake key.
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/Context.h>
#include <ATen/core/Formatting.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <span>

#include "braze/graph/type_rules.h"
#include "braze/support/check.h"
#include "braze/trace/abort.h"
#include "braze/trace/number_operands.h"
#include "braze/trace/probe.h"
#include "braze/trace/python_number.h"
#include "braze/trace/recorder.h"
#include "braze/trace/torch_types.h"
#include "braze/trace/types.h"

namespace braze::trace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;

// What the arguments hold, by one pass over them.
struct Recorder::Operands {
  int traced = 0, real = 0, numbers = 0, meta = 0;
  bool unknown_real = false;                // a real tensor that is not of this trace
  bool symbolic_number = false;
  const TracedImpl* lazy = nullptr;         // the first lazily conjugated or negated one
  c10::Device device = c10::kCPU;
  bool has_device = false;
  bool device_from_scalar = false;          // only a 0-dim CPU tensor so far, which goes with any device
};

namespace {

template <class F>
void for_each_tensor(const IValue& value, F&& f) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) f(value.toTensor());
  } else if (value.isTensorList()) {
    for (const IValue& item : value.toListRef()) for_each_tensor(item, f);
  } else if (value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList()) {
    for (const IValue& item : value.toListRef()) for_each_tensor(item, f);
  }
}

void run_without_recording(const OperatorHandle& op, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard off(kRecordingKeys);
  op.callBoxed(stack);
}

// The trace is over, or the call is on a thread that traces nothing.
void handle_outside(const OperatorHandle& op, Stack* stack) {
  drop_stale_keys();
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  for (const IValue& value : arguments)
    for_each_tensor(value, [](const at::Tensor& t) {
      if (traced(t) != nullptr) unsupported("a traced tensor is used outside its trace");
    });
  run_without_recording(op, stack);
}

template <class F>
IValue map_tensors(const IValue& value, F&& f) {
  if (value.isTensor()) return value.toTensor().defined() ? IValue(f(value.toTensor())) : value;
  if (!value.isList() || value.isIntList() || value.isDoubleList() || value.isBoolList()) return value;
  c10::impl::GenericList out(value.toList().elementType());
  for (const IValue& item : value.toListRef()) out.push_back(map_tensors(item, f));
  return out;
}

// A composite that got here (without autograd keys, as in inference mode) may write and view inside: its body runs
// on wrappers, so that functionalization sees that too.
void decompose(const OperatorHandle& op, c10::Device device, Stack* stack) {
  namespace functional = at::functionalization::impl;
  const size_t n = op.schema().arguments().size();
  std::vector<at::Tensor> wrapped;
  for (IValue& value : std::span(stack->end() - static_cast<std::ptrdiff_t>(n), n))
    value = map_tensors(value, [&](const at::Tensor& t) {
      return traced(t) ? wrapped.emplace_back(functional::to_functional_tensor(t)) : t;
    });
  {
    const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
    const c10::impl::ForceDispatchKeyGuard with_functionalization(
        local.included_, local.excluded_.remove(DispatchKey::Functionalize));
    op.redispatchBoxed(DispatchKeySet(device.is_cuda() ? DispatchKey::CUDA : DispatchKey::CPU), stack);
  }
  for (const at::Tensor& t : wrapped)   // numbers stay as they are
    if (functional::isFunctionalTensor(t) && functional::unsafeGetFunctionalWrapper(t)->has_data_mutation())
      unsupported(c10::toString(op.operator_name()) + " changes its arguments without saying so");
  const size_t n_results = op.schema().returns().size();
  for (IValue& value : std::span(stack->end() - static_cast<std::ptrdiff_t>(n_results), n_results))
    value = map_tensors(value, [](const at::Tensor& t) {
      if (!functional::isFunctionalTensor(t)) return t;
      functional::sync(t);
      return functional::from_functional_tensor(t);
    });
}

// Another element type shows the memory of a lazily conjugated view as it is; eager refuses most of these.
void refuse_reinterpretation(const OperatorInfo& info, const TracedImpl& lazy,
                             const std::vector<graph::TensorType>& results) {
  for (const graph::TensorType& result : results)
    if (info.is_view && result.dtype != lazy.value()->type.dtype)
      unsupported(info.op->name + " of a lazily conjugated or negated tensor");
}

// What only the call knows: such a value is for calls and for the caller.
void forget_sizes(graph::TensorType& type) {
  constexpr int64_t kDataDependent = -1;
  type.is_strided = false;
  type.sizes.assign(type.sizes.size(), kDataDependent);
  type.strides.clear();
  type.offset = 0;
}

bool is_mask(const IValue& index) {
  if (!index.isTensor() || !index.toTensor().defined()) return false;
  const c10::ScalarType type = index.toTensor().scalar_type();
  return type == c10::kBool || type == c10::kByte;
}

bool has_dynamic_sizes(const OperatorInfo& info, at::ArrayRef<IValue> arguments) {
  switch (info.treatment) {
    case Treatment::DynamicSizes: return true;
    case Treatment::DynamicIfNone: return arguments.back().isNone();
    case Treatment::DynamicIfMask: {
      if (!arguments[1].isList()) return false;
      const auto indices = arguments[1].toListRef();
      return std::any_of(indices.begin(), indices.end(), is_mask);
    }
    case Treatment::Record:
    case Treatment::Lift:
    case Treatment::Item:
    case Treatment::ScalarsInTensor:
    case Treatment::ReadsData:
    case Treatment::Mutable:
    case Treatment::ComparesSizes:
    case Treatment::Composite: return false;
  }
  return false;
}

}  // namespace

void trace_handler(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  Recorder* recorder = current_recorder();
  if (recorder == nullptr) {
    handle_outside(op, stack);
    return;
  }
  try {
    recorder->record(op, stack);
  } catch (const Abort& abort) {
    recorder->note_failure(abort.why);
    throw;
  }
}

Recorder::Operands Recorder::look(const OperatorHandle& op, const OperatorInfo& info,
                                  at::ArrayRef<IValue> arguments) const {
  Operands seen;
  const auto look_at = [&](const at::Tensor& t) {
    if (const TracedImpl* impl = ::braze::trace::traced(t)) {
      if (impl->trace() != id_) unsupported("a tensor of another trace is used");
      if (!impl->value()->type.is_strided)
        unsupported(info.op->name + " is given a tensor whose sizes depend on data");
      if (t.is_conj() || t.is_neg()) seen.lazy = seen.lazy ? seen.lazy : impl;
      ++seen.traced;
    } else if (at::functionalization::impl::isFunctionalTensor(t)) {
      unsupported("a functional tensor reached " + c10::toString(op.operator_name()));
    } else if (t.device().is_meta()) {
      ++seen.meta;
      return;
    } else if (t.unsafeGetTensorImpl()->is_wrapped_number()) {
      ++seen.numbers;
      seen.symbolic_number |= is_symbolic_number(t);
      return;
    } else {
      ++seen.real;
      seen.unknown_real |= !knows(t);
    }
    const bool scalar = t.dim() == 0 && t.device().is_cpu();
    if (seen.has_device && !scalar && !seen.device_from_scalar && seen.device != t.device())
      unsupported("operands of " + info.op->name + " are on different devices");
    if (!seen.has_device || seen.device_from_scalar) {
      seen.device = t.device();
      seen.device_from_scalar = scalar;
      seen.has_device = true;
    }
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    switch (info.arguments[i]) {
      case ArgumentKind::Tensor:
      case ArgumentKind::TensorList:
      case ArgumentKind::OptionalTensorList: for_each_tensor(arguments[i], look_at); break;
      default: break;
    }
  }
  if (info.device_argument >= 0) {
    const IValue& device = arguments[static_cast<size_t>(info.device_argument)];
    if (!device.isNone()) seen.device = device.toDevice();
    if (seen.device.is_meta()) unsupported("a tensor on the meta device");
    if (!seen.device.is_cpu() && !c10::impl::hasDeviceGuardImpl(seen.device.type()))
      unsupported("device " + seen.device.str() + " is not available");
  }
  return seen;
}

// Calls that involve no traced tensor: libtorch's own meta computations, and operators on constants.
bool Recorder::run_for_real(const OperatorHandle& op, const OperatorInfo& info, const Operands& operands,
                            Stack* stack) {
  if (operands.traced > 0) return false;
  if (operands.meta > 0 && operands.real == 0) {
    run_without_recording(op, stack);
    return true;
  }
  if (operands.real + operands.numbers == 0 || info.treatment == Treatment::Lift) return false;
  if (operands.unknown_real)
    unsupported("a tensor is read that the trace has not seen", "pass it as an argument or make it a module attribute");
  if (op.schema().is_mutable()) unsupported(info.op->name + " writes a constant tensor");
  if (operands.symbolic_number) unsupported(info.op->name + " makes a tensor of a symbolic size");
  if (info.op->has(graph::kRandom)) return false;
  run_without_recording(op, stack);
  for (const IValue& result : *stack) for_each_tensor(result, [&](const at::Tensor& t) { adopt(t); });
  return true;
}

void Recorder::refuse_data_reads(const OperatorHandle& op, const OperatorInfo& info) const {
  if (info.treatment == Treatment::ReadsData)
    unsupported(c10::toString(op.operator_name()) + " needs the data of a tensor");
  if (info.treatment == Treatment::Mutable)
    unsupported(info.op->name + " writes its arguments in a way that can't be undone");
}

void Recorder::check_uninitialized(const OperatorInfo& info) const {
  const auto& context = at::globalContext();
  if (info.uninitialized && context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())
    unsupported("uninitialized memory under deterministic algorithms");
}

// as_strided counts from the start of a storage that a traced input may not show; copies and scatters of such an input
// keep its offset.
void Recorder::check_as_strided(const OperatorInfo& info) {
  if (!info.as_strided || !has_partial_input_) return;
  request_storage_bases();
  unsupported("as_strided where an input shows only a part of its storage");
}

void Recorder::read_item(const OperatorHandle& op, Stack* stack) {
  const at::Tensor self = stack->back().toTensor();
  const TracedImpl* impl = ::braze::trace::traced(self);
  if (impl != nullptr && !impl->constant().defined() && c10::isFloatingType(self.scalar_type()) &&
      op.schema().name() == "aten::_local_scalar_dense") {
    stack->back() = to_symfloat(number_in(self), env_);
    return;
  }
  if (impl == nullptr || !impl->constant().defined())
    unsupported("the program needs the value of a tensor (item(), bool(), int(), float())",
                "compute with tensors, for example torch.where instead of if");
  stack->back() = impl->constant();
  run_without_recording(op, stack);
}

namespace {

// False: the memory that the operands do not show decides.
bool compare_sizes(const OperatorHandle& op, Stack* stack) {
  const at::Tensor a = torch::jit::peek(*stack, 0, 2).toTensor(), b = torch::jit::peek(*stack, 1, 2).toTensor();
  const bool same = a.sym_sizes() == b.sym_sizes();
  if (op.schema().name() != "aten::is_same_size") {
    const TracedImpl *first = ::braze::trace::traced(a), *second = ::braze::trace::traced(b);
    if (!same || first == nullptr || second == nullptr || !graph::is_contiguous(first->value()->type) ||
        !graph::is_contiguous(second->value()->type))
      return false;
  }
  torch::jit::drop(*stack, 2);
  stack->emplace_back(same);
  return true;
}

}  // namespace

void Recorder::record(const OperatorHandle& op, Stack* stack) {
  remove_autocast_keys();
  if (!env_->floats().empty() && record_with_tensors(op, stack)) return;
  OperatorInfo& info = operator_info(op);
  const at::ArrayRef<IValue> arguments = torch::jit::last(*stack, info.arguments.size());
  const Operands operands = look(op, info, arguments);
  if (run_for_real(op, info, operands, stack)) return;
  switch (info.treatment) {
    case Treatment::Lift: {
      const at::Tensor self = stack->back().toTensor();
      if (::braze::trace::traced(self) == nullptr) stack->back() = constant(self);
      return;
    }
    case Treatment::Item: read_item(op, stack); return;
    case Treatment::Composite: decompose(op, operands.device, stack); return;
    case Treatment::ScalarsInTensor: record_each(info, stack); return;
    case Treatment::ComparesSizes:
      if (compare_sizes(op, stack)) return;
      break;
    case Treatment::Record:
    case Treatment::ReadsData:
    case Treatment::DynamicSizes:
    case Treatment::DynamicIfMask:
    case Treatment::DynamicIfNone:
    case Treatment::Mutable: break;
  }
  refuse_data_reads(op, info);
  check_uninitialized(info);
  check_as_strided(info);
  append(op, info, operands, stack);
}

namespace {

// Pushes results in the shape of the schema's returns. A list return takes all that the other returns leave.
void push_results(const c10::FunctionSchema& schema, std::vector<at::Tensor> tensors, Stack* stack) {
  const auto& returns = schema.returns();
  size_t next = 0;
  for (const c10::Argument& result : returns) {
    if (result.type()->kind() == c10::TypeKind::ListType) {
      const size_t n = tensors.size() - (returns.size() - 1);
      c10::List<at::Tensor> list;
      for (size_t i = 0; i < n; ++i) list.push_back(std::move(tensors[next++]));
      stack->emplace_back(std::move(list));
    } else {
      stack->emplace_back(std::move(tensors[next++]));
    }
  }
}

bool returns_tensors_only(const c10::FunctionSchema& schema) {
  size_t lists = 0;
  for (const c10::Argument& result : schema.returns()) {
    const c10::TypeKind kind = result.type()->kind();
    if (kind == c10::TypeKind::ListType) ++lists;
    else if (kind != c10::TypeKind::TensorType) return false;
  }
  return lists <= 1;
}

// Sizes made of Python ints are as symbolic sizes are; true if one had to be fixed.
bool fix_sizes(NumberEnv& env, std::vector<graph::TensorType>& types) {
  bool any = false;
  if (env.integers().empty()) return any;
  for (graph::TensorType& type : types)
    for (graph::Expr& size : type.sizes) any |= env.as_size(size) != size;
  return any;
}

}  // namespace

// Graphs are read with float32 as the default type. Under another, factories get their type as an argument.
void Recorder::state_dtype(const OperatorInfo& info, std::vector<graph::Argument>& arguments,
                           const std::vector<graph::TensorType>& types) const {
  if (info.op->has(graph::kFactory) && info.dtype_argument >= 0 &&
      arguments[static_cast<size_t>(info.dtype_argument)].is_none())
    arguments[static_cast<size_t>(info.dtype_argument)] = types[0].dtype;
  const auto plain = graph::infer_types(info.op, arguments, {env_.get(), DType::F32});
  if (!plain.ok() || *plain != types) unsupported("the type of " + info.op->name + " depends on the default dtype");
}

at::Tensor Recorder::result_tensor(graph::Value* value, const OperatorInfo& info, const Operands& operands) {
  if (!value->type.defined) return {};
  at::Tensor made = tensor_for(value);
  if (!info.is_view) return made;
  const bool conjugate = (operands.lazy != nullptr && operands.lazy->is_conj()) != info.flips_conjugate;
  const bool negative = (operands.lazy != nullptr && operands.lazy->is_neg()) != info.flips_negative;
  if (conjugate) made.unsafeGetTensorImpl()->_set_conj(true);
  if (negative) made.unsafeGetTensorImpl()->_set_neg(true);
  return made;
}

void Recorder::append(const OperatorHandle& op, OperatorInfo& info, const Operands& operands, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t n = info.arguments.size();
  const at::ArrayRef<IValue> arguments = torch::jit::last(*stack, n);
  std::vector<graph::Argument> converted;
  converted.reserve(n);
  for (size_t i = 0; i < n; ++i) converted.push_back(argument(arguments[i], info.arguments[i]));
  const bool dynamic = has_dynamic_sizes(info, arguments);
  if (dynamic && !can_probe(op)) unsupported(c10::toString(op.operator_name()) + " needs the data of a tensor");

  if (info.has_rule && !dynamic && returns_tensors_only(schema)) {
    const graph::TypeContext context{env_.get(), from_torch(c10::get_default_dtype_as_scalartype())};
    Result<std::vector<graph::TensorType>> types = graph::infer_types(info.op, converted, context);
    if (types.ok() && fix_sizes(*env_, *types)) types = graph::infer_types(info.op, converted, context);
    if (types.ok()) {
      count_native_rule();
      if (operands.lazy != nullptr) refuse_reinterpretation(info, *operands.lazy, *types);
      if (context.default_dtype != DType::F32) state_dtype(info, converted, *types);
      const graph::Node* node = add_node(info, std::move(converted), std::move(*types));
      std::vector<at::Tensor> results;
      results.reserve(node->results.size());
      for (graph::Value* value : node->results) results.push_back(result_tensor(value, info, operands));
      torch::jit::drop(*stack, n);
      push_results(schema, std::move(results), stack);
      return;
    }
  }

  // oneDNN alone knows how large the workspace for the backward pass is, which there is wherever autograd is on.
  const bool workspace = info.has_train_workspace && c10::GradMode::is_enabled();
  Stack results = dynamic || workspace ? run_probe(op, info, arguments, dynamic) : run_meta(op, info, arguments);
  std::vector<graph::TensorType> types;
  std::vector<bool> mask;
  if (info.has_output_mask)
    for (bool wanted : arguments.back().toBoolList()) mask.push_back(wanted);
  const auto add_type = [&](const at::Tensor& meta) {
    const size_t i = types.size();
    // The meta functions of some backward operators return gradients that nobody asked for; the kernels don't.
    const bool defined = meta.defined() && (i >= mask.size() || mask[i]);
    if (defined && (meta.layout() != c10::kStrided || meta.is_quantized() || meta.is_nested()))
      unsupported(info.op->name + " makes a tensor that is not strided");
    types.push_back(defined ? type_of(meta, operands.device) : graph::TensorType{});
    types.back().defined = defined;
    if (defined && dynamic) forget_sizes(types.back());
    if (defined && (meta.is_conj() || meta.is_neg()) && !info.is_view)
      unsupported(info.op->name + " makes a lazily conjugated or negated tensor");
  };
  for (size_t i = 0; i < results.size(); ++i) {
    const IValue& value = results[i];
    if (value.isTensor()) add_type(value.toTensor());
    else if (value.isTensorList()) for (const IValue& item : value.toListRef()) add_type(item.toTensor());
    else if (value.isNone() && schema.returns()[i].type()->kind() == c10::TypeKind::TensorType) add_type(at::Tensor());
  }
  if (info.has_train_workspace && !workspace) {
    types.back() = {};
    types.back().defined = false;
  }
  if (operands.lazy != nullptr) refuse_reinterpretation(info, *operands.lazy, types);
  if (types.empty() && !results.empty()) {   // a fact about types, and no part of the graph
    torch::jit::drop(*stack, n);
    for (IValue& value : results) stack->push_back(std::move(value));
    return;
  }
  const graph::Node* node = add_node(info, std::move(converted), std::move(types));
  torch::jit::drop(*stack, n);
  size_t next = 0;
  const auto take = [&] { return result_tensor(node->results[next++], info, operands); };
  for (size_t i = 0; i < results.size(); ++i) {
    const IValue& value = results[i];
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (size_t k = 0; k < value.toListRef().size(); ++k) list.push_back(take());
      stack->emplace_back(std::move(list));
    } else if (value.isTensor() || schema.returns()[i].type()->kind() == c10::TypeKind::TensorType) {
      stack->emplace_back(take());
    } else {
      stack->push_back(value);
    }
  }
}

}  // namespace braze::trace
