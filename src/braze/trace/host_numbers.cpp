#include "braze/trace/host_numbers.h"

#include <utility>

#include "braze/graph/arguments.h"
#include "braze/graph/foreach.h"

namespace braze::trace {
namespace {

using graph::Argument;
using graph::OpId;
using graph::Value;

bool has_one_element(const graph::TensorType& type) {
  if (!type.defined || !type.is_strided || type.device.kind != Device::Kind::Cpu) return false;
  for (graph::Expr size : type.sizes)
    if (!(size == graph::Expr(1))) return false;
  return is_floating(type.dtype) || type.dtype == DType::I64 || type.dtype == DType::Bool;
}

std::optional<Comparison> comparison(OpId id, bool& swapped) {
  swapped = id == OpId::gt_Tensor || id == OpId::gt_Scalar || id == OpId::ge_Tensor || id == OpId::ge_Scalar;
  switch (id) {
    case OpId::eq_Tensor: case OpId::eq_Scalar: return Comparison::Equal;
    case OpId::ne_Tensor: case OpId::ne_Scalar: return Comparison::NotEqual;
    case OpId::lt_Tensor: case OpId::lt_Scalar: case OpId::gt_Tensor: case OpId::gt_Scalar: return Comparison::Less;
    case OpId::le_Tensor: case OpId::le_Scalar: case OpId::ge_Tensor: case OpId::ge_Scalar: return Comparison::LessEqual;
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<FloatId> HostNumbers::of(const Value& value, int depth) {
  constexpr int kDeepest = 200;
  if (depth > kDeepest || !has_one_element(value.type)) return std::nullopt;
  if (const auto known = known_.find(&value); known != known_.end()) return known->second;
  std::optional<FloatId> id = element_ ? element_(value) : std::nullopt;
  if (!id && value.producer != nullptr) id = computed(value, depth);
  known_[&value] = id;
  return id;
}

std::optional<bool> HostNumbers::truth(const Value& value) {
  const graph::Node* node = value.producer;
  bool swapped = false;
  const auto how = node == nullptr ? std::nullopt : comparison(node->op->id, swapped);
  if (!how) {
    if (node != nullptr && node->op->id == OpId::logical_not && node->arguments[0].is<Value*>()) {
      const auto negated = truth(*node->arguments[0].as<Value*>());
      return negated ? std::optional(!*negated) : std::nullopt;
    }
    const auto id = of(value);
    return id ? std::optional(env_.ask(Comparison::NotEqual, *id, env_.constant(0))) : std::nullopt;
  }
  if (!node->arguments[0].is<Value*>() || value.type.device.kind != Device::Kind::Cpu) return std::nullopt;
  const DType dtype = node->arguments[0].as<Value*>()->type.dtype;
  auto a = operand(node->arguments[0], dtype, 0), b = operand(node->arguments[1], dtype, 0);
  if (!a || !b) return std::nullopt;
  if (swapped) std::swap(a, b);
  return env_.ask(*how, *a, *b);
}

// A number, or a tensor of the type in which the operator computes.
std::optional<FloatId> HostNumbers::operand(const Argument& argument, DType dtype, int depth) {
  if (argument.is<Value*>()) {
    const Value* value = argument.as<Value*>();
    if (value == nullptr || (value->type.dtype != dtype && !(value->type.wrapped_number && dtype == DType::F32)))
      return std::nullopt;
    const auto id = of(*value, depth + 1);
    return id && value->type.dtype != dtype ? std::optional(env_.apply(FloatOp::Single, *id)) : id;
  }
  if (argument.is<bool>()) return std::nullopt;
  if (dtype != DType::F32 && dtype != DType::F64 && !(dtype == DType::I64 && argument.is<graph::Expr>())) return std::nullopt;
  const std::optional<double> number = graph::number(argument);
  if (!number) return std::nullopt;
  return env_.constant(dtype == DType::F32 ? trace::apply(FloatOp::Single, *number, 0) : *number);
}

// Sums, differences and products of single precision are exact in double precision, or rounded there to more than twice
// the bits: rounded again they are what single precision gives.
std::optional<FloatId> HostNumbers::computed(const Value& value, int depth) {
  const graph::Op* op = value.producer->op;
  std::vector<Argument> arguments = value.producer->arguments;
  if (const graph::Op* each = graph::each_op(op)) {
    arguments = graph::each_arguments(op, arguments, static_cast<size_t>(value.index));
    op = each;
  }
  const DType dtype = value.type.dtype;
  const auto rounded = [&](FloatId id) {
    if (dtype == DType::I64) return env_.apply(FloatOp::Exact, id);
    return dtype == DType::F32 ? env_.apply(FloatOp::Single, id) : id;
  };
  const auto copied = [&](const Argument& argument) -> std::optional<FloatId> {
    const Value* source = argument.is<Value*>() ? argument.as<Value*>() : nullptr;
    const auto id = source == nullptr ? std::nullopt : of(*source, depth + 1);
    if (!id || source->type.dtype == dtype) return id;
    return dtype == DType::F32 || dtype == DType::F64 ? std::optional(rounded(*id)) : std::nullopt;
  };
  const auto binary = [&](FloatOp operation) -> std::optional<FloatId> {
    if (dtype != DType::F32 && dtype != DType::F64 && dtype != DType::I64) return std::nullopt;
    if (arguments.size() > 2 && graph::number(arguments[2]) != 1.0) return std::nullopt;   // alpha
    const auto a = operand(arguments[0], dtype, depth), b = operand(arguments[1], dtype, depth);
    if (!a || !b) return std::nullopt;
    return rounded(env_.apply(operation, *a, *b));
  };
  switch (op->id) {
    case OpId::add_Tensor:
    case OpId::add_Scalar: return binary(FloatOp::Add);
    case OpId::sub_Tensor:
    case OpId::sub_Scalar: return binary(FloatOp::Subtract);
    case OpId::mul_Tensor:
    case OpId::mul_Scalar: return binary(FloatOp::Multiply);
    case OpId::neg: {
      const auto a = operand(arguments[0], dtype, depth);
      return a ? std::optional(env_.apply(FloatOp::Negate, *a)) : std::nullopt;
    }
    case OpId::zeros:
    case OpId::zeros_like: return env_.constant(0);
    case OpId::ones:
    case OpId::ones_like: return env_.constant(1);
    case OpId::scalar_tensor: return operand(arguments[0], dtype, depth);
    case OpId::full:
    case OpId::full_like: return operand(arguments[1], dtype, depth);
    case OpId::copy: return copied(arguments[1]);
    case OpId::fill_Tensor: return copied(arguments[1]);
    case OpId::fill_Scalar: return operand(arguments[1], dtype, depth);
    case OpId::clone:
    case OpId::alias:
    case OpId::detach:
    case OpId::lift_fresh:
    case OpId::view:
    case OpId::reshape:
    case OpId::_to_copy: return copied(arguments[0]);
    default: return std::nullopt;
  }
}

}  // namespace braze::trace
