#include "braze/trace/probe.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/List.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/linspace.h>

#include <algorithm>
#include <optional>

#include "braze/trace/abort.h"
#include "braze/trace/traced_impl.h"
#include "braze/trace/types.h"

namespace braze::trace {
namespace {

using c10::IValue;
using torch::jit::Stack;

// Many kernels check what they are given: indices must lie in range, edges rise, divisors differ from 0.
enum class Filling : uint8_t { Rising, Ones };   // Rising: floats from 0 to 1, integers 0

void fill(const at::Tensor& tensor, Filling filling) {
  const auto elements = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  at::Tensor memory = tensor.as_strided({elements}, {1}, 0);   // a strided tensor may show one element twice
  if (filling == Filling::Ones) memory.fill_(1);
  else if (memory.is_floating_point()) memory.copy_(at::linspace(0, 1, elements, at::kFloat));
  else memory.zero_();
}

at::Tensor stand_in(const at::Tensor& tensor, Filling filling) {
  const TracedImpl* impl = traced(tensor);
  if (impl != nullptr && impl->constant().defined()) return impl->constant();
  if (impl == nullptr) return tensor;
  if (!tensor.device().is_cpu()) unsupported("a type that only the operator's kernel for another device knows");
  at::Tensor made = at::empty_strided(specialized(impl->sym_sizes()), specialized(impl->sym_strides()),
                                      at::TensorOptions(c10::typeMetaToScalarType(impl->dtype())));
  fill(made, filling);
  return made;
}

IValue probe_argument(const IValue& value, ArgumentKind kind, Filling filling) {
  // The program's own generators draw nothing for us.
  if (kind == ArgumentKind::Generator) return at::make_generator<at::CPUGeneratorImpl>(uint64_t{0});
  return map_argument(value, kind, [&](const at::Tensor& t) { return stand_in(t, filling); });
}

// The results on one filling; nullopt and `why` where the kernel refuses it.
std::optional<Stack> run(const c10::OperatorHandle& op, const OperatorInfo& info, at::ArrayRef<IValue> arguments,
                         Filling filling, std::string& why) {
  const ExcludeTracing off;
  Stack stack;
  stack.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i)
    stack.push_back(probe_argument(arguments[i], info.arguments[i], filling));
  try {
    op.callBoxed(&stack);
  } catch (const Abort&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    why = text.substr(0, text.find('\n'));
    return std::nullopt;
  }
  return stack;
}

bool same_type(const at::Tensor& a, const at::Tensor& b, bool dynamic) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.scalar_type() != b.scalar_type() || a.layout() != b.layout() || a.dim() != b.dim()) return false;
  return dynamic || (a.sizes() == b.sizes() && (a.layout() != c10::kStrided || a.strides() == b.strides()));
}

bool same_types(const Stack& a, const Stack& b, bool dynamic) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].isTensor() != b[i].isTensor() || a[i].isTensorList() != b[i].isTensorList()) return false;
    if (a[i].isTensor() && !same_type(a[i].toTensor(), b[i].toTensor(), dynamic)) return false;
    if (!a[i].isTensorList()) continue;
    const auto first = a[i].toTensorVector(), second = b[i].toTensorVector();
    if (first.size() != second.size()) return false;
    for (size_t k = 0; k < first.size(); ++k)
      if (!same_type(first[k], second[k], dynamic)) return false;
  }
  return true;
}

bool has_generator(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& a) { return a.type()->str().find("Generator") != std::string::npos; });
}

}  // namespace

bool can_probe(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  if (!schema.name().starts_with("aten::") || schema.is_mutable() || schema.returns().empty()) return false;
  if (op.hasTag(at::Tag::nondeterministic_seeded) && !has_generator(schema)) return false;
  for (const c10::Argument& result : schema.returns()) {
    const c10::Type& type = *result.type();
    const bool tensors = type.kind() == c10::TypeKind::TensorType ||
                         (type.kind() == c10::TypeKind::ListType &&
                          type.castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType);
    if (!tensors) return false;
  }
  return op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
}

Stack run_probe(const c10::OperatorHandle& op, const OperatorInfo& info, at::ArrayRef<IValue> arguments, bool dynamic) {
  std::string why;
  if (info.has_train_workspace) {   // no data decides
    if (std::optional<Stack> ones = run(op, info, arguments, Filling::Ones, why)) return *std::move(ones);
    unsupported(info.op->name + ": " + why);
  }
  std::optional<Stack> rising = run(op, info, arguments, Filling::Rising, why);
  std::optional<Stack> ones = run(op, info, arguments, Filling::Ones, why);
  if (!rising && !ones) unsupported(info.op->name + ": " + why);
  if (rising && ones && !same_types(*rising, *ones, dynamic))
    unsupported("the type of the result of " + info.op->name + " depends on data");
  return rising ? *std::move(rising) : *std::move(ones);
}

}  // namespace braze::trace
