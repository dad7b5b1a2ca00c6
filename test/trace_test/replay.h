// Runs a traced graph node by node on real tensors and compares each result with the type that was traced.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "braze/graph/graph.h"
#include "braze/trace/compiler.h"

namespace braze::trace_test {

struct Mismatch {
  std::string op;
  std::string what;      // dtype, sizes, strides, offset, defined, device
  std::string detail;
};

// callers: the caller's tensor for each of the session's inputs.
std::vector<Mismatch> replay(const graph::Graph& graph, const trace::GraphContext& context,
                             const std::vector<at::Tensor>& callers);

}  // namespace braze::trace_test
