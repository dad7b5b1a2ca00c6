#include "braze/trace/entry.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/ops/lshift_ops.h>
#include <ATen/ops/rshift_ops.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/_native_batch_norm_legit.h>
#include <ATen/ops/all.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/unsafe_split.h>
#include <ATen/ops/unsafe_split_with_sizes.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

#include <optional>
#include <unordered_set>
#include <vector>

#include "braze/trace/abort.h"
#include "braze/trace/python_number.h"
#include "braze/trace/recorder.h"
#include "braze/trace/tensor_guard.h"
#include "braze/trace/torch_types.h"
#include "braze/trace/transforms.h"

namespace braze::trace {
namespace {

namespace functional = at::functionalization::impl;
using c10::DispatchKeySet;
using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;

const DispatchKeySet kAfterEntry(DispatchKeySet::FULL_AFTER, kEntryKey);

struct Written {
  at::Tensor tensor;
  std::vector<c10::SymInt> sizes;    // before the call
  at::Tensor inner;                  // the value before the call
};

std::vector<Written> written_arguments(const c10::FunctionSchema& schema, at::ArrayRef<IValue> arguments) {
  std::vector<Written> out;
  const auto add = [&](const at::Tensor& t) {
    if (is_wrapper(t)) out.push_back({t, t.sym_sizes().vec(), functional::from_functional_tensor(t)});
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    if (arguments[i].isTensor()) add(arguments[i].toTensor());
    else if (arguments[i].isTensorList()) for (const IValue& item : arguments[i].toListRef()) add(item.toTensor());
  }
  return out;
}

// A list that writes one storage twice: functionalization computes each result from the original.
void refuse_repeated_storage(const std::vector<Written>& written) {
  std::unordered_set<const void*> storages;
  for (const Written& w : written)
    if (!storages.insert(w.tensor.storage().unsafeGetStorageImpl()).second)
      unsupported("an operator that writes the same memory through two of its arguments");
}

// Eager refuses to write one element twice through an expanded tensor; what it allows (one row of it) libtorch's
// functionalization gets wrong.
void refuse_expanded(const std::vector<Written>& written) {
  for (const Written& w : written) {
    if (has_lossy_view(*functional::unsafeGetFunctionalWrapper(w.tensor)))
      unsupported("a write through a view made by expand or unfold");
    const c10::SymIntArrayRef strides = w.tensor.sym_strides();
    for (size_t d = 0; d < w.sizes.size(); ++d)
      if (strides[d].maybe_as_int() == 0 && w.sizes[d].maybe_as_int().value_or(2) > 1)
        unsupported("a write to an expanded tensor, whose elements share memory");
  }
}

// What a tensor's elements take of its storage, if they lie in it without gaps and the numbers are known.
struct Extent {
  int64_t begin = 0, end = 0;
  std::vector<int64_t> sizes, strides;
  friend bool operator==(const Extent&, const Extent&) = default;
};
std::optional<Extent> extent_of(const at::Tensor& tensor) {
  const auto known = [](c10::SymIntArrayRef from, std::vector<int64_t>& to) {
    for (const c10::SymInt& n : from) {
      const std::optional<int64_t> value = n.maybe_as_int();
      if (!value) return false;
      to.push_back(*value);
    }
    return true;
  };
  Extent out;
  const std::optional<int64_t> offset = tensor.sym_storage_offset().maybe_as_int();
  if (!offset || !known(tensor.sym_sizes(), out.sizes) || !known(tensor.sym_strides(), out.strides)) return std::nullopt;
  if (!out.sizes.empty() && dense_order(out.sizes, out.strides).empty()) return std::nullopt;
  out.begin = out.end = *offset;
  int64_t n = 1;
  for (const int64_t size : out.sizes) n *= size;
  out.end += n;
  return out;
}

// Eager refuses to read elements that lie between those which the same operator writes.
void refuse_partial_overlap(const std::vector<Written>& written, at::ArrayRef<IValue> arguments) {
  const auto check = [&](const at::Tensor& read) {
    if (!is_wrapper(read) || !read.has_storage()) return;
    for (const Written& w : written) {
      if (w.tensor.is_same(read) || w.tensor.storage().unsafeGetStorageImpl() != read.storage().unsafeGetStorageImpl()) continue;
      const std::optional<Extent> a = extent_of(w.tensor), b = extent_of(read);
      if (a && b && *a != *b && a->begin < b->end && b->begin < a->end)
        unsupported("an operator that writes a part of the memory which it reads");
    }
  };
  for (const IValue& argument : arguments) {
    if (argument.isTensor()) check(argument.toTensor());
    else if (argument.isTensorList()) for (const IValue& item : argument.toListRef()) check(item.toTensor());
  }
}

// x.add_(y): the result must have x's sizes. Functionalization would let x grow.
void check_sizes(const std::vector<Written>& written) {
  for (const Written& w : written)
    if (c10::SymIntArrayRef(w.sizes) != w.tensor.sym_sizes())
      unsupported("the result of an in-place operator does not have the sizes of the tensor that it changes");
}

// int.add_(1.5): functionalization casts the result back, where eager refuses.
void check_casts(const std::vector<Written>& written, int64_t first_new_id) {
  for (const Written& w : written) {
    const at::Tensor inner = functional::from_functional_tensor(w.tensor);
    const TracedImpl* impl = traced(inner);
    if (impl == nullptr || impl->value()->id < first_new_id) continue;
    const graph::Node* node = impl->value()->producer;
    if (node == nullptr || node->op->name != "aten._to_copy" || !node->arguments[0].is<graph::Value*>()) continue;
    const c10::ScalarType from = to_torch(node->arguments[0].as<graph::Value*>()->type.dtype);
    if (!c10::canCast(from, to_torch(impl->value()->type.dtype)))
      unsupported("the result of an in-place operator can't be cast to the type of the tensor that it changes");
  }
}

bool same_layout(const graph::TensorType& a, const graph::TensorType& b) {
  for (size_t d = 0; d < a.sizes.size(); ++d)
    if (a.strides[d] != b.strides[d] && a.sizes[d] != graph::Expr(1)) return false;
  return true;
}

// A write keeps the strides of what is written; the functional operator that stands for it chose its own.
void restore_layouts(const std::vector<Written>& written) {
  for (const Written& w : written) {
    const TracedImpl* before = traced(w.inner);
    const at::Tensor inner = functional::from_functional_tensor(w.tensor);
    const TracedImpl* after = traced(inner);
    if (before == nullptr || after == nullptr) continue;
    const graph::TensorType &old_type = before->value()->type, &new_type = after->value()->type;
    if (old_type.sizes != new_type.sizes || old_type.dtype != new_type.dtype || same_layout(old_type, new_type)) continue;
    at::Tensor restored;
    {
      const at::AutoDispatchSkipFunctionalize below;
      const at::AutoDispatchBelowADInplaceOrView no_autograd;
      restored = at::copy(w.inner, inner);
    }
    functional::replace_(w.tensor, restored);
    functional::commit_update(w.tensor);
    functional::sync(w.tensor);
  }
}

bool is_in_place(const c10::FunctionSchema& schema) {
  const std::string& name = schema.name();
  return name.ends_with('_') && !name.ends_with("__");
}

// Operators that change the sizes of their first argument by intent.
bool changes_metadata(const OperatorHandle& op) {
  static const std::unordered_set<std::string> names = {"aten::resize_", "aten::resize_as_", "aten::set_",
                                                        "aten::squeeze_", "aten::unsqueeze_", "aten::as_strided_"};
  return op.hasTag(at::Tag::inplace_view) || names.contains(op.schema().name());
}

// Random numbers fill the memory of a tensor in its order, whatever the strides; the functional operators that stand for
// in-place ones draw in the order of indices. So the latter get a view whose indices run as the memory does.
at::Tensor in_memory_order(const OperatorHandle& op, const at::Tensor& self) {
  if (self.is_contiguous()) return self;
  const std::vector<int> order = dense_order(self.sizes(), self.strides());
  if (order.empty() || op.schema().name() == "aten::normal_")
    unsupported(op.schema().name() + " on a tensor whose memory is not in the order of its dimensions");
  return self.permute(std::vector<int64_t>(order.rbegin(), order.rend()));
}

void mutable_kernel(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  Recorder* recorder = current_recorder();
  if (recorder == nullptr || in_transform_kernel()) {
    op.redispatchBoxed(keys & kAfterEntry, stack);
    return;
  }
  try {
    const c10::FunctionSchema& schema = op.schema();
    const std::vector<Written> written =
        written_arguments(schema, torch::jit::last(*stack, schema.arguments().size()));
    if (written.size() > 1) refuse_repeated_storage(written);
    if (!changes_metadata(op)) {
      refuse_expanded(written);
      refuse_partial_overlap(written, torch::jit::last(*stack, schema.arguments().size()));
    }
    const int64_t first_new_id = recorder->next_value_id();
    const bool fills = is_in_place(schema) && op.hasTag(at::Tag::nondeterministic_seeded) && written.size() == 1;
    if (fills) stack->end()[-static_cast<std::ptrdiff_t>(schema.arguments().size())] = in_memory_order(op, written[0].tensor);
    op.redispatchBoxed(keys & kAfterEntry, stack);
    if (fills) stack->back() = written[0].tensor;
    if (is_in_place(schema) && !changes_metadata(op)) check_sizes(written);
    check_casts(written, first_new_id);
    if (!changes_metadata(op)) restore_layouts(written);
  } catch (const Abort& abort) {
    recorder->note_failure(abort.why);
    throw;
  }
}

// The schema of native_batch_norm hides that it updates the running statistics; _native_batch_norm_legit tells.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_kernel(
    DispatchKeySet keys, const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var, bool training, double momentum, double eps) {
  const bool has_statistics = running_mean && running_mean->defined() && running_var && running_var->defined();
  if (current_recorder() != nullptr && !in_transform_kernel() && training && has_statistics) {
    at::Tensor mean = *running_mean, var = *running_var;
    return at::_native_batch_norm_legit(input, weight, bias, mean, var, training, momentum, eps);
  }
  return at::_ops::native_batch_norm::redispatch(keys & kAfterEntry, input, weight, bias, running_mean, running_var,
                                                 training, momentum, eps);
}

// The schemas of these hide that the results share their operand's memory, which split's tells. Where autograd records,
// they stay as they are: it would refuse writes to split's results, which these are there to allow.
bool records_gradients(const at::Tensor& tensor) { return c10::GradMode::is_enabled() && tensor.requires_grad(); }

std::vector<at::Tensor> unsafe_split_kernel(DispatchKeySet keys, const at::Tensor& self, c10::SymInt split_size,
                                            int64_t dim) {
  if (current_recorder() != nullptr && !records_gradients(self)) return self.split_symint(split_size, dim);
  return at::_ops::unsafe_split_Tensor::redispatch(keys & kAfterEntry, self, split_size, dim);
}

std::vector<at::Tensor> unsafe_split_with_sizes_kernel(DispatchKeySet keys, const at::Tensor& self,
                                                       c10::SymIntArrayRef sizes, int64_t dim) {
  if (current_recorder() != nullptr && !records_gradients(self)) return self.split_with_sizes_symint(sizes, dim);
  return at::_ops::unsafe_split_with_sizes::redispatch(keys & kAfterEntry, self, sizes, dim);
}

// one_hot reads its operand's extremes on the host to check them; given the number of classes, checks in the graph do.
at::Tensor one_hot_kernel(DispatchKeySet keys, const at::Tensor& self, int64_t num_classes) {
  // For vmap, which can't read them either, libtorch has another way.
  const bool checked = num_classes > 0 && self.scalar_type() == c10::kLong && !at::functorch::isBatchedTensor(self);
  if (current_recorder() == nullptr || !checked || self.sym_numel() == 0)
    return at::_ops::one_hot::redispatch(keys & kAfterEntry, self, num_classes);
  at::_assert_async(self.ge(0).all(), "Class values must be non-negative.");
  at::_assert_async(self.lt(num_classes).all(), "Class values must be smaller than num_classes.");
  const at::Tensor classes = at::arange(num_classes, self.options());
  return self.contiguous().unsqueeze(-1).eq(classes).to(c10::kLong);
}

// Zeros without memory, which derivative formulas make: kernels read memory.
at::Tensor zero_tensor_kernel(DispatchKeySet keys, c10::SymIntArrayRef size, std::optional<c10::ScalarType> dtype,
                              std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                              std::optional<bool> pin_memory) {
  if (current_recorder() != nullptr) return at::zeros_symint(size, dtype, layout, device, pin_memory);
  return at::_ops::_efficientzerotensor::redispatch(keys & kAfterEntry, size, dtype, layout, device, pin_memory);
}

// Composites that ask a symbolic number for its value; with tensors in the numbers' places they do not.
at::Tensor rsub_kernel(DispatchKeySet keys, const at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  if (current_recorder() == nullptr || !other.isSymbolic())
    return at::_ops::rsub_Scalar::redispatch(keys & kAfterEntry, self, other, alpha);
  return at::rsub(self, wrap_number(other), alpha);
}

at::Tensor where_other_kernel(DispatchKeySet keys, const at::Tensor& condition, const at::Tensor& self,
                              const at::Scalar& other) {
  if (current_recorder() == nullptr || !other.isSymbolic())
    return at::_ops::where_ScalarOther::redispatch(keys & kAfterEntry, condition, self, other);
  return at::where(condition, self, wrap_number(other));
}

at::Tensor where_self_kernel(DispatchKeySet keys, const at::Tensor& condition, const at::Scalar& self,
                             const at::Tensor& other) {
  if (current_recorder() == nullptr || !self.isSymbolic())
    return at::_ops::where_ScalarSelf::redispatch(keys & kAfterEntry, condition, self, other);
  return at::where(condition, wrap_number(self), other);
}

// x << n of integers: the same kernel as bitwise_left_shift, which has a type rule and is fused.
bool shifts_integers(const at::Tensor& self) {
  return current_recorder() != nullptr && c10::isIntegralType(self.scalar_type(), /*includeBool=*/false);
}

bool shifts_integers(const at::Scalar& by) { return by.isIntegral(/*includeBool=*/false); }

template <class Op, class Other, at::Tensor (*bitwise)(const at::Tensor&, const Other&)>
at::Tensor shift_kernel(DispatchKeySet keys, const at::Tensor& self, const Other& other) {
  if (shifts_integers(self) && shifts_integers(other)) return bitwise(self, other);
  return Op::redispatch(keys & kAfterEntry, self, other);
}

// Composites that update statistics which their schemas call read-only. Without autograd keys they would reach
// functionalization whole; their bodies run above it instead.
void composite_kernel(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const bool whole = current_recorder() != nullptr && c10::InferenceMode::is_enabled();
  op.redispatchBoxed(whole ? DispatchKeySet(c10::DispatchKey::CPU) : keys & kAfterEntry, stack);
}

// Other batch norms that update statistics which their schemas call read-only.
void hidden_mutation_kernel(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  if (Recorder* recorder = current_recorder()) {
    const Abort abort({"operator " + op.schema().name() + " changes its arguments without saying so", ""});
    recorder->note_failure(abort.why);
    throw abort;
  }
  op.redispatchBoxed(keys & kAfterEntry, stack);
}

void require_free(c10::DispatchKey key) {
  for (const char* name : {"aten::add", "aten::empty"}) {
    const auto op = c10::Dispatcher::singleton().findSchema({name, name[6] == 'a' ? "Tensor" : "memory_format"});
    if (op && op->hasComputedKernelForDispatchKey(key))
      throw std::runtime_error(std::string("another library uses dispatch key ") + c10::toString(key) +
                               ", which braze's tracer needs");
  }
}

void register_mutable_kernels(torch::Library& library) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !op->schema().is_mutable()) continue;
    library.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&mutable_kernel>());
  }
}

}  // namespace

