#include "braze/graph/size_symbols.h"

namespace braze::graph {
namespace {

void collect(const TensorType& type, std::vector<Expr>& out) {
  for (const Expr e : type.sizes) sym::collect_symbols(e, out);
  for (const Expr e : type.strides) sym::collect_symbols(e, out);
  sym::collect_symbols(type.offset, out);
}

void collect(const Argument& argument, std::vector<Expr>& out) {
  if (const auto* e = std::get_if<Expr>(&argument.v)) sym::collect_symbols(*e, out);
  if (const auto* list = std::get_if<ArgumentList>(&argument.v))
    for (const Argument& item : *list) collect(item, out);
}

}  // namespace

std::vector<Expr> size_symbols(const Graph& graph) {
  std::vector<Expr> out;   // collect() adds each once
  for (const Value* input : graph.inputs) collect(input->type, out);
  for (const Node* node : graph.nodes) {
    for (const Argument& argument : node->arguments) collect(argument, out);
    for (const Value* result : node->results) collect(result->type, out);
  }
  return out;
}

}  // namespace braze::graph
