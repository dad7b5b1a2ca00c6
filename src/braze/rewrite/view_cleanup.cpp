// Views of views: a chain that ends where it began is its begin, and neighbours of one kind become one.
#include <numeric>

#include "braze/graph/builder.h"
#include "braze/graph/type_rules.h"
#include "braze/rewrite/pass_manager.h"
#include "braze/rewrite/storage.h"

namespace braze::rewrite {

using graph::Argument;
using graph::Builder;
using graph::Node;
using graph::OpId;
using graph::Value;

namespace {

bool is_address_view(const Node& node) {
  return node.op->has(graph::kView) && node.results.size() == 1 && node.op->id != OpId::view_dtype &&
         node.op->id != OpId::view_as_real && node.op->id != OpId::view_as_complex && node.op->id != OpId::Unknown &&
         node.arguments[0].is<Value*>() && node.result()->type.is_strided;
}

// The dimensions of the operand in the order of the result's, if the node only permutes them.
std::vector<int64_t> permutation(const Node& node) {
  const Value* x = node.arguments[0].as<Value*>();
  int64_t rank = x->type.dim();
  std::vector<int64_t> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  if (node.op->id == OpId::t && rank == 2) return {1, 0};
  if (node.op->id == OpId::transpose_int && rank > 0) {
    auto a = graph::integer(node, "dim0"), b = graph::integer(node, "dim1");
    if (!a || !b) return {};
    std::swap(order[static_cast<size_t>(graph::wrap_dim(*a, rank))],
              order[static_cast<size_t>(graph::wrap_dim(*b, rank))]);
    return order;
  }
  if (node.op->id == OpId::permute) {
    auto dims = graph::integers(node, "dims");
    if (!dims) return {};
    for (int64_t& dim : *dims) dim = graph::wrap_dim(dim, rank);
    return *dims;
  }
  return {};
}

bool is_reshape(const Node& node) {
  return node.op->id == OpId::view || node.op->id == OpId::_unsafe_view || node.op->id == OpId::reshape;
}

// A node of this op and with these arguments, if it has exactly the type of `node`'s result; no guard is added.
Value* equivalent(graph::Graph& graph, Node* node, OpId id, std::vector<Argument> arguments) {
  for (const Value* value : {node->arguments[0].as<Value*>(), static_cast<Value*>(node->result())})
    for (sym::Expr size : value->type.sizes)
      if (!size.is_constant()) return nullptr;
  const graph::Op* op = graph::op(id);
  while (arguments.size() < op->arguments.size())
    arguments.push_back(*graph::default_of(op->arguments[arguments.size()]));
  Result<std::vector<graph::TensorType>> types = graph::infer_types(op, arguments, {graph.env.get(), DType::F32});
  const graph::TensorType& wanted = node->result()->type;
  if (!types.ok() || !same_layout((*types)[0], wanted) || !((*types)[0].offset == wanted.offset)) return nullptr;
  Builder b(graph, node);
  return b(id, std::move(arguments));
}

Value* join(graph::Graph& graph, Node* node, Node* below) {
  Value* base = below->arguments[0].as<Value*>();
  if (is_reshape(*node) && is_reshape(*below))
    return equivalent(graph, node, OpId::view, {base, graph::shape_argument(node->result()->type.sizes)});
  if (node->op->id == OpId::expand && below->op->id == OpId::expand)
    return equivalent(graph, node, OpId::expand, {base, graph::shape_argument(node->result()->type.sizes)});
  std::vector<int64_t> outer = permutation(*node), inner = permutation(*below);
  if (outer.empty() || inner.empty()) return nullptr;
  for (int64_t& dim : outer) dim = inner[static_cast<size_t>(dim)];
  return equivalent(graph, node, OpId::permute, {base, graph::ints_argument(outer)});
}

// The first of the values that this chain of views looks at that has exactly the result's layout.
Value* ancestor_with_layout(const Node& node) {
  const graph::TensorType& wanted = node.result()->type;
  Value* found = nullptr;
  for (const Node* at = &node; at != nullptr && is_address_view(*at); at = at->arguments[0].as<Value*>()->producer) {
    Value* x = at->arguments[0].as<Value*>();
    if (x == nullptr || !x->type.is_strided) break;
    if (same_layout(x->type, wanted) && x->type.offset == wanted.offset) found = x;
    // as_strided may look beyond what stands above it.
    if (at->op->id == OpId::as_strided || at->op->id == OpId::unfold || at->op->id == OpId::diagonal) break;
  }
  return found;
}

}  // namespace

bool view_cleanup(graph::Graph& graph) {
  Storages storages(graph);
  bool changed = false;
  for (auto it = graph.nodes.begin(); it != graph.nodes.end();) {
    Node* node = *it++;
    if (!is_address_view(*node)) continue;
    Value* same = ancestor_with_layout(*node);
    if (same == nullptr) {
      Node* below = node->arguments[0].as<Value*>()->producer;
      if (below != nullptr && is_address_view(*below)) same = join(graph, node, below);
    }
    if (same == nullptr) continue;
    changed |= forward(graph, storages, node->result(), same);
    if (!graph.has_uses(node->result()))
      graph.erase(node);
    else if (same->producer != nullptr && !graph.has_uses(same))
      graph.erase(same->producer);
  }
  return changed;
}

}  // namespace braze::rewrite
