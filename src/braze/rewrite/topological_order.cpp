// Producers before users, else the order that stands: for graphs that were put together out of order.
#include <unordered_set>

#include "braze/rewrite/pass_manager.h"

namespace braze::rewrite {

using graph::Node;
using graph::Value;

bool topological_order(graph::Graph& graph) {
  std::unordered_set<const Node*> done;
  bool sorted = true;
  auto ready = [&](const Node& node) {
    bool all = node.order_after == nullptr || done.contains(node.order_after);
    for (const graph::Argument& argument : node.arguments)
      graph::for_each_value(argument, [&](const Value* value) {
        all = all && (value->producer == nullptr || done.contains(value->producer));
      });
    return all;
  };
  for (const Node* node : graph.nodes) {
    sorted = sorted && ready(*node);
    done.insert(node);
  }
  if (sorted) return false;

  // Depth first from each node in the standing order: what it needs comes right before it.
  std::list<Node*> order;
  done.clear();
  std::vector<Node*> stack;
  for (Node* start : graph.nodes) {
    stack.push_back(start);
    while (!stack.empty()) {
      Node* node = stack.back();
      if (done.contains(node)) {
        stack.pop_back();
        continue;
      }
      size_t before = stack.size();
      auto need = [&](Node* other) {
        if (other != nullptr && !done.contains(other)) stack.push_back(other);
      };
      need(node->order_after);
      for (const graph::Argument& argument : node->arguments)
        graph::for_each_value(argument, [&](Value* value) { need(value->producer); });
      if (stack.size() != before) continue;
      stack.pop_back();
      done.insert(node);
      order.push_back(node);
    }
  }
  graph.nodes = std::move(order);
  for (auto it = graph.nodes.begin(); it != graph.nodes.end(); ++it) (*it)->place = it;
  return true;
}

}  // namespace braze::rewrite
