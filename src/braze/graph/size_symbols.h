// The symbolic sizes that a graph needs to know.
#pragma once

#include <vector>

#include "braze/graph/graph.h"

namespace braze::graph {

// Every symbol in the types and arguments of a graph, in the order in which it first comes.
std::vector<Expr> size_symbols(const Graph& graph);

}  // namespace braze::graph
