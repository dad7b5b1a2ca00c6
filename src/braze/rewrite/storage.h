// Which values share memory, and which memory the caller sees. In the functional graph sharing does not change any
// value; it matters at the graph's ends: two outputs that eager keeps apart must not become one tensor, and an output
// that eager copies must not become a view of an input.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "braze/graph/graph.h"

namespace braze::rewrite {

// The value at the start of the chain of views that ends in `value`.
graph::Value* root(graph::Value* value);

class Storages {
 public:
  explicit Storages(const graph::Graph& graph);

  bool is_output(const graph::Value* value) const { return outputs_.contains(value); }
  // The value, or a view of it, is an output or the new contents of a mutated input.
  bool escapes(const graph::Value* value) const;
  // May `to` stand for `from` everywhere without two separate tensors of the caller becoming one, given that the
  // values are equal? Only the graph's outputs and mutations can forbid it.
  bool may_merge(graph::Value* from, graph::Value* to) const;
  // Call after Graph::replace_uses(from, to).
  void merged(graph::Value* from, graph::Value* to);

 private:
  std::unordered_set<const graph::Value*> outputs_;   // and mutation values
  std::unordered_set<const graph::Value*> escaping_;  // roots of outputs_
};

// Replaces uses of `from` by `to`, whose values are equal, and says whether any was replaced: all uses if that is safe
// for the caller's tensors (may_merge), else those by nodes through which `from` does not reach the caller. The types
// must have the same layout; offsets may differ, and views below are updated.
bool forward(graph::Graph& graph, Storages& storages, graph::Value* from, graph::Value* to);

// Equal but for offset and what only matters to autograd: one value may stand for the other in any node.
bool same_layout(const graph::TensorType& a, const graph::TensorType& b);

}  // namespace braze::rewrite
