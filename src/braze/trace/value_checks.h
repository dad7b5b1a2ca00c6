// Calls that eager refuses for the values of their arguments, which types alone let through.
#pragma once

#include <vector>

#include "braze/graph/graph.h"

namespace braze::trace {

// Aborts the trace, so that eager raises its error. What is true of the example's sizes alone is guarded.
void refuse_invalid_values(const graph::Op& op, const std::vector<graph::Argument>& arguments,
                           const std::vector<graph::TensorType>& results, sym::ShapeEnv& env);

}  // namespace braze::trace
