// Arithmetic that can be had for less with every bit of the result the same.
#include <cmath>

#include "braze/graph/builder.h"
#include "braze/rewrite/pass_manager.h"
#include "braze/rewrite/storage.h"

namespace braze::rewrite {

using graph::Argument;
using graph::Builder;
using graph::Node;
using graph::OpId;
using graph::Value;

namespace {

Value* operand(const Node& node, size_t i) {
  return node.arguments[i].is<Value*>() ? node.arguments[i].as<Value*>() : nullptr;
}

Node* producer(const Node& node, OpId id) {
  Value* x = operand(node, 0);
  return x != nullptr && x->producer != nullptr && x->producer->op->id == id ? x->producer : nullptr;
}

// Every value of `from` is one of `to`.
bool embeds(DType from, DType to) {
  if (from == to) return true;
  switch (from) {
    case DType::Bool:
      return is_integral(to, false) || to == DType::F16 || to == DType::BF16 || to == DType::F32 || to == DType::F64;
    case DType::BF16:
    case DType::F16:
      return to == DType::F32 || to == DType::F64;
    case DType::F32:
      return to == DType::F64;
    case DType::U8:
      return to == DType::I16 || to == DType::I32 || to == DType::I64 || to == DType::F32 || to == DType::F64;
    case DType::I8:
      return to == DType::I16 || to == DType::I32 || to == DType::I64 || to == DType::F32 || to == DType::F64;
    case DType::I16:
      return to == DType::I32 || to == DType::I64 || to == DType::F32 || to == DType::F64;
    case DType::I32:
      return to == DType::I64 || to == DType::F64;
    default:
      return false;
  }
}

// Applied twice, these are the identity, or the same as once.
Value* twice(const Node& node) {
  Node* inner = producer(node, node.op->id);
  if (inner == nullptr) return nullptr;
  switch (node.op->id) {
    case OpId::neg:
    case OpId::bitwise_not:
      return operand(*inner, 0);
    case OpId::logical_not:
      return operand(*inner, 0)->type.dtype == DType::Bool ? operand(*inner, 0) : nullptr;
    case OpId::relu:
    case OpId::abs:
    case OpId::floor:
    case OpId::ceil:
    case OpId::trunc:
    case OpId::round:
      return inner->result();
    default:
      return nullptr;
  }
}

// A conversion of a conversion that lost nothing converts the original.
Value* cast_of_cast(Builder& b, const Node& node) {
  if (node.op->id != OpId::_to_copy) return nullptr;
  Node* inner = producer(node, OpId::_to_copy);
  if (inner == nullptr) return nullptr;
  Value* x = operand(*inner, 0);
  const graph::TensorType& type = node.result()->type;
  if (x == nullptr || !embeds(x->type.dtype, inner->result()->type.dtype) || x->type.device != type.device ||
      inner->result()->type.device != type.device)
    return nullptr;
  // How floats out of range become integers depends on the float type.
  if (is_floating(x->type.dtype) && !is_floating(type.dtype)) return nullptr;
  return x->type.dtype == type.dtype ? x : b(OpId::_to_copy, {x, type.dtype});
}

// Division by a power of two is multiplication by its inverse: both round the same exact quotient.
Value* division(Builder& b, const Node& node) {
  if (node.op->id != OpId::div_Tensor && node.op->id != OpId::div_Scalar) return nullptr;
  Value* x = operand(node, 0);
  auto divisor = graph::number(node.arguments[1]);
  if (x == nullptr || !divisor || !is_floating(x->type.dtype) || node.result()->type.dtype != x->type.dtype)
    return nullptr;
  int exponent = 0;
  double mantissa = std::frexp(*divisor, &exponent);
  if (std::abs(mantissa) != 0.5 || exponent < -30 || exponent > 30 || std::abs(*divisor) == 1.0) return nullptr;
  return b.mul(x, 1.0 / *divisor);
}

// Exponents for which ATen's kernel does not call pow.
Value* power(Builder& b, const Node& node) {
  if (node.op->id != OpId::pow_Tensor_Scalar) return nullptr;
  Value* x = operand(node, 0);
  auto exponent = graph::number(node.arguments[1]);
  if (!exponent || x->type.dtype == DType::Bool || node.result()->type.dtype != x->type.dtype ||
      is_complex(x->type.dtype))
    return nullptr;
  bool full_float = x->type.dtype == DType::F32 || x->type.dtype == DType::F64;
  if (*exponent == 2.0) return b.mul(x, x);
  if (*exponent == 3.0 && full_float) return b.mul(b.mul(x, x), x);
  if (*exponent == 0.5 && full_float) return b(OpId::sqrt, {x});
  return nullptr;
}

// (x + a) + b is x + (a + b) where arithmetic wraps.
Value* integer_sum(Builder& b, const Node& node) {
  if (node.op->id != OpId::add_Tensor || node.result()->type.dtype != DType::I64) return nullptr;
  Node* inner = producer(node, OpId::add_Tensor);
  if (inner == nullptr) return nullptr;
  auto outer_number = graph::integer(node.arguments[1]), inner_number = graph::integer(inner->arguments[1]);
  if (!outer_number || !inner_number || graph::integer(node, "alpha") != 1 || graph::integer(*inner, "alpha") != 1 ||
      operand(*inner, 0) == nullptr || operand(*inner, 0)->type.dtype != DType::I64)
    return nullptr;
  uint64_t sum = static_cast<uint64_t>(*outer_number) + static_cast<uint64_t>(*inner_number);
  return b.add(operand(*inner, 0), graph::int_argument(static_cast<int64_t>(sum)));
}

}  // namespace

bool algebraic_simplification(graph::Graph& graph) {
  Storages storages(graph);
  bool changed = false;
  for (auto it = graph.nodes.begin(); it != graph.nodes.end();) {
    Node* node = *it++;
    if (node->results.size() != 1 || !node->op->has(graph::kPointwise) || operand(*node, 0) == nullptr) continue;
    Builder b(graph, node);
    Value* better = twice(*node);
    if (better == nullptr) better = cast_of_cast(b, *node);
    if (better == nullptr) better = division(b, *node);
    if (better == nullptr) better = power(b, *node);
    if (better == nullptr) better = integer_sum(b, *node);
    bool replaced = better != nullptr && same_layout(better->type, node->result()->type) &&
                    forward(graph, storages, node->result(), better);
    for (auto made = b.made().rbegin(); made != b.made().rend(); ++made)
      if (!graph.has_uses((*made)->result())) graph.erase(*made);
    changed |= replaced;
    if (replaced && !graph.has_uses(node->result())) graph.erase(node);
  }
  return changed;
}

}  // namespace braze::rewrite
