// Derivatives of the composites. Gradients that are not asked for (output_mask) stay undefined.
#include "braze/decompose/decompose.h"
#include "braze/decompose/numerics.h"

namespace braze::decompose {

using graph::Builder;
using graph::Expr;
using graph::Node;
using graph::OpId;
using graph::Shape;
using graph::Value;

namespace {

// The gradient in the dtype of result `i`; nullptr where nothing uses it or it is not asked for.
Value* gradient(Builder& b, const Node& node, size_t i, Value* value) {
  const Value* result = node.result(i);
  if (!result->type.defined || !b.graph().has_uses(result)) return nullptr;
  return b.view(b.cast(value, result->type.dtype), result->type.sizes);
}

bool wants(Builder& b, const Node& node, size_t i) {
  return node.result(i)->type.defined && b.graph().has_uses(node.result(i));
}

// Uses of gradients that are not asked for cannot be replaced.
bool undefined_are_unused(Builder& b, const Node& node) {
  for (const Value* result : node.results)
    if (!result->type.defined && b.graph().has_uses(result)) return false;
  return true;
}

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> dims;
  for (int64_t d = begin; d < end; ++d) dims.push_back(d);
  return dims;
}

// rstd (g - mean(g) - normalized mean(g normalized)): the gradient through (x - mean) rstd, where g is the gradient of
// the result and the means run over what mean and rstd are taken over.
Value* through_normalization(Builder& b, Value* g, Value* normalized, Value* rstd, const std::vector<int64_t>& dims) {
  Value* mean = b.mean(g, dims, true);
  Value* projection = b.mean(b.mul(g, normalized), dims, true);
  return b.mul(b.sub(b.sub(g, mean), b.mul(normalized, projection)), rstd);
}

}  // namespace

Replacement softmax_backward(Builder& b, const Node& node) {
  Value *g = graph::tensor(node, "grad_output"), *output = graph::tensor(node, "output");
  auto dim = graph::integer(node, "dim");
  if (!is_real_float(g) || !dim || is_empty(g)) return {};
  int64_t axis = graph::wrap_dim(*dim, g->type.dim());
  Value *wide = widen(b, g), *p = widen(b, output);
  Value* sum = b.sum(b.mul(wide, p), {axis}, true);
  return {b.cast(b.mul(b.sub(wide, sum), p), node.result()->type.dtype)};
}

Replacement log_softmax_backward(Builder& b, const Node& node) {
  Value *g = graph::tensor(node, "grad_output"), *output = graph::tensor(node, "output");
  auto dim = graph::integer(node, "dim");
  if (!is_real_float(g) || !dim || is_empty(g)) return {};
  int64_t axis = graph::wrap_dim(*dim, g->type.dim());
  Value* wide = widen(b, g);
  Value* p = b(OpId::exp, {widen(b, output)});
  Value* sum = b.sum(wide, {axis}, true);
  return {b.cast(b.sub(wide, b.mul(p, sum)), node.result()->type.dtype)};
}

Replacement layer_norm_backward(Builder& b, const Node& node) {
  Value *g = graph::tensor(node, "grad_out"), *x = graph::tensor(node, "input"),
        *weight = graph::tensor(node, "weight");
  auto normalized_dims = static_cast<int64_t>(graph::expressions(node, "normalized_shape").size());
  if (!is_real_float(x) || is_empty(x) || !undefined_are_unused(b, node)) return {};
  int64_t rank = x->type.dim();
  std::vector<int64_t> inner = range(rank - normalized_dims, rank), outer = range(0, rank - normalized_dims);
  Value* wide = widen(b, g);
  Value* rstd = widen(b, graph::tensor(node, "rstd"));
  Value* normalized = b.mul(b.sub(widen(b, x), widen(b, graph::tensor(node, "mean"))), rstd);
  Value *dx = nullptr, *dw = nullptr, *db = nullptr;
  if (wants(b, node, 0)) {
    Value* scaled = weight == nullptr ? wide : b.mul(wide, widen(b, weight));
    dx = through_normalization(b, scaled, normalized, rstd, inner);
  }
  auto over_rows = [&](Value* value) { return outer.empty() ? value : b.sum(value, outer, false); };
  if (wants(b, node, 1)) dw = over_rows(b.mul(wide, normalized));
  if (wants(b, node, 2)) db = over_rows(wide);
  return {gradient(b, node, 0, dx), gradient(b, node, 1, dw), gradient(b, node, 2, db)};
}

