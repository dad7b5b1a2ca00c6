// Adaptive pooling whose windows are all equal.
#include "braze/decompose/decompose.h"
#include "braze/decompose/numerics.h"

namespace braze::decompose {

using graph::Builder;
using graph::Node;
using graph::OpId;
using graph::Value;

// One window over everything is a mean; windows of one size are an average pool.
Replacement adaptive_avg_pool2d(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  auto output = graph::integers(node, "output_size");
  int64_t rank = x->type.dim();
  if (!is_real_float(x) || !output || output->size() != 2 || rank < 3 || is_empty(x)) return {};
  if ((*output)[0] == 1 && (*output)[1] == 1) return {b.mean(x, {rank - 2, rank - 1}, true)};
  std::vector<int64_t> window;
  for (size_t i = 0; i < 2; ++i) {
    auto size = x->type.sizes[static_cast<size_t>(rank) - 2 + i].maybe_constant();
    if (!size || (*output)[i] <= 0 || *size % (*output)[i] != 0) return {};
    window.push_back(*size / (*output)[i]);
  }
  return {b(OpId::avg_pool2d, {x, graph::ints_argument(window), graph::ints_argument(window)})};
}

Replacement adaptive_avg_pool3d(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  auto output = graph::integers(node, "output_size");
  int64_t rank = x->type.dim();
  if (!is_real_float(x) || output != std::vector<int64_t>{1, 1, 1} || rank < 4 || is_empty(x)) return {};
  return {b.mean(x, {rank - 3, rank - 2, rank - 1}, true)};
}

}  // namespace braze::decompose
