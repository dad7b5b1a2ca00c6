// Operations whose result equals their operand in every bit. A float x + 0.0 is none: it turns -0.0 into 0.0.
#include <cmath>
#include <optional>

#include "braze/graph/arguments.h"
#include "braze/rewrite/pass_manager.h"
#include "braze/rewrite/storage.h"

namespace braze::rewrite {

using graph::Argument;
using graph::Node;
using graph::OpId;
using graph::Value;

namespace {

// 0 with this sign, or any 0 if the arithmetic is of integers.
bool is_zero(const Argument& argument, bool negative, DType dtype) {
  auto value = graph::number(argument);
  if (!value || *value != 0.0) return false;
  return !is_floating(dtype) || std::signbit(*value) == negative;
}

bool is_one(const Argument& argument) { return graph::number(argument) == 1.0; }

Value* operand(const Node& node, size_t i) {
  return node.arguments[i].is<Value*>() ? node.arguments[i].as<Value*>() : nullptr;
}

// The operand that the node only looks at in another way.
Value* address_view(const Node& node) {
  switch (node.op->id) {
    case OpId::view:
    case OpId::_unsafe_view:
    case OpId::reshape:
    case OpId::_reshape_alias:
    case OpId::t:
    case OpId::transpose_int:
    case OpId::permute:
    case OpId::squeeze:
    case OpId::squeeze_dim:
    case OpId::squeeze_dims:
    case OpId::expand:
    case OpId::slice_Tensor:
    case OpId::alias:
    case OpId::detach:
    case OpId::lift:
    case OpId::lift_fresh:
    case OpId::as_strided: {
      Value* x = operand(node, 0);
      return x != nullptr && x->type.offset == node.result()->type.offset ? x : nullptr;
    }
    default:
      return nullptr;
  }
}

Value* copied(const Node& node) {
  switch (node.op->id) {
    case OpId::clone:
    case OpId::_to_copy:
      return operand(node, 0);
    case OpId::copy:
      return operand(node, 1);
    case OpId::cat: {
      std::vector<Value*> parts = graph::tensors(node, "tensors");
      return parts.size() == 1 ? parts[0] : nullptr;
    }
    case OpId::repeat:
      for (graph::Expr n : graph::expressions(node, "repeats"))
        if (!(n == graph::Expr(1))) return nullptr;
      return operand(node, 0);
    case OpId::constant_pad_nd:
      for (graph::Expr n : graph::expressions(node, "pad"))
        if (!(n == graph::Expr(0))) return nullptr;
      return operand(node, 0);
    default:
      return nullptr;
  }
}

Value* neutral_arithmetic(const Node& node) {
  const auto& arguments = node.arguments;
  DType dtype = node.result()->type.dtype;
  auto plain_alpha = [&] { return is_one(node.argument("alpha")); };
  switch (node.op->id) {
    case OpId::add_Tensor:
    case OpId::add_Scalar:
      // x + -0.0 keeps both zeros.
      if (!plain_alpha()) return nullptr;
      if (operand(node, 0) != nullptr && is_zero(arguments[1], true, dtype)) return operand(node, 0);
      if (operand(node, 1) != nullptr && is_zero(arguments[0], true, dtype)) return operand(node, 1);
      return nullptr;
    case OpId::sub_Tensor:
    case OpId::sub_Scalar:
      return plain_alpha() && is_zero(arguments[1], false, dtype) ? operand(node, 0) : nullptr;
    case OpId::mul_Tensor:
    case OpId::mul_Scalar:
      if (operand(node, 0) != nullptr && is_one(arguments[1])) return operand(node, 0);
      if (operand(node, 1) != nullptr && is_one(arguments[0])) return operand(node, 1);
      return nullptr;
    case OpId::div_Tensor:
    case OpId::div_Scalar:
      return is_one(arguments[1]) ? operand(node, 0) : nullptr;
    case OpId::div_Tensor_mode:
    case OpId::floor_divide:
    case OpId::floor_divide_Scalar:
      return !is_floating(dtype) && is_one(arguments[1]) ? operand(node, 0) : nullptr;
    case OpId::pow_Tensor_Scalar:
      return is_one(arguments[1]) ? operand(node, 0) : nullptr;
    case OpId::where_self:
      return operand(node, 1) != nullptr && operand(node, 1) == operand(node, 2) ? operand(node, 1) : nullptr;
    case OpId::positive:
      return operand(node, 0);
    default:
      return nullptr;
  }
}

}  // namespace

bool no_op_removal(graph::Graph& graph) {
  Storages storages(graph);
  bool changed = false;
  for (auto it = graph.nodes.begin(); it != graph.nodes.end();) {
    Node* node = *it++;
    if (node->results.size() != 1 || !node->result()->type.defined) continue;
    Value* same = address_view(*node);
    if (same == nullptr) same = copied(*node);
    if (same == nullptr) same = neutral_arithmetic(*node);
    if (same == nullptr || !same_layout(same->type, node->result()->type)) continue;
    changed |= forward(graph, storages, node->result(), same);
    if (!graph.has_uses(node->result())) graph.erase(node);
  }
  return changed;
}

}  // namespace braze::rewrite