Replacement group_norm_backward(Builder& b, const Node& node) {
  Value *g = graph::tensor(node, "grad_out"), *x = graph::tensor(node, "input"),
        *weight = graph::tensor(node, "weight");
  auto groups = graph::integer(node, "group");
  if (!is_real_float(x) || !groups || is_empty(x) || x->type.dim() < 2 || !undefined_are_unused(b, node)) return {};
  Shape split = x->type.sizes;
  split[1] = sym::floor_div(split[1], *groups);
  split.insert(split.begin() + 1, *groups);
  auto rank = static_cast<int64_t>(split.size());
  const auto known_elements = graph::numel(Shape(split.begin() + 2, split.end())).maybe_constant();
  if (!known_elements) return {};
  auto per_group = [&](Value* statistic) {
    Shape sizes(split.size(), 1);
    sizes[0] = split[0];
    sizes[1] = split[1];
    return b.view(widen(b, statistic), sizes);
  };
  // Sums per channel first; those of a group are made of them.
  Value* wide = b.view(widen(b, g), split);
  Value* rstd = per_group(graph::tensor(node, "rstd"));
  Value* centered = b.sub(b.view(widen(b, x), split), per_group(graph::tensor(node, "mean")));
  const std::vector<int64_t> places = range(3, rank);
  auto over_places = [&](Value* value) { return places.empty() ? value : b.sum(value, places, true); };
  Value *sum = over_places(wide), *projection = over_places(b.mul(wide, centered));
  Value *dx = nullptr, *dw = nullptr, *db = nullptr;
  if (wants(b, node, 0)) {
    Value *scaled = wide, *group_sum = sum, *group_projection = projection;
    if (weight != nullptr) {
      Shape sizes(split.size(), 1);
      sizes[1] = split[1];
      sizes[2] = split[2];
      Value* factor = b.view(widen(b, weight), sizes);
      scaled = b.mul(wide, factor);
      group_sum = b.mul(sum, factor);
      group_projection = b.mul(projection, factor);
    }
    const auto elements = static_cast<double>(*known_elements);
    Value* mean = b.div(b.sum(group_sum, {2}, true), elements);
    Value* slope = b.mul(b.mul(b.div(b.sum(group_projection, {2}, true), elements), rstd), rstd);
    dx = b.mul(b.sub(b.sub(scaled, mean), b.mul(centered, slope)), rstd);
  }
  if (wants(b, node, 1)) dw = b.sum(b.mul(projection, rstd), {0}, false);
  if (wants(b, node, 2)) db = b.sum(sum, {0}, false);
  return {gradient(b, node, 0, dx), gradient(b, node, 1, dw), gradient(b, node, 2, db)};
}

Replacement batch_norm_backward(Builder& b, const Node& node) {
  Value *g = graph::tensor(node, "grad_out"), *x = graph::tensor(node, "input"),
        *weight = graph::tensor(node, "weight");
  auto eps = graph::number(node, "eps");
  if (!is_real_float(x) || !eps || is_empty(x) || x->type.dim() < 2 || !undefined_are_unused(b, node)) return {};
  bool training = graph::boolean(node, "train");
  Value* mean = graph::tensor(node, training ? "save_mean" : "running_mean");
  Value* spread = graph::tensor(node, training ? "save_invstd" : "running_var");
  if (mean == nullptr || spread == nullptr) return {};
  int64_t rank = x->type.dim();
  std::vector<int64_t> dims = range(2, rank);
  dims.insert(dims.begin(), 0);
  Expr in_channel = 1;
  for (const int64_t dim : dims) in_channel *= x->type.sizes[static_cast<size_t>(dim)];
  const auto known_elements = in_channel.maybe_constant();
  if (training && !known_elements) return {};
  Value* rstd = widen(b, spread);
  if (!training) rstd = b(OpId::rsqrt, {b.add(rstd, *eps)});
  Value* wide = widen(b, g);
  Value* centered = b.sub(widen(b, x), per_channel(b, widen(b, mean), rank));
  Value *dx = nullptr, *dw = nullptr, *db = nullptr;
  // Through the statistics too while training: what is done per channel is done to the sums, not to each element.
  Value *sum = nullptr, *projection = nullptr;
  if (training || wants(b, node, 2)) sum = b.sum(wide, dims, false);
  if (training || wants(b, node, 1)) projection = b.mul(b.sum(b.mul(wide, centered), dims, false), rstd);
  if (wants(b, node, 0)) {
    dx = wide;
    if (training) {
      const auto elements = static_cast<double>(*known_elements);
      Value* shift = per_channel(b, b.div(sum, elements), rank);
      Value* slope = per_channel(b, b.mul(b.div(projection, elements), rstd), rank);
      dx = b.sub(b.sub(dx, shift), b.mul(centered, slope));
    }
    dx = b.mul(dx, per_channel(b, weight == nullptr ? rstd : b.mul(rstd, widen(b, weight)), rank));
  }
  if (wants(b, node, 1)) dw = projection;
  if (wants(b, node, 2)) db = sum;
  return {gradient(b, node, 0, dx), gradient(b, node, 1, dw), gradient(b, node, 2, db)};
}

