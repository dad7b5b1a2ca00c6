// Where eager's CPU kernels compute in a wider type than their operands have.
#pragma once

#include <cmath>
#include <vector>

#include "braze/graph/builder.h"

namespace braze::decompose {

// x in the type in which the kernel computes: f32 for 16-bit floats.
inline graph::Value* widen(graph::Builder& b, graph::Value* x) { return b.cast(x, compute_type(x->type.dtype)); }

inline bool is_real_float(const graph::Value* x) { return is_floating(x->type.dtype) && size_of(x->type.dtype) > 1; }

// The number of elements over some dimensions.
inline sym::Expr count(const graph::Value* x, const std::vector<int64_t>& dims) {
  sym::Expr n = 1;
  for (int64_t dim : dims) n = n * x->type.sizes[static_cast<size_t>(dim)];
  return n;
}

// Some dimension is known to have no element.
inline bool is_empty(const graph::Value* x) {
  for (sym::Expr size : x->type.sizes)
    if (size == sym::Expr(0)) return true;
  return false;
}

// A fresh tensor with x's values: no view of x.
inline graph::Value* copy_of(graph::Builder& b, graph::Value* x) {
  return b(graph::OpId::clone, {x, graph::MemoryFormat{1}});
}

// 1-D per-channel values as a tensor that broadcasts over dimension 1 of a tensor of this rank.
inline graph::Value* per_channel(graph::Builder& b, graph::Value* x, int64_t rank) {
  graph::Shape sizes(static_cast<size_t>(rank), 1);
  if (rank > 1) sizes[1] = x->type.sizes[0];
  return b.view(x, sizes);
}

}  // namespace braze::decompose
