// Losses. An elementwise loss is reduced as ATen does: none 0, mean 1, sum 2.
#include "braze/decompose/decompose.h"
#include "braze/decompose/numerics.h"

namespace braze::decompose {

using graph::Builder;
using graph::Node;
using graph::OpId;
using graph::Value;

namespace {

std::vector<int64_t> every_dim(const Value* x) { return graph::wrap_dims({}, x->type.dim()); }

// In the dtype of the loss: ATen reduces the rounded losses.
Replacement reduce(Builder& b, const Node& node, Value* loss) {
  loss = b.cast(loss, node.result()->type.dtype);
  switch (graph::integer(node, "reduction").value_or(-1)) {
    case 0:
      return {loss};
    case 1:
      return {b.mean(loss, every_dim(loss), false)};
    case 2:
      return {b.sum(loss, every_dim(loss), false)};
    default:
      return {};
  }
}

bool applies(const Value* x, const Value* y) {
  return is_real_float(x) && x->type.dtype == y->type.dtype && !is_empty(x) && !is_empty(y);
}

// The class dimension stands first in 1-D and second in batches. weight is per class.
Replacement negative_log_likelihood(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  Value* target = graph::tensor(node, "target");
  Value* weight = graph::tensor(node, "weight");
  auto reduction = graph::integer(node, "reduction");
  auto ignore = graph::integer(node, "ignore_index");
  if (!is_real_float(x) || !reduction || !ignore || is_empty(x) || !is_integral(target->type.dtype, false)) return {};
  int64_t class_dim = x->type.dim() == 1 ? 0 : 1;
  if (target->type.dtype != DType::I64) target = b.cast(target, DType::I64);
  Value* ignored = b(OpId::eq_Scalar, {target, graph::int_argument(*ignore)});
  Value* safe = b(OpId::masked_fill_Scalar, {target, ignored, graph::int_argument(0)});
  Value* indices = b.unsqueeze(safe, class_dim);
  Value* wide = widen(b, x);
  Value* picked = b.squeeze(b(OpId::gather, {wide, graph::int_argument(class_dim), indices}), {class_dim});
  Value* loss = b(OpId::neg, {picked});
  Value* factors = nullptr;
  if (weight != nullptr) {
    factors = b(OpId::index_Tensor, {widen(b, weight), graph::ArgumentList{safe}});
    factors = b(OpId::masked_fill_Scalar, {factors, ignored, graph::int_argument(0)});
    loss = b.mul(loss, factors);
  }
  loss = b(OpId::masked_fill_Scalar, {loss, ignored, graph::int_argument(0)});
  DType dtype = node.result(0)->type.dtype;
  Value* total = nullptr;
  if (*reduction == 0 && x->type.dim() > 1) {
    if (b.graph().has_uses(node.result(1)))
      total = b.full(node.result(1)->type.sizes, 0.0, node.result(1)->type.dtype, x->type.device);
    return {b.cast(loss, dtype), total};
  }
  if (factors == nullptr) factors = b.cast(b(OpId::logical_not, {ignored}), wide->type.dtype);
  total = b.sum(factors, every_dim(factors), false);
  if (*reduction == 0) return {b.cast(loss, dtype), b.cast(total, node.result(1)->type.dtype)};
  Value* sum = b.sum(loss, every_dim(loss), false);
  if (*reduction == 1) sum = b.div(sum, total);
  return {b.cast(sum, dtype), b.cast(total, node.result(1)->type.dtype)};
}

// What the gradient is multiplied with: the mean shares it out. nullopt: the number of elements is not known, or the
// kernel rounds in between.
std::optional<double> share(const Node& node) {
  const Value *x = graph::tensor(node, "self"), *y = graph::tensor(node, "target");
  const auto reduction = graph::integer(node, "reduction");
  const auto elements = graph::numel(x->type.sizes).maybe_constant();
  if (!reduction || !elements || *elements == 0 || x->type.dtype != y->type.dtype ||
      (x->type.dtype != DType::F32 && x->type.dtype != DType::F64))
    return std::nullopt;
  return *reduction == 1 ? 1.0 / static_cast<double>(*elements) : 1.0;
}

}  // namespace

Replacement nll_loss(Builder& b, const Node& node) { return negative_log_likelihood(b, node); }

Replacement mse_loss(Builder& b, const Node& node) {
  Value *x = graph::tensor(node, "self"), *y = graph::tensor(node, "target");
  if (!applies(x, y)) return {};
  Value* difference = b.sub(x, y);
  return reduce(b, node, b.mul(difference, difference));
}

// 0.5 d^2 / beta below beta, else d - 0.5 beta, with d = |x - y|.
Replacement smooth_l1_loss(Builder& b, const Node& node) {
  Value *x = graph::tensor(node, "self"), *y = graph::tensor(node, "target");
  auto beta = graph::number(node, "beta");
  // The f16 kernel rounds in between, as no graph of ops does.
  if (!applies(x, y) || !beta || x->type.dtype == DType::F16) return {};
  Value* distance = b(OpId::abs, {b.sub(widen(b, x), widen(b, y))});
  if (*beta == 0.0) return reduce(b, node, distance);
  Value* square = b.div(b.mul(b.mul(distance, 0.5), distance), *beta);
  Value* below = b(OpId::lt_Scalar, {distance, *beta});
  return reduce(b, node, b(OpId::where_self, {below, square, b.sub(distance, 0.5 * *beta)}));
}

// 0.5 d^2 up to delta, else delta (d - 0.5 delta), with d = |x - y|.
Replacement huber_loss(Builder& b, const Node& node) {
  Value *x = graph::tensor(node, "self"), *y = graph::tensor(node, "target");
  auto delta = graph::number(node, "delta");
  // The bf16 kernel rounds in between, as no graph of ops does.
  if (!applies(x, y) || !delta || x->type.dtype == DType::BF16) return {};
  Value* distance = b(OpId::abs, {b.sub(widen(b, x), widen(b, y))});
  Value* square = b.mul(b.mul(distance, 0.5), distance);
  Value* line = b.mul(b.sub(distance, 0.5 * *delta), *delta);
  Value* below = b(OpId::le_Scalar, {distance, *delta});
  return reduce(b, node, b(OpId::where_self, {below, square, line}));
}

// (1 - y) x - log_sigmoid(x), the log-sigmoid times (pos_weight - 1) y + 1 if there is one; all of it tensor ops in
// ATen.
Replacement binary_cross_entropy_with_logits(Builder& b, const Node& node) {
  Value *x = graph::tensor(node, "self"), *y = graph::tensor(node, "target");
  Value *weight = graph::tensor(node, "weight"), *pos_weight = graph::tensor(node, "pos_weight");
  if (!applies(x, y)) return {};
  Value* log_sigmoid = b(OpId::log_sigmoid_forward, {x});
  if (pos_weight != nullptr) {
    Value* factor = b.add(b.mul(b.sub(pos_weight, graph::int_argument(1)), y), graph::int_argument(1));
    log_sigmoid = b.mul(log_sigmoid, factor);
  }
  Value* rest = b.add(b(OpId::neg, {y}), graph::int_argument(1));
  Value* loss = b.sub(b.mul(rest, x), log_sigmoid);
  if (weight != nullptr) loss = b.mul(loss, weight);
  return reduce(b, node, loss);
}

// d / beta below beta, else the sign of d.
Replacement smooth_l1_loss_backward(Builder& b, const Node& node) {
  const auto factor = share(node), beta = graph::number(node, "beta");
  if (!factor || !beta || *beta == 0.0) return {};
  Value *g = graph::tensor(node, "grad_output"), *x = graph::tensor(node, "self"), *y = graph::tensor(node, "target");
  Value *d = b.sub(x, y), *whole = b.mul(g, *factor);
  Value* below = b.div(b.mul(b.mul(d, *factor), g), *beta);
  Value* rest = b(OpId::where_self, {b(OpId::ge_Scalar, {d, *beta}), whole, below});
  return {b(OpId::where_self, {b(OpId::le_Scalar, {d, -*beta}), b(OpId::neg, {whole}), rest})};
}

// d below delta, else delta times the sign of d.
Replacement huber_loss_backward(Builder& b, const Node& node) {
  const auto factor = share(node), delta = graph::number(node, "delta");
  if (!factor || !delta) return {};
  Value *g = graph::tensor(node, "grad_output"), *x = graph::tensor(node, "self"), *y = graph::tensor(node, "target");
  Value *d = b.sub(x, y), *whole = b.mul(b.mul(g, *factor), *delta);
  Value* rest = b(OpId::where_self, {b(OpId::ge_Scalar, {d, *delta}), whole, b.mul(b.mul(d, *factor), g)});
  return {b(OpId::where_self, {b(OpId::le_Scalar, {d, -*delta}), b(OpId::neg, {whole}), rest})};
}

// grad (x - y) / ((1 - x) x), whose denominator is at least 1e-12 as a float; then the weight, then the mean.
Replacement binary_cross_entropy_backward(Builder& b, const Node& node) {
  const auto factor = share(node);
  if (!factor) return {};
  Value *g = graph::tensor(node, "grad_output"), *x = graph::tensor(node, "self"), *y = graph::tensor(node, "target");
  constexpr double kLeast = 1e-12F;
  Value* spread = b.mul(b(OpId::rsub_Scalar, {x, graph::int_argument(1)}), x);
  Value* out = b.div(b.mul(g, b.sub(x, y)), b(OpId::clamp_min, {spread, kLeast}));
  if (Value* weight = graph::tensor(node, "weight"); weight != nullptr) out = b.mul(out, weight);
  return {*factor == 1.0 ? out : b.div(out, static_cast<double>(*graph::numel(x->type.sizes).maybe_constant()))};
}

}  // namespace braze::decompose
