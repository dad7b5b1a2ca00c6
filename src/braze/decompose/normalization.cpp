// Layer, group, batch and RMS normalization. Everything between the loads and the one rounding of each result is in
// f32 (f64 for f64). Statistics are two-pass: the mean, then the mean square of the differences.
#include <limits>

#include "braze/decompose/decompose.h"
#include "braze/decompose/numerics.h"

namespace braze::decompose {

using graph::Builder;
using graph::Node;
using graph::OpId;
using graph::Shape;
using graph::Value;

namespace {

struct Normalized {
  Value* mean;      // with the reduced dimensions as 1
  Value* variance;  // biased
  Value* rstd;
  Value* centered;  // x - mean
};

Normalized normalize(Builder& b, Value* wide, const std::vector<int64_t>& dims, double eps) {
  Value* mean = b.mean(wide, dims, true);
  Value* centered = b.sub(wide, mean);
  Value* variance = b.mean(b.mul(centered, centered), dims, true);
  return {mean, variance, b(OpId::rsqrt, {b.add(variance, eps)}), centered};
}

// x * weight + bias, either may be missing.
Value* scale_and_shift(Builder& b, Value* x, Value* weight, Value* bias) {
  if (weight != nullptr) x = b.mul(x, widen(b, weight));
  if (bias != nullptr) x = b.add(x, widen(b, bias));
  return x;
}

std::vector<int64_t> last_dims(int64_t rank, int64_t n) {
  std::vector<int64_t> dims;
  for (int64_t d = rank - n; d < rank; ++d) dims.push_back(d);
  return dims;
}

// All dimensions but the one of the channels.
std::vector<int64_t> all_but_channels(int64_t rank) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < rank; ++d)
    if (d != 1) dims.push_back(d);
  return dims;
}

// A statistic as the node returns it; nullptr where nothing uses it.
Value* statistic(Builder& b, const Node& node, size_t i, Value* value) {
  const Value* result = node.result(i);
  if (!b.graph().has_uses(result)) return nullptr;
  return b.view(b.cast(value, result->type.dtype), result->type.sizes);
}

// Inference kernels return empty statistics.
Value* empty_statistic(Builder& b, const Node& node, size_t i) {
  const graph::TensorType& type = node.result(i)->type;
  if (!b.graph().has_uses(node.result(i))) return nullptr;
  return b.full(type.sizes, 0.0, type.dtype, type.device);
}

// x * alpha + beta with alpha = weight / sqrt(var + eps) and beta = bias - mean * alpha, as the CPU kernel has it.
Value* batch_norm_inference(Builder& b, const Node& node, Value* x, double eps) {
  Value* weight = graph::tensor(node, "weight");
  Value* bias = graph::tensor(node, "bias");
  Value* mean = widen(b, graph::tensor(node, "running_mean"));
  Value* variance = widen(b, graph::tensor(node, "running_var"));
  Value* alpha = b(OpId::rsqrt, {b.add(variance, eps)});
  if (weight != nullptr) alpha = b.mul(alpha, widen(b, weight));
  Value* shift = b.mul(mean, alpha);
  Value* beta = bias == nullptr ? b(OpId::neg, {shift}) : b.sub(widen(b, bias), shift);
  int64_t rank = x->type.dim();
  Value* scaled = b.mul(widen(b, x), per_channel(b, alpha, rank));
  return b.cast(b.add(scaled, per_channel(b, beta, rank)), node.result()->type.dtype);
}

struct Training {
  Value* out;
  Value* mean;  // 1-D, in the computing type
  Value* rstd;
  Value* unbiased;  // variance
};

Training batch_norm_training(Builder& b, const Node& node, Value* x, double eps) {
  int64_t rank = x->type.dim();
  std::vector<int64_t> dims = all_but_channels(rank);
  Normalized n = normalize(b, widen(b, x), dims, eps);
  Value* weight = graph::tensor(node, "weight");
  Value* bias = graph::tensor(node, "bias");
  Value* out = scale_and_shift(b, b.mul(n.centered, n.rstd), weight == nullptr ? nullptr : per_channel(b, weight, rank),
                               bias == nullptr ? nullptr : per_channel(b, bias, rank));
  Shape channels = {x->type.sizes[1]};
  sym::Expr elements = count(x, dims);
  Value* variance = b.view(n.variance, channels);
  // var * n / (n - 1); sizes are exact in f32 only up to 2^24, hence one factor.
  Value* unbiased = nullptr;
  if (auto known = elements.maybe_constant())
    unbiased = b.mul(variance, static_cast<double>(*known) / static_cast<double>(*known - 1));
  return {b.cast(out, node.result()->type.dtype), b.view(n.mean, channels), b.view(n.rstd, channels), unbiased};
}

bool is_batch(const Value* x) { return is_real_float(x) && x->type.dim() >= 2 && !is_empty(x); }

}  // namespace

