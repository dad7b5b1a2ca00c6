// Activations: ATen's CPU kernels compute 16-bit floats in f32 and round once.
#include <numbers>

#include "braze/loop/lowering.h"

namespace braze::loop {
namespace {

constexpr double kSqrtHalf = std::numbers::sqrt2 / 2;
constexpr double kTwoOverSqrtPi = 2 * std::numbers::inv_sqrtpi;

DType result_dtype(const Node& node) { return node.result()->type.dtype; }

// f of the leading tensor operands in the compute type.
template <class F>
bool unary(Lowering& l, const Node& node, F&& f) {
  const DType dtype = result_dtype(node);
  if (!is_floating(dtype)) return false;
  l.pointwise(node, [&](const Indices& at) {
    return f(l.operand(node.arguments[0], at, dtype).cast(compute_type(dtype)));
  });
  return true;
}

template <class F>
bool binary(Lowering& l, const Node& node, F&& f) {
  const DType dtype = result_dtype(node), inner = compute_type(dtype);
  if (!is_floating(dtype)) return false;
  l.pointwise(node, [&](const Indices& at) {
    return f(l.operand(node.arguments[0], at, dtype).cast(inner), l.operand(node.arguments[1], at, dtype).cast(inner));
  });
  return true;
}

bool is_tanh_form(const Node& node) { return node.argument("approximate").as<std::string>() == "tanh"; }

constexpr double kGeluBeta = std::numbers::sqrt2 * kTwoOverSqrtPi * 0.5;
constexpr double kGeluKappa = 0.044715;

}  // namespace

bool lower_hardtanh(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node);
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(node.arguments[0], at, dtype);
    return minimum(l.number(node, "max_val", dtype), maximum(l.number(node, "min_val", dtype), x));   // x, of two zeros
  });
  return true;
}

bool lower_hardswish(Lowering& l, const Node& node, ScalarOp) {
  return unary(l, node, [](Term x) { return x * minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0; });
}

bool lower_hardsigmoid(Lowering& l, const Node& node, ScalarOp) {
  return unary(l, node, [](Term x) { return minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0; });
}

bool lower_leaky_relu(Lowering& l, const Node& node, ScalarOp) {
  return unary(l, node, [&](Term x) {
    return x * where(x > 0.0, x.constant(1), l.number(node, "negative_slope", x.dtype()));
  });
}

bool lower_elu(Lowering& l, const Node& node, ScalarOp) {
  return unary(l, node, [&](Term x) {
    const Term scale = l.number(node, "scale", x.dtype());
    const Term negative = l.number(node, "alpha", x.dtype()) * scale;
    const Term inner = x * l.number(node, "input_scale", x.dtype());
    return where(x <= 0.0, expm1(inner) * negative, x * scale);
  });
}

bool lower_silu(Lowering& l, const Node& node, ScalarOp) {
  return unary(l, node, [](Term x) { return x / (1.0 + exp(-x)); });
}

bool lower_gelu(Lowering& l, const Node& node, ScalarOp) {
  if (is_tanh_form(node))
    return unary(l, node, [](Term x) {
      const Term inner = kGeluBeta * (x + kGeluKappa * (x * x * x));
      return 0.5 * x * (1.0 + tanh(inner));
    });
  return unary(l, node, [](Term x) { return x * 0.5 * (1.0 + erf(x * kSqrtHalf)); });
}

bool lower_mish(Lowering& l, const Node& node, ScalarOp) {
  return unary(l, node, [](Term x) { return x * tanh(log1p(exp(x))); });
}

bool lower_softplus(Lowering& l, const Node& node, ScalarOp) {
  return unary(l, node, [&](Term x) {
    const Term beta = l.number(node, "beta", x.dtype()), threshold = l.number(node, "threshold", x.dtype());
    return where(x * beta > threshold, x, log1p(exp(x * beta)) / beta);
  });
}

bool lower_threshold(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node), inner = compute_type(dtype);
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(node.arguments[0], at, dtype).cast(inner);
    return where(x <= l.number(node, "threshold", inner), l.number(node, "value", inner), x);
  });
  return true;
}

bool lower_hardshrink(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node);
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(node.arguments[0], at, dtype), limit = l.number(node, "lambd", dtype);
    return where((x >= -limit) & (x <= limit), 0.0, x);
  });
  return true;
}

bool lower_softshrink(Lowering& l, const Node& node, ScalarOp) {
  return unary(l, node, [&](Term x) {
    const Term limit = l.number(node, "lambd", x.dtype());
    return where(x > limit, x - limit, where(x < -limit, x + limit, where(is_nan(x), x, 0.0)));
  });
}

bool lower_prelu(Lowering& l, const Node& node, ScalarOp) {
  return binary(l, node, [](Term x, Term weight) { return where(x > 0.0, x, weight * x); });
}

// Its second result is exp(-|x|), which the derivative uses.
bool lower_log_sigmoid(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node), inner = compute_type(dtype);
  if (!is_floating(dtype)) return false;
  const Value* buffer = node.result(1);
  if (l.is_used(buffer) && buffer->type.sizes.size() != node.result(0)->type.sizes.size()) return false;
  const auto exponential = [&](const Indices& at) {
    return exp(-abs(l.operand(node.arguments[0], at, dtype).cast(inner)));
  };
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(node.arguments[0], at, dtype).cast(inner);
    return minimum(x, 0.0) - log1p(exponential(at));
  });
  l.pointwise(node, exponential, 1);
  return true;
}

}  // namespace braze::loop
