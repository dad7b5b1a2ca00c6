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
  if (!size.is_constant()) return {};
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
  return {
      b(OpId::elu, {x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, graph::int_argument(1)})};
}

}  // namespace braze::decompose
