// Text form of the tensor IR. print(parse(print(g))) == print(g). Grammar: docs/tensor_ir.md.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "braze/graph/graph.h"

namespace braze::graph {

struct PrintOptions {
  bool origins = false;     // append "# file.py:12" to each node that has one
};

std::string print(const Graph& graph, const PrintOptions& options = {});
std::string print(const TensorType& type);
std::string print(const Argument& argument);      // as it stands in a node's argument list
// Throws ParseError with line, column and what was expected.
std::unique_ptr<Graph> parse(std::string_view text);

class ParseError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Empty if the graph is well formed, else one problem per line: uses before definitions, user lists, argument kinds
// against the schema, result types against the native rule, mutation and alias indices.
std::string verify(const Graph& graph);

}  // namespace braze::graph