// -weight grad at each target's class, 0 elsewhere and for ignored targets.
Replacement nll_loss_backward(Builder& b, const Node& node) {
  Value *g = graph::tensor(node, "grad_output"), *x = graph::tensor(node, "self"),
        *target = graph::tensor(node, "target");
  Value* weight = graph::tensor(node, "weight");
  auto reduction = graph::integer(node, "reduction"), ignore = graph::integer(node, "ignore_index");
  if (!is_real_float(x) || !reduction || !ignore || is_empty(x) || !is_integral(target->type.dtype, false)) return {};
  auto class_dim = static_cast<size_t>(x->type.dim() == 1 ? 0 : 1);
  if (target->type.dtype != DType::I64) target = b.cast(target, DType::I64);
  Value* chosen = b.unsqueeze(target, static_cast<int64_t>(class_dim));
  Shape sizes(x->type.sizes.size(), 1);
  sizes[class_dim] = x->type.sizes[class_dim];
  Value* classes = b.view(b(OpId::arange, {sizes[class_dim], DType::I64, graph::None{}, x->type.device}), sizes);
  Value* hit = b(OpId::eq_Tensor, {classes, chosen});
  hit = b(OpId::logical_and, {hit, b(OpId::ne_Scalar, {chosen, graph::int_argument(*ignore)})});
  Value* each = widen(b, g);
  if (*reduction == 1) each = b.div(each, widen(b, graph::tensor(node, "total_weight")));
  if (*reduction == 0 && g->type.dim() > 0) each = b.unsqueeze(each, static_cast<int64_t>(class_dim));
  each = b(OpId::neg, {each});
  if (weight != nullptr) each = b.mul(each, b.view(widen(b, weight), sizes));
  Value* result = b(OpId::where_ScalarOther, {hit, each, 0.0});
  return {b.cast(b.expand(result, x->type.sizes), node.result()->type.dtype)};
}

// 2 (x - y) grad, divided by the number of elements for a mean.
Replacement mse_loss_backward(Builder& b, const Node& node) {
  Value *g = graph::tensor(node, "grad_output"), *x = graph::tensor(node, "self"), *y = graph::tensor(node, "target");
  auto reduction = graph::integer(node, "reduction");
  auto elements = graph::numel(x->type.sizes).maybe_constant();
  if (!reduction || !elements || *elements == 0 || (x->type.dtype != DType::F32 && x->type.dtype != DType::F64) ||
      x->type.dtype != y->type.dtype)
    return {};
  double factor = *reduction == 1 ? 2.0 / static_cast<double>(*elements) : 2.0;
  return {b.mul(b.mul(b.sub(x, y), factor), g)};
}

// Rows of zeros to which each gradient row is added at its index; padding's row stays zero.
Replacement embedding_backward(Builder& b, const Node& node) {
  Value *g = graph::tensor(node, "grad_output"), *indices = graph::tensor(node, "indices");
  auto padding = graph::integer(node, "padding_idx");
  auto rows = graph::expressions(node, "num_weights");
  if ((g->type.dtype != DType::F32 && g->type.dtype != DType::F64) || !padding || is_empty(g) ||
      graph::boolean(node, "scale_grad_by_freq"))
    return {};
  if (*padding >= 0) {
    Value* padded = b.unsqueeze(b(OpId::eq_Scalar, {indices, graph::int_argument(*padding)}), -1);
    g = b(OpId::masked_fill_Scalar, {g, padded, graph::int_argument(0)});
  }
  Value* zeros = b.full({rows[0], g->type.sizes.back()}, 0.0, g->type.dtype, g->type.device);
  return {b(OpId::index_put, {zeros, graph::ArgumentList{indices}, g, true})};
}

Replacement glu_backward(Builder& b, const Node& node) {
  Value *g = graph::tensor(node, "grad_output"), *x = graph::tensor(node, "self");
  auto dim = graph::integer(node, "dim");
  if (!dim || x->type.dim() == 0 || (x->type.dtype != DType::F32 && x->type.dtype != DType::F64)) return {};
  int64_t axis = graph::wrap_dim(*dim, x->type.dim());
  Expr size = x->type.sizes[static_cast<size_t>(axis)], half = sym::floor_div(size, 2);
  Value *first = b.slice(x, axis, 0, half), *gate = b(OpId::sigmoid, {b.slice(x, axis, half, size)});
  Value* d_first = b.mul(gate, g);
  Value* slope = b.mul(b(OpId::rsub_Scalar, {gate, graph::int_argument(1)}), gate);
  Value* d_second = b.mul(b.mul(slope, first), g);
  return {b(OpId::cat, {graph::tensors_argument({d_first, d_second}), graph::int_argument(axis)})};
}

// The mean over everything spreads its gradient evenly.
Replacement adaptive_avg_pool_backward(Builder& b, const Node& node) {
  Value *g = graph::tensor(node, "grad_output"), *x = graph::tensor(node, "self");
  size_t window = node.op->name.find("3d") != std::string::npos ? 3 : 2;
  size_t rank = x->type.sizes.size();
  if (!is_real_float(x) || rank < window + 1 || is_empty(x)) return {};
  Expr elements = 1;
  for (size_t d = rank - window; d < rank; ++d) {
    if (!(g->type.sizes[d] == Expr(1))) return {};
    elements = elements * x->type.sizes[d];
  }
  auto known = elements.maybe_constant();
  if (!known) return {};
  Value* share = b.cast(b.div(widen(b, g), static_cast<double>(*known)), node.result()->type.dtype);
  return {b(OpId::clone, {b.expand(share, x->type.sizes), graph::MemoryFormat{0}})};
}

}  // namespace braze::decompose
