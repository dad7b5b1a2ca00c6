#include "braze/decompose/decompose.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "braze/graph/foreach.h"
#include "braze/support/check.h"
#include "braze/support/log.h"

namespace braze::decompose {

using graph::Builder;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

constexpr auto kRules = std::to_array<Row>({
#define DECOMPOSE(op, rule, table) {op, &rule, Table::table},
#include "braze/decompose/decompositions.def"
#undef DECOMPOSE
});

// The op on each tensor of the lists.
Replacement foreach(Builder& b, const Node& node) {
  const std::optional<size_t> count = graph::each_count(node.arguments);
  if (!count) return {};
  const graph::OpId each = graph::each_op(node.op)->id;
  Replacement out;
  for (size_t i = 0; i < *count; ++i) out.push_back(b(each, graph::each_arguments(node.op, node.arguments, i)));
  return out;
}

const Row* find_rule(const graph::Op& op) {
  static constexpr Row kForeach{"torch._foreach_*", &foreach, Table::Core};
  if (graph::each_op(&op) != nullptr) return &kForeach;
  static const std::unordered_map<std::string_view, const Row*> by_name = [] {
    std::unordered_map<std::string_view, const Row*> map;
    for (const Row& row : kRules) map.emplace(row.op, &row);
    return map;
  }();
  auto it = by_name.find(op.name);
  return it == by_name.end() ? nullptr : it->second;
}

void undo(Graph& graph, const std::vector<Node*>& made) {
  for (auto it = made.rbegin(); it != made.rend(); ++it) graph.erase(*it);
}

// Gives each replacement the exact type of the result that it stands for; "" or what is wrong.
std::string fit(Builder& b, const Node& node, Replacement& values) {
  if (values.size() != node.results.size()) return "wrong number of results";
  for (size_t i = 0; i < values.size(); ++i) {
    const Value* result = node.result(i);
    if (values[i] == nullptr) {
      if (b.graph().has_uses(result)) return "result " + std::to_string(i) + " is used but was not made";
      continue;
    }
    if (!result->type.defined) return "result " + std::to_string(i) + " is undefined";
    if (values[i]->type.dtype != result->type.dtype)
      return "result " + std::to_string(i) + " has dtype " + std::string(text_of(values[i]->type.dtype));
    if (!graph::known_equal(*b.graph().env, values[i]->type.sizes, result->type.sizes))
      return "result " + std::to_string(i) + " has other sizes";
    values[i] = b.with_layout(values[i], result->type);
    if (values[i] == nullptr) return "result " + std::to_string(i) + " has a layout that cannot be made";
  }
  return "";
}

}  // namespace

std::span<const Row> all_rules() { return kRules; }

Report decompose(Graph& graph, const Options& options) {
  Report report;
  for (auto it = graph.nodes.begin(); it != graph.nodes.end();) {
    Node* node = *it;
    const Row* row = find_rule(*node->op);
    bool skip = row == nullptr || (row->table == Table::Target && !options.target) ||
                std::find(options.keep.begin(), options.keep.end(), node->op->name) != options.keep.end();
    if (skip) {
      ++it;
      continue;
    }
    Builder b(graph, node);
    Replacement values;
    std::string problem;
    try {
      values = row->rule(b, *node);
      if (!values.empty()) problem = fit(b, *node, values);
    } catch (const InternalError& error) {
      problem = error.what();
    }
    if (values.empty() || !problem.empty()) {
      undo(graph, b.made());
      if (!problem.empty()) {
        report.failed.push_back(node->op->name + ": " + problem);
        if (log_enabled(Topic::kPostGrad)) log(Topic::kPostGrad, "decomposition failed: " + report.failed.back());
      }
      ++it;
      continue;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == nullptr) continue;
      if (node->result(i)->type.requires_grad) values[i]->type.requires_grad = true;
      graph.replace_uses(node->result(i), values[i]);
    }
    // New nodes may have rules themselves: go on with the first of them.
    auto next = b.made().empty() ? std::next(it) : b.made().front()->place;
    graph.erase(node);
    it = next;
    ++report.decomposed;
  }
  return report;
}

}  // namespace braze::decompose