void register_kernels() {
  static bool done = false;
  if (done) return;
  require_free(kTraceKey);
  require_free(kEntryKey);
  disable_functionalization_reference();
  static torch::Library fallbacks(torch::Library::IMPL, "_", kTraceKey, __FILE__, __LINE__);
  fallbacks.fallback(torch::CppFunction::makeFromBoxedFunction<&trace_handler>());
  static torch::Library pass(torch::Library::IMPL, "_", kEntryKey, __FILE__, __LINE__);
  pass.fallback(torch::CppFunction::makeFallthrough());
  static torch::Library entry(torch::Library::IMPL, "aten", kEntryKey, __FILE__, __LINE__);
  register_mutable_kernels(entry);
  entry.impl("native_batch_norm", TORCH_FN(batch_norm_kernel));
  entry.impl("_efficientzerotensor", TORCH_FN(zero_tensor_kernel));
  entry.impl("one_hot", TORCH_FN(one_hot_kernel));
  entry.impl("rsub.Scalar", TORCH_FN(rsub_kernel));
  entry.impl("__lshift__.Scalar", TORCH_FN((shift_kernel<at::_ops::__lshift___Scalar, at::Scalar, &at::bitwise_left_shift>)));
  entry.impl("__rshift__.Scalar", TORCH_FN((shift_kernel<at::_ops::__rshift___Scalar, at::Scalar, &at::bitwise_right_shift>)));
  entry.impl("__lshift__.Tensor", TORCH_FN((shift_kernel<at::_ops::__lshift___Tensor, at::Tensor, &at::bitwise_left_shift>)));
  entry.impl("__rshift__.Tensor", TORCH_FN((shift_kernel<at::_ops::__rshift___Tensor, at::Tensor, &at::bitwise_right_shift>)));
  entry.impl("where.ScalarOther", TORCH_FN(where_other_kernel));
  entry.impl("where.ScalarSelf", TORCH_FN(where_self_kernel));
  entry.impl("unsafe_split.Tensor", TORCH_FN(unsafe_split_kernel));
  entry.impl("unsafe_split_with_sizes", TORCH_FN(unsafe_split_with_sizes_kernel));
  for (const char* name : {"batch_norm", "instance_norm", "_batch_norm_impl_index"})
    entry.impl(name, torch::CppFunction::makeFromBoxedFunction<&composite_kernel>());
  for (const char* name : {"cudnn_batch_norm", "miopen_batch_norm", "batch_norm_update_stats"})
    entry.impl(name, torch::CppFunction::makeFromBoxedFunction<&hidden_mutation_kernel>());
  done = true;
}

}  // namespace braze::trace
