// Runs a tensor graph node by node through ATen: the back ends "eager" and "aot_eager", the fall-back where a kernel
// can't be compiled, and the reference in tests.
#pragma once

#include <memory>

#include "braze/graph/graph.h"
#include "braze/runtime/graph_program.h"
#include "braze/runtime/inputs.h"

namespace braze::runtime {

std::shared_ptr<GraphProgram> make_graph_executor(std::shared_ptr<const graph::Graph> graph, const GraphContext& context);

}  // namespace braze::runtime
