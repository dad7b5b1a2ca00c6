// Calls that eager refuses for the values of their arguments, which types alone let through.
#pragma once

#include <vector>

#include "braze/graph/graph.h"

namespace braze::trace {

// Aborts the trace, so that eager raises its error.
void refuse_invalid_values(const graph::Op& op, const std::vector<graph::Argument>& arguments,
                           const std::vector<graph::TensorType>& results);

}  // namespace braze::trace
