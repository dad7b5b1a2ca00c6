// Nodes whose result is one known number everywhere become `full`; 0-dim constants become immediates of the arithmetic
// that uses them; choices by a constant condition become the chosen operand. Arrays that differ from place to place, as
// masks do, stay computed where they are used, which costs no memory traffic.
#include "braze/graph/builder.h"
#include "braze/rewrite/constants.h"
#include "braze/rewrite/pass_manager.h"
#include "braze/rewrite/storage.h"

namespace braze::rewrite {

using graph::Argument;
using graph::Builder;
using graph::Node;
using graph::OpId;
using graph::Value;

namespace {

constexpr size_t kLimit = 4096;  // distinct elements of an array that this pass computes

// Nodes that stand for a constant already, or cost nothing.
bool is_simple(const Node& node) {
  return node.op->id == OpId::full || node.op->id == OpId::scalar_tensor || node.op->has(graph::kView);
}

bool fold_uniform(graph::Graph& graph, Constants& constants, Storages& storages, Node* node) {
  Value* result = node->result();
  if (is_simple(*node) || result->type.wrapped_number || !graph::is_contiguous(result->type)) return false;
  const Constant* constant = constants.value(result);
  if (constant == nullptr || !constant->is_uniform()) return false;
  Builder b(graph, node);
  Value* full = b.full(result->type.sizes, constant->scalar(), result->type.dtype, result->type.device);
  if (!same_layout(full->type, result->type)) {
    graph.erase(full->producer);
    return false;
  }
  graph.replace_uses(result, full);
  storages.merged(result, full);
  return true;
}

// The tensor operands of arithmetic that take an immediate as well.
bool takes_immediate(const Node& node, size_t i) {
  switch (node.op->id) {
    case OpId::add_Tensor:
    case OpId::sub_Tensor:
    case OpId::mul_Tensor:
    case OpId::div_Tensor:
      return i == 1;
    default:
      return false;
  }
}

// x * full([], 2.0) is x * 2.0 if the result has the same type and the number is the same in it.
bool fold_immediates(graph::Graph& graph, Constants& constants, Storages& storages, Node* node) {
  for (size_t i = 0; i < 2 && i < node->arguments.size(); ++i) {
    if (!takes_immediate(*node, i) || !node->arguments[i].is<Value*>() || !node->arguments[0].is<Value*>()) continue;
    const Value* operand = node->arguments[i].as<Value*>();
    DType dtype = node->result()->type.dtype;
    if (operand->type.dim() != 0 || operand->type.dtype != dtype ||
        (dtype != DType::F32 && dtype != DType::F64 && dtype != DType::I64))
      continue;
    const Constant* constant = constants.value(operand);
    if (constant == nullptr) continue;
    std::vector<Argument> arguments = node->arguments;
    arguments[i] = constant->scalar();
    Node* made = graph.add_typed(node->op, std::move(arguments), node);
    if (!same_layout(made->result()->type, node->result()->type)) {
      graph.erase(made);
      continue;
    }
    made->origin = node->origin;
    made->tags = node->tags;
    graph.replace_uses(node->result(), made->result());
    storages.merged(node->result(), made->result());
    return true;
  }
  return false;
}

// where(true, a, b) is a, in the result's sizes and layout; likewise a mask that masks nothing.
bool fold_choice(graph::Graph& graph, Constants& constants, Storages& storages, Node* node) {
  bool fills = node->op->id == OpId::masked_fill_Scalar || node->op->id == OpId::masked_fill_Tensor;
  bool chooses = node->op->id == OpId::where_self || node->op->id == OpId::where_ScalarOther ||
                 node->op->id == OpId::where_ScalarSelf;
  if (!fills && !chooses) return false;
  const Argument& condition = node->arguments[fills ? 1 : 0];
  if (!condition.is<Value*>()) return false;
  const Constant* constant = constants.value(condition.as<Value*>());
  if (constant == nullptr || constant->dtype != DType::Bool || !constant->is_uniform()) return false;
  bool holds = constant->first().integer != 0;
  if (fills && holds) return false;
  const Argument& chosen = node->arguments[fills ? 0 : holds ? 1 : 2];
  if (!chosen.is<Value*>() || chosen.as<Value*>()->type.dtype != node->result()->type.dtype) return false;
  Builder b(graph, node);
  Value* whole = b.with_layout(b.expand(chosen.as<Value*>(), node->result()->type.sizes), node->result()->type);
  bool replaced = whole != nullptr && same_layout(whole->type, node->result()->type) &&
                  forward(graph, storages, node->result(), whole);
  for (auto made = b.made().rbegin(); made != b.made().rend(); ++made)
    if (!graph.has_uses((*made)->result())) graph.erase(*made);
  return replaced;
}

// full_bool & x and the like, where the constant decides nothing.
bool fold_logic(graph::Graph& graph, Constants& constants, Storages& storages, Node* node) {
  bool is_and = node->op->id == OpId::bitwise_and_Tensor || node->op->id == OpId::logical_and;
  bool is_or = node->op->id == OpId::bitwise_or_Tensor || node->op->id == OpId::logical_or;
  if (!is_and && !is_or) return false;
  for (size_t i = 0; i < 2; ++i) {
    if (!node->arguments[i].is<Value*>() || !node->arguments[1 - i].is<Value*>()) continue;
    Value* other = node->arguments[1 - i].as<Value*>();
    const Constant* constant = constants.value(node->arguments[i].as<Value*>());
    if (constant == nullptr || constant->dtype != DType::Bool || !constant->is_uniform()) continue;
    if ((constant->first().integer != 0) != is_and) continue;
    if (same_layout(other->type, node->result()->type)) return forward(graph, storages, node->result(), other);
  }
  return false;
}

}  // namespace

bool constant_folding(graph::Graph& graph) {
  Constants constants(kLimit);
  Storages storages(graph);
  bool changed = false;
  for (auto it = graph.nodes.begin(); it != graph.nodes.end();) {
    Node* node = *it++;
    if (node->results.size() != 1 || !node->result()->type.defined || !node->result()->type.is_strided) continue;
    bool folded = fold_uniform(graph, constants, storages, node) || fold_immediates(graph, constants, storages, node) ||
                  fold_choice(graph, constants, storages, node) || fold_logic(graph, constants, storages, node);
    changed |= folded;
    if (folded && !graph.has_uses(node->result())) graph.erase(node);
  }
  return changed;
}

}  // namespace braze::rewrite
