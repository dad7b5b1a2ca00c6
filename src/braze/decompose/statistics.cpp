// Variance, norms of vectors and other reductions that are sums of something.
#include <algorithm>
#include <cmath>
#include <limits>

#include "braze/decompose/decompose.h"
#include "braze/decompose/numerics.h"

namespace braze::decompose {

using graph::Builder;
using graph::Node;
using graph::OpId;
using graph::Value;

namespace {

struct Spread {
  Value* mean;
  Value* variance;
};

// var.correction and its kin: dim and correction may be None; a divisor below 0 counts as 0.
std::optional<Spread> spread(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  if (!is_real_float(x) || is_empty(x)) return std::nullopt;
  if (graph::is_unknown_number(node, "correction")) return std::nullopt;
  auto dims = graph::wrap_dims(graph::integers(node, "dim").value_or(std::vector<int64_t>{}), x->type.dim());
  double correction = graph::number(node, "correction").value_or(1.0);
  bool keepdim = graph::boolean(node, "keepdim");
  auto elements = count(x, dims).maybe_constant();
  if (!elements) return std::nullopt;
  Value* wide = widen(b, x);
  Value* mean = b.mean(wide, dims, true);
  Value* centered = b.sub(wide, mean);
  Value* sum = b.sum(b.mul(centered, centered), dims, keepdim);
  double divisor = std::max(0.0, static_cast<double>(*elements) - correction);
  return Spread{keepdim ? mean : b.squeeze(mean, dims), b.div(sum, divisor)};
}

}  // namespace

Replacement var(Builder& b, const Node& node) {
  auto s = spread(b, node);
  if (!s) return {};
  return {b.cast(s->variance, node.result()->type.dtype)};
}

Replacement standard_deviation(Builder& b, const Node& node) {
  auto s = spread(b, node);
  if (!s) return {};
  return {b.cast(b(OpId::sqrt, {s->variance}), node.result()->type.dtype)};
}

Replacement var_mean(Builder& b, const Node& node) {
  auto s = spread(b, node);
  if (!s) return {};
  return {b.cast(s->variance, node.result(0)->type.dtype), b.cast(s->mean, node.result(1)->type.dtype)};
}

Replacement std_mean(Builder& b, const Node& node) {
  auto s = spread(b, node);
  if (!s) return {};
  return {b.cast(b(OpId::sqrt, {s->variance}), node.result(0)->type.dtype),
          b.cast(s->mean, node.result(1)->type.dtype)};
}

namespace {

Replacement norm_of_order(Builder& b, const Node& node, std::optional<double> order) {
  Value* x = graph::tensor(node, "self");
  if (!is_real_float(x) || !order || is_empty(x)) return {};
  auto has = [&](const char* name) { return node.op->argument_index(name) >= 0; };
  std::vector<int64_t> dims;
  if (has("dim")) dims = graph::integers(node, "dim").value_or(dims);
  dims = graph::wrap_dims(dims, x->type.dim());
  bool keepdim = has("keepdim") && graph::boolean(node, "keepdim");
  DType dtype = node.result()->type.dtype;
  DType given = has("dtype") ? graph::dtype(node, "dtype").value_or(x->type.dtype) : x->type.dtype;
  Value* wide = widen(b, b.cast(x, given));
  auto magnitude = [&] { return b(OpId::abs, {wide}); };
  double infinity = std::numeric_limits<double>::infinity();
  Value* norm;
  if (*order == 2.0) {
    norm = b(OpId::sqrt, {b.sum(b.mul(wide, wide), dims, keepdim)});
  } else if (*order == 1.0) {
    norm = b.sum(magnitude(), dims, keepdim);
  } else if (*order == 0.0) {
    norm = b.sum(b.cast(b(OpId::ne_Scalar, {wide, graph::int_argument(0)}), wide->type.dtype), dims, keepdim);
  } else if (*order == infinity) {
    norm = b.amax(magnitude(), dims, keepdim);
  } else if (*order == -infinity) {
    norm = b(OpId::amin, {magnitude(), graph::ints_argument(dims), keepdim});
  } else {
    Value* powers = b(OpId::pow_Tensor_Scalar, {magnitude(), *order});
    norm = b(OpId::pow_Tensor_Scalar, {b.sum(powers, dims, keepdim), 1.0 / *order});
  }
  return {b.cast(norm, dtype)};
}

}  // namespace

Replacement vector_norm(Builder& b, const Node& node) { return norm_of_order(b, node, graph::number(node, "ord")); }

// The older spelling; no p means 2.
Replacement norm(Builder& b, const Node& node) {
  if (graph::is_none(node, "p")) return norm_of_order(b, node, 2.0);
  return norm_of_order(b, node, graph::number(node, "p"));
}

Replacement aminmax(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  if (is_complex(x->type.dtype) || is_empty(x)) return {};
  std::vector<int64_t> dims;
  if (!graph::is_none(node, "dim")) {
    auto dim = graph::integer(node, "dim");
    if (!dim) return {};
    dims.push_back(*dim);
  }
  bool keepdim = graph::boolean(node, "keepdim");
  return {b(OpId::amin, {x, graph::ints_argument(dims), keepdim}), b.amax(x, dims, keepdim)};
}

Replacement count_nonzero(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  if (is_complex(x->type.dtype)) return {};
  std::vector<int64_t> dims;
  if (node.op->argument_index("dim") >= 0) {
    // Either a list or one dimension that may be None.
    if (auto list = graph::integers(node, "dim"))
      dims = *list;
    else if (!graph::is_none(node, "dim"))
      return {};
  }
  Value* nonzero = x->type.dtype == DType::Bool ? x : b(OpId::ne_Scalar, {x, graph::int_argument(0)});
  return {b.sum(nonzero, graph::wrap_dims(dims, x->type.dim()), false)};
}

Replacement nansum(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  if (!is_real_float(x)) return {};
  auto dims = graph::wrap_dims(graph::integers(node, "dim").value_or(std::vector<int64_t>{}), x->type.dim());
  Value* numbers = b(OpId::masked_fill_Scalar, {x, b(OpId::isnan, {x}), graph::int_argument(0)});
  Value* cast = b.cast(numbers, graph::dtype(node, "dtype").value_or(x->type.dtype));
  return {b.sum(cast, dims, graph::boolean(node, "keepdim"))};
}

Replacement trace(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  if (x->type.dim() != 2 || is_complex(x->type.dtype)) return {};
  return {b.sum(b(OpId::diagonal, {x}), {0}, false)};
}

// An inner product accumulates in the computing type and rounds once.
Replacement dot(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  Value* y = node.arguments[1].as<Value*>();
  if (is_complex(x->type.dtype) || x->type.dtype != y->type.dtype) return {};
  Value* sum = b.sum(b.mul(widen(b, x), widen(b, y)), {0}, false);
  return {b.cast(sum, node.result()->type.dtype)};
}

}  // namespace braze::decompose
