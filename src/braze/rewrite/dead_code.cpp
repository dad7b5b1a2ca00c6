#include "braze/rewrite/pass_manager.h"

namespace braze::rewrite {

using graph::Node;

namespace {

bool is_dead(const graph::Graph& graph, const Node& node) {
  // A node without results is there for its effect: an assertion.
  if (node.results.empty() || node.op->has(graph::kSideEffect) || node.op->has(graph::kRandom)) return false;
  for (const graph::Value* result : node.results)
    if (graph.has_uses(result)) return false;
  return true;
}

}  // namespace

bool dead_code(graph::Graph& graph) {
  bool changed = false;
  for (auto it = graph.nodes.end(); it != graph.nodes.begin();) {
    Node* node = *--it;
    if (!is_dead(graph, *node)) continue;
    ++it;
    graph.erase(node);
    changed = true;
  }
  return changed;
}

}  // namespace braze::rewrite
