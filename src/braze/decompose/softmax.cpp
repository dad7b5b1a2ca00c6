// Softmax, log-softmax and log-sum-exp.
#include <limits>

#include "braze/decompose/decompose.h"
#include "braze/decompose/numerics.h"

namespace braze::decompose {

using graph::Builder;
using graph::Node;
using graph::OpId;
using graph::Value;

namespace {

struct Shifted {
  Value* shifted;  // x - max, in the computing type
  Value* exp;
  Value* sum;      // from 1 to the number of elements: its reciprocal serves a whole row, where a division costs one each
};

Shifted shift_and_sum(Builder& b, Value* x, int64_t dim) {
  Value* wide = widen(b, x);
  Value* shifted = b.sub(wide, b.amax(wide, {dim}, true));
  Value* exp = b(OpId::exp, {shifted});
  return {shifted, exp, b.sum(exp, {dim}, true)};
}

Value* quotient(Builder& b, const Shifted& s) { return b.mul(s.exp, b(OpId::reciprocal, {s.sum})); }

bool applies(const Value* x) { return is_real_float(x) && !is_empty(x); }

}  // namespace

Replacement softmax(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  auto dim = graph::integer(node, "dim");
  if (!applies(x) || !dim) return {};
  Shifted s = shift_and_sum(b, x, graph::wrap_dim(*dim, x->type.dim()));
  return {b.cast(quotient(b, s), node.result()->type.dtype)};
}

Replacement log_softmax(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  auto dim = graph::integer(node, "dim");
  if (!applies(x) || !dim) return {};
  Shifted s = shift_and_sum(b, x, graph::wrap_dim(*dim, x->type.dim()));
  return {b.cast(b.sub(s.shifted, b(OpId::log, {s.sum})), node.result()->type.dtype)};
}

// Rows that are -inf throughout give 0 where softmax gives NaN.
Replacement safe_softmax(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  auto dim = graph::integer(node, "dim");
  if (!applies(x) || !dim) return {};
  DType dtype = graph::dtype(node, "dtype").value_or(x->type.dtype);
  Value* cast = b.cast(x, dtype);
  int64_t axis = graph::wrap_dim(*dim, x->type.dim());
  Shifted s = shift_and_sum(b, cast, axis);
  Value* result = b.cast(quotient(b, s), dtype);
  Value* masked = b(OpId::eq_Scalar, {x, -std::numeric_limits<double>::infinity()});
  Value* masked_rows = b(OpId::all_dim, {masked, graph::int_argument(axis), true});
  return {b(OpId::masked_fill_Scalar, {result, masked_rows, 0.0})};
}

// ATen composes this one of tensor ops, each of which rounds. An infinite maximum is not subtracted.
Replacement logsumexp(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  auto list = graph::integers(node, "dim");
  if (!list || is_complex(x->type.dtype) || is_empty(x)) return {};
  auto dims = graph::wrap_dims(*list, x->type.dim());
  bool keepdim = graph::boolean(node, "keepdim");
  Value* cast = is_floating(x->type.dtype) ? x : b.cast(x, node.result()->type.dtype);
  Value* max = b.amax(cast, dims, true);
  Value* infinite = b(OpId::eq_Scalar, {b(OpId::abs, {max}), std::numeric_limits<double>::infinity()});
  Value* finite = b(OpId::masked_fill_Scalar, {max, infinite, graph::int_argument(0)});
  Value* sum = b.sum(b(OpId::exp, {b.sub(cast, finite)}), dims, keepdim);
  Value* shift = keepdim ? finite : b.squeeze(finite, dims);
  return {b.add(b(OpId::log, {sum}), shift)};
}

}  // namespace braze::decompose
