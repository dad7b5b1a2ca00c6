// Builder: makes typed nodes in front of a given node, in few words. Decompositions and passes build graphs with it.
// New nodes take the origin and tags of that node. Arguments that a call leaves out get the schema's defaults.
// Operands of arithmetic may be tensors or numbers (immediates, weak in promotion as Python numbers are).
#pragma once

#include <vector>

#include "braze/graph/arguments.h"
#include "braze/graph/graph.h"

namespace braze::graph {

// Equal by structure or by the guards that stand; asks for no new guard.
bool known_equal(const sym::ShapeEnv& env, const Shape& a, const Shape& b);

class Builder {
 public:
  Builder(Graph& graph, Node* before) : graph_(graph), before_(before) {}

  Graph& graph() const { return graph_; }
  // Every node that was made so far, in order.
  const std::vector<Node*>& made() const { return made_; }

  Node* node(OpId op, std::vector<Argument> leading);
  Value* operator()(OpId op, std::vector<Argument> leading) { return node(op, std::move(leading))->result(); }

  Value* add(Argument a, Argument b);
  Value* sub(Argument a, Argument b);
  Value* mul(Argument a, Argument b);
  Value* div(Argument a, Argument b);

  Value* cast(Value* x, DType dtype);         // x itself if it has that dtype
  Value* view(Value* x, const Shape& sizes);  // x itself if it has these sizes
  Value* permute(Value* x, const std::vector<int64_t>& dims);
  Value* expand(Value* x, const Shape& sizes);
  Value* unsqueeze(Value* x, int64_t dim);
  Value* squeeze(Value* x, const std::vector<int64_t>& dims);
  Value* slice(Value* x, int64_t dim, Expr start, Expr end, int64_t step = 1);
  Value* select(Value* x, int64_t dim, Expr index);
  Value* full(const Shape& sizes, Argument value, DType dtype, Device device);

  Value* sum(Value* x, const std::vector<int64_t>& dims, bool keepdim);
  Value* mean(Value* x, const std::vector<int64_t>& dims, bool keepdim);
  Value* amax(Value* x, const std::vector<int64_t>& dims, bool keepdim);

  // A value with x's contents and exactly the layout of `type`: x itself where it has that layout, else a copy.
  // nullptr if the layout overlaps or has gaps, which no functional op produces.
  Value* with_layout(Value* x, const TensorType& type);

 private:
  Graph& graph_;
  Node* before_;
  std::vector<Node*> made_;
};

}  // namespace braze::graph
