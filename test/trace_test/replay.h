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

struct Replayed {
  std::vector<Mismatch> mismatches;
  std::vector<at::Tensor> outputs;       // undefined ones included
  std::vector<at::Tensor> mutated;       // the new contents of each mutated input
};

// callers: the caller's tensor for each of the session's inputs. tangents: one for each row of the joint plan.
Replayed replay(const graph::Graph& graph, const trace::GraphContext& context, const std::vector<at::Tensor>& callers,
                const std::vector<at::Tensor>& tangents = {});

}  // namespace braze::trace_test
