#include "braze/trace/unused_checks.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "braze/graph/arguments.h"
#include "braze/graph/builder.h"

namespace braze::trace {
namespace {

using graph::Expr;
using graph::Node;
using graph::OpId;
using graph::Value;

enum class Needs : uint8_t {   // of the operand `values`
  Rows,         // 0 to the size of the first dimension of the operand
  Dimension,    // 0 to its size along `dim`
  Wrapped,      // -size to size along `dim`
  Elements,     // -count to count of all elements
  Each,         // a list with an index per dimension, -size to size
  Classes,      // 0 to the operand's last size but one, or `ignore_index`
  NonZero,      // if the result is an integer
};

struct Requirement {
  Needs needs;
  std::string_view operand, values;
};

const Requirement* requirement_of(OpId id) {
  static const std::unordered_map<OpId, Requirement> requirements = {
      {OpId::embedding, {Needs::Rows, "weight", "indices"}},
      {OpId::index_select, {Needs::Dimension, "self", "index"}},
      {OpId::index_add, {Needs::Dimension, "self", "index"}},
      {OpId::index_copy, {Needs::Dimension, "self", "index"}},
      {OpId::index_fill_int_Scalar, {Needs::Wrapped, "self", "index"}},
      {OpId::index_fill_int_Tensor, {Needs::Wrapped, "self", "index"}},
      {OpId::gather, {Needs::Dimension, "self", "index"}},
      {OpId::scatter_src, {Needs::Dimension, "self", "index"}},
      {OpId::scatter_value, {Needs::Dimension, "self", "index"}},
      {OpId::scatter_reduce, {Needs::Dimension, "self", "index"}},
      {OpId::scatter_value_reduce, {Needs::Dimension, "self", "index"}},
      {OpId::scatter_add, {Needs::Dimension, "self", "index"}},
      {OpId::scatter_reduce_two, {Needs::Dimension, "self", "index"}},
      {OpId::take, {Needs::Elements, "self", "index"}},
      {OpId::put, {Needs::Elements, "self", "index"}},
      {OpId::index_Tensor, {Needs::Each, "self", "indices"}},
      {OpId::index_put, {Needs::Each, "self", "indices"}},
      {OpId::nll_loss_forward, {Needs::Classes, "self", "target"}},
      {OpId::nll_loss2d_forward, {Needs::Classes, "self", "target"}},
      {OpId::floor_divide, {Needs::NonZero, "self", "other"}},
      {OpId::div_Tensor_mode, {Needs::NonZero, "self", "other"}},
      {OpId::remainder_Tensor, {Needs::NonZero, "self", "other"}},
      {OpId::remainder_Scalar_Tensor, {Needs::NonZero, "self", "other"}},
      {OpId::fmod_Tensor, {Needs::NonZero, "self", "other"}},
  };
  const auto found = requirements.find(id);
  return found == requirements.end() ? nullptr : &found->second;
}

// Nodes of which no output, mutation or effect depends.
std::unordered_set<const Node*> unused_nodes(const graph::Graph& graph) {
  std::unordered_set<const Value*> used(graph.outputs.begin(), graph.outputs.end());
  for (const graph::Mutation& mutation : graph.mutations) used.insert(mutation.value);
  std::unordered_set<const Node*> out;
  for (auto it = graph.nodes.rbegin(); it != graph.nodes.rend(); ++it) {
    const Node* node = *it;
    const bool runs = node->results.empty() || node->op->has(graph::kSideEffect) || node->op->has(graph::kRandom) ||
                      std::ranges::any_of(node->results, [&](const Value* v) { return used.contains(v); });
    if (!runs) {
      out.insert(node);
      continue;
    }
    for (const graph::Argument& argument : node->arguments)
      graph::for_each_value(argument, [&](const Value* v) { used.insert(v); });
  }
  return out;
}

class Checks {
 public:
  Checks(graph::Graph& graph, const Node& node) : build_(graph, nullptr), node_(node) {}

  void add(const Requirement& requirement) {
    if (requirement.needs == Needs::NonZero) return non_zero(node_.argument(requirement.values));
    const Value* operand = graph::tensor(node_, requirement.operand);
    if (operand == nullptr) return;
    const graph::Shape& sizes = operand->type.sizes;
    switch (requirement.needs) {
      case Needs::Rows: return in_range(graph::tensor(node_, requirement.values), Expr(0), sizes[0]);
      case Needs::Dimension: case Needs::Wrapped: {
        const auto dim = graph::integer(node_, "dim");
        if (!dim) return;
        const auto rank = static_cast<int64_t>(sizes.size());
        const Expr size = rank == 0 ? Expr(1) : sizes[static_cast<size_t>(graph::wrap_dim(*dim, rank))];
        return in_range(graph::tensor(node_, requirement.values), requirement.needs == Needs::Wrapped ? Expr(0) - size : Expr(0), size);
      }
      case Needs::Elements: {
        const Expr count = graph::numel(sizes);
        return in_range(graph::tensor(node_, requirement.values), Expr(0) - count, count);
      }
      case Needs::Each: return each(requirement.values, sizes);
      case Needs::Classes: return classes(graph::tensor(node_, requirement.values), sizes[sizes.size() == 1 ? 0 : 1]);
      case Needs::NonZero: return;
    }
  }

 private:
  void each(std::string_view name, const graph::Shape& sizes) {
    size_t dim = 0;
    for (const graph::Argument& argument : node_.argument(name).as<graph::ArgumentList>()) {
      Value* index = argument.is<Value*>() ? argument.as<Value*>() : nullptr;
      if (index != nullptr && !is_integral(index->type.dtype, false)) return;   // a mask's shape was checked by its rule
      if (index != nullptr && dim < sizes.size()) in_range(index, Expr(0) - sizes[dim], sizes[dim]);
      ++dim;
    }
  }

  Value* is_in_range(Value* index, Expr low, Expr high) {
    return build_(OpId::logical_and, {build_(OpId::ge_Scalar, {index, low}), build_(OpId::lt_Scalar, {index, high})});
  }
  void in_range(Value* index, Expr low, Expr high) {
    if (index != nullptr && is_integral(index->type.dtype, false)) demand(is_in_range(index, low, high), "an index is out of range");
  }
  void classes(Value* target, Expr count) {
    if (target == nullptr) return;
    Value* ignored = build_(OpId::eq_Scalar, {target, node_.argument("ignore_index")});
    demand(build_(OpId::logical_or, {ignored, is_in_range(target, Expr(0), count)}), "a target is out of bounds");
  }
  void non_zero(const graph::Argument& divisor) {
    if (!is_integral(node_.result()->type.dtype, true)) return;
    if (divisor.is<Value*>()) demand(build_(OpId::ne_Scalar, {divisor, Expr(0)}), "an integer is divided by zero");
  }

  void demand(Value* condition, const char* otherwise) {
    build_.graph().add_node(graph::intern_op("aten::_assert_async.msg(Tensor self, str assert_msg) -> ()"),
                            {build_(OpId::all, {condition}), std::string(otherwise)}, {});
  }

  graph::Builder build_;
  const Node& node_;
};

}  // namespace

void check_unused_operators(graph::Graph& graph) {
  std::vector<const Node*> candidates;
  for (const Node* node : graph.nodes)
    if ((node->tags & graph::kBackward) == 0 && requirement_of(node->op->id) != nullptr) candidates.push_back(node);
  if (candidates.empty()) return;
  const std::unordered_set<const Node*> unused = unused_nodes(graph);
  for (const Node* node : candidates)
    if (unused.contains(node)) Checks(graph, *node).add(*requirement_of(node->op->id));
}

}  // namespace braze::trace