Replacement layer_norm(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "input");
  auto eps = graph::number(node, "eps");
  auto dims_count = static_cast<int64_t>(graph::expressions(node, "normalized_shape").size());
  if (!is_real_float(x) || !eps || is_empty(x)) return {};
  Normalized n = normalize(b, widen(b, x), last_dims(x->type.dim(), dims_count), *eps);
  Value* out =
      scale_and_shift(b, b.mul(n.centered, n.rstd), graph::tensor(node, "weight"), graph::tensor(node, "bias"));
  return {b.cast(out, node.result()->type.dtype), statistic(b, node, 1, n.mean), statistic(b, node, 2, n.rstd)};
}

Replacement rms_norm(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "input");
  auto dims_count = static_cast<int64_t>(graph::expressions(node, "normalized_shape").size());
  if (!is_real_float(x) || is_empty(x)) return {};
  Value* wide = widen(b, x);
  // The default is the epsilon of the computing type.
  double eps =
      graph::number(node, "eps")
          .value_or(wide->type.dtype == DType::F64 ? std::numeric_limits<double>::epsilon()
                                                   : static_cast<double>(std::numeric_limits<float>::epsilon()));
  Value* square = b.mean(b.mul(wide, wide), last_dims(x->type.dim(), dims_count), true);
  Value* rstd = b(OpId::rsqrt, {b.add(square, eps)});
  Value* out = scale_and_shift(b, b.mul(wide, rstd), graph::tensor(node, "weight"), nullptr);
  return {b.cast(out, node.result()->type.dtype), statistic(b, node, 1, rstd)};
}

Replacement group_norm(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "input");
  auto eps = graph::number(node, "eps");
  auto groups = graph::integer(node, "group");
  if (!is_real_float(x) || !eps || !groups || x->type.dim() < 2 || is_empty(x)) return {};
  // Only the channels are split, so that this is a view in every memory format.
  Shape split = x->type.sizes;
  split[1] = sym::floor_div(split[1], *groups);
  split.insert(split.begin() + 1, *groups);
  auto rank = static_cast<int64_t>(split.size());
  Normalized n = normalize(b, widen(b, b.view(x, split)), last_dims(rank, rank - 2), *eps);
  auto per_group = [&](const char* name) -> Value* {
    Value* value = graph::tensor(node, name);
    if (value == nullptr) return nullptr;
    Shape sizes(static_cast<size_t>(rank), 1);
    sizes[1] = split[1];
    sizes[2] = split[2];
    return b.view(value, sizes);
  };
  Value* out = scale_and_shift(b, b.mul(n.centered, n.rstd), per_group("weight"), per_group("bias"));
  return {b.view(b.cast(out, node.result()->type.dtype), x->type.sizes), statistic(b, node, 1, n.mean),
          statistic(b, node, 2, n.rstd)};
}

Replacement batch_norm_no_training(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "input");
  auto eps = graph::number(node, "eps");
  if (!is_batch(x) || !eps) return {};
  return {batch_norm_inference(b, node, x, *eps), empty_statistic(b, node, 1), empty_statistic(b, node, 2)};
}

Replacement batch_norm(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "input");
  auto eps = graph::number(node, "eps");
  if (!is_batch(x) || !eps) return {};
  if (!graph::boolean(node, "training"))
    return {batch_norm_inference(b, node, x, *eps), empty_statistic(b, node, 1), empty_statistic(b, node, 2)};
  // With running statistics this op writes them, which a functional node cannot.
  if (!graph::is_none(node, "running_mean") || !graph::is_none(node, "running_var")) return {};
  Training t = batch_norm_training(b, node, x, *eps);
  return {t.out, statistic(b, node, 1, t.mean), statistic(b, node, 2, t.rstd)};
}

Replacement batch_norm_no_stats(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "input");
  auto eps = graph::number(node, "eps");
  if (!is_batch(x) || !eps || !graph::boolean(node, "training")) return {};
  Training t = batch_norm_training(b, node, x, *eps);
  return {t.out, statistic(b, node, 1, t.mean), statistic(b, node, 2, t.rstd)};
}

// Results 3 and 4 are the new running statistics: momentum * batch + (1 - momentum) * running.
Replacement batch_norm_functional(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "input");
  auto eps = graph::number(node, "eps");
  auto momentum = graph::number(node, "momentum");
  if (!is_batch(x) || !eps || !momentum) return {};
  Value* running_mean = graph::tensor(node, "running_mean");
  Value* running_var = graph::tensor(node, "running_var");
  if (!graph::boolean(node, "training"))
    return {batch_norm_inference(b, node, x, *eps), empty_statistic(b, node, 1), empty_statistic(b, node, 2),
            copy_of(b, running_mean), copy_of(b, running_var)};
  Training t = batch_norm_training(b, node, x, *eps);
  if (t.unbiased == nullptr) return {};
  auto updated = [&](Value* running, Value* batch) {
    Value* mixed = b.add(b.mul(batch, *momentum), b.mul(widen(b, running), 1 - *momentum));
    return b.cast(mixed, running->type.dtype);
  };
  return {t.out, statistic(b, node, 1, t.mean), statistic(b, node, 2, t.rstd), updated(running_mean, t.mean),
          updated(running_var, t.unbiased)};
}

}  // namespace braze::decompose
