// Operators that fail for values of their operands: an index out of range, an integer divided by zero. If nobody uses
// their results they are dropped, and a check of these values takes their place.
#pragma once

#include "braze/graph/graph.h"

namespace braze::trace {

// At the end of a trace, outputs and mutations being known. Adds assertions; what is unused stays for the passes to drop.
void check_unused_operators(graph::Graph& graph);

}  // namespace braze::trace
