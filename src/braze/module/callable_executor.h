// A graph that a Python callable runs: a backend of the user's.
#pragma once

#include <memory>

#include "braze/graph/graph.h"
#include "braze/support/executable.h"
#include "braze/trace/compiler.h"

namespace braze::module {

// callable(*inputs) gives the graph's outputs, bases of aliases and new values of mutated inputs (in the order of
// graph.mutations) after them. Takes a reference. Sizes must be constant.
std::shared_ptr<Executable> make_callable_executor(_object* callable, const graph::Graph& graph,
                                                   const trace::GraphContext& context);

}  // namespace braze::module
