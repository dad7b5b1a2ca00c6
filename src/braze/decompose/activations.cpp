// Activations that other elementwise ops express.
#include "braze/decompose/decompose.h"
#include "braze/decompose/numerics.h"

namespace braze::decompose {

using graph::Builder;
using graph::Expr;
using graph::Node;
using graph::OpId;
using graph::Value;

// a * sigmoid(b) of the two halves, rounded once.
Replacement glu(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  auto dim = graph::integer(node, "dim");
  if (!is_real_float(x) || !dim || x->type.dim() == 0) return {};
  int64_t axis = graph::wrap_dim(*dim, x->type.dim());
  Expr size = x->type.sizes[static_cast<size_t>(axis)];
  Expr half = sym::floor_div(size, 2);
  Value* first = widen(b, b.slice(x, axis, 0, half));
  Value* second = widen(b, b.slice(x, axis, half, size));
  return {b.cast(b.mul(first, b(OpId::sigmoid, {second})), node.result()->type.dtype)};
}

Replacement celu(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  auto alpha = graph::number(node, "alpha");
  if (!is_real_float(x) || !alpha || *alpha == 0.0) return {};
  return {b(OpId::elu, {x, *alpha, 1.0, 1.0 / *alpha})};
}

Replacement selu(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  if (!is_real_float(x)) return {};
  return {b(OpId::elu, {x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946,
                        graph::int_argument(1)})};
}

// min(x, 0) - log1p(exp(-|x|)); the second result is a buffer for the backward pass: exp(-|x|).
Replacement log_sigmoid(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  if (!is_real_float(x)) return {};
  Value* wide = widen(b, x);
  Value* exp = b(OpId::exp, {b(OpId::neg, {b(OpId::abs, {wide})})});
  Value* result = b.sub(b(OpId::clamp_max, {wide, graph::int_argument(0)}), b(OpId::log1p, {exp}));
  Value* buffer = b.graph().has_uses(node.result(1)) ? b.cast(exp, node.result(1)->type.dtype) : nullptr;
  if (buffer != nullptr && buffer->type.sizes != node.result(1)->type.sizes) return {};
  return {b.cast(result, node.result(0)->type.dtype), buffer};
}

}  // namespace braze::decompose
