// Derivatives of activations: ATen's CPU kernels compute 16-bit floats in f32 and round once. Where a NaN operand takes
// different branches in ATen's vector and scalar code, the vector code's is taken.
#include <limits>
#include <numbers>

#include "braze/loop/lowering.h"

namespace braze::loop {
namespace {

constexpr double kSqrtHalf = std::numbers::sqrt2 / 2;
constexpr double kTwoOverSqrtPi = 2 * std::numbers::inv_sqrtpi;
constexpr double kGeluBeta = std::numbers::sqrt2 * kTwoOverSqrtPi * 0.5;
constexpr double kGeluKappa = 0.044715;

DType result_dtype(const Node& node) { return node.result()->type.dtype; }

// f(gradient, operand) in the compute type; `operand` is argument number `k`.
template <class F>
bool binary(Lowering& l, const Node& node, F&& f, size_t k = 1) {
  const DType dtype = result_dtype(node), inner = compute_type(dtype);
  if (!is_floating(dtype)) return false;
  l.pointwise(node, [&](const Indices& at) {
    return f(l.operand(node.arguments[0], at, dtype).cast(inner), l.operand(node.arguments[k], at, dtype).cast(inner));
  });
  return true;
}

bool is_tanh_form(const Node& node) { return node.argument("approximate").as<std::string>() == "tanh"; }

}  // namespace

bool lower_gelu_backward(Lowering& l, const Node& node, ScalarOp) {
  if (is_tanh_form(node))
    return binary(l, node, [](Term grad, Term x) {
      const Term square = x * x;
      const Term t = tanh(kGeluBeta * (x + kGeluKappa * (square * x)));
      const Term left = 0.5 * x;
      const Term left_derivative = 0.5 * (1.0 + t);
      const Term right_derivative = left * (1.0 - t * t) * (kGeluBeta * (1.0 + 3.0 * x.constant(kGeluKappa) * square));
      return grad * (left_derivative + right_derivative);
    });
  return binary(l, node, [](Term grad, Term x) {
    const Term cdf = 0.5 * (1.0 + erf(x * kSqrtHalf));
    const Term pdf = (kTwoOverSqrtPi * kSqrtHalf * 0.5) * exp(x * x * -0.5);
    return grad * (cdf + x * pdf);
  });
}

bool lower_silu_backward(Lowering& l, const Node& node, ScalarOp) {
  return binary(l, node, [](Term grad, Term x) {
    const Term sigmoid = 1.0 / (1.0 + exp(-x));
    return grad * sigmoid * (1.0 + x * (1.0 - sigmoid));
  });
}

bool lower_tanh_backward(Lowering& l, const Node& node, ScalarOp) {
  return binary(l, node, [](Term grad, Term y) { return grad * (1.0 - y * y); });
}

bool lower_sigmoid_backward(Lowering& l, const Node& node, ScalarOp) {
  return binary(l, node, [](Term grad, Term y) { return grad * (1.0 - y) * y; });
}

bool lower_threshold_backward(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node), inner = compute_type(dtype);
  l.pointwise(node, [&](const Indices& at) {
    const Term grad = l.operand(node.arguments[0], at, dtype), x = l.operand(node.arguments[1], at, dtype).cast(inner);
    return where(x <= l.number(node, "threshold", inner), 0.0, grad);
  });
  return true;
}

bool lower_hardtanh_backward(Lowering& l, const Node& node, ScalarOp) {
  return binary(l, node, [&](Term grad, Term x) {
    const Term low = l.number(node, "min_val", x.dtype()), high = l.number(node, "max_val", x.dtype());
    return where((x > low) & (x < high), grad, 0.0);
  });
}

bool lower_leaky_relu_backward(Lowering& l, const Node& node, ScalarOp) {
  return binary(l, node, [&](Term grad, Term x) {
    return grad * where(x > 0.0, x.constant(1), l.number(node, "negative_slope", x.dtype()));
  });
}

bool lower_hardsigmoid_backward(Lowering& l, const Node& node, ScalarOp) {
  return binary(l, node, [](Term grad, Term x) {
    return where((x > -3.0) & (x < 3.0), grad * static_cast<double>(1.0f / 6.0f), 0.0);
  });
}

bool lower_hardswish_backward(Lowering& l, const Node& node, ScalarOp) {
  return binary(l, node, [](Term grad, Term x) {
    return where(x <= -3.0, 0.0, where(x >= 3.0, grad, grad * (x / 3.0 + 0.5)));
  });
}

bool lower_elu_backward(Lowering& l, const Node& node, ScalarOp) {
  const bool is_result = graph::boolean(node, "is_result");
  const auto at = static_cast<size_t>(node.op->argument_index("self_or_result"));
  return binary(l, node, [&](Term grad, Term x) {
    const Term scale = l.number(node, "scale", x.dtype()), input_scale = l.number(node, "input_scale", x.dtype());
    const Term negative = l.number(node, "alpha", x.dtype()) * scale;
    const Term below = is_result ? grad * input_scale * (x + negative)
                                 : grad * input_scale * negative * exp(x * input_scale);
    return where(x > 0.0, grad * scale, below);
  }, at);
}

bool lower_softplus_backward(Lowering& l, const Node& node, ScalarOp) {
  return binary(l, node, [&](Term grad, Term x) {
    const Term scaled = x * l.number(node, "beta", x.dtype());
    const Term z = exp(scaled);
    return where(scaled > l.number(node, "threshold", x.dtype()), grad, grad * z / (z + 1.0));
  });
}

bool lower_shrink_backward(Lowering& l, const Node& node, ScalarOp) {
  return binary(l, node, [&](Term grad, Term x) {
    const Term limit = l.number(node, "lambd", x.dtype());
    return where((x < -limit) | (x > limit), grad, 0.0);
  });
}

bool lower_mish_backward(Lowering& l, const Node& node, ScalarOp) {
  return binary(l, node, [](Term grad, Term x) {
    const Term sigmoid = 1.0 / (1.0 + exp(-x));
    const Term t = tanh(log1p(exp(x)));
    return grad * (t + x * sigmoid * (1.0 - t * t));
  });
}

bool lower_logit_backward(Lowering& l, const Node& node, ScalarOp) {
  const auto eps = graph::number(node, "eps");
  if (graph::is_unknown_number(node, "eps")) return false;
  return binary(l, node, [&](Term grad, Term x) {
    const Term inside = grad / (x * (1.0 - x));
    if (eps && *eps >= 0) {
      const Term low = x.constant(*eps), high = 1.0 - low;
      return where((x >= low) & (x <= high), inside, 0.0);
    }
    const Term at_ends = where((x == 0.0) | (x == 1.0), grad * std::numeric_limits<double>::infinity(), inside);
    return where((x < 0.0) | (x > 1.0), x.constant(std::numeric_limits<double>::quiet_NaN()), at_ends);
  });
}

bool lower_log_sigmoid_backward(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node), inner = compute_type(dtype);
  const Value *self = graph::tensor(node, "self"), *buffer = graph::tensor(node, "buffer");
  if (!is_floating(dtype) || buffer == nullptr || buffer->type.sizes != self->type.sizes) return false;
  l.pointwise(node, [&](const Indices& at) {
    const Term grad = l.operand(node.arguments[0], at, dtype).cast(inner);
    const Term x = l.operand(node.arguments[1], at, dtype).cast(inner);
    const Term e = l.operand(node.arguments[2], at, dtype).cast(inner);
    const Term part = e / (1.0 + e), zero = x.constant(0);
    return where(x < 0.0, 1.0 - part, zero + part) * grad;
  });
  return true;
}

bool lower_prelu_backward(Lowering& l, const Node& node, ScalarOp) {
  for (size_t k = 0; k < 2; ++k) {
    const DType dtype = node.result(k)->type.dtype, inner = compute_type(dtype);
    if (!is_floating(dtype)) return false;
    l.pointwise(node, [&](const Indices& at) {
      const Term grad = l.operand(node.arguments[0], at, dtype).cast(inner);
      const Term x = l.operand(node.arguments[1], at, dtype).cast(inner);
      const Term weight = l.operand(node.arguments[2], at, dtype).cast(inner);
      return k == 0 ? where(x > 0.0, grad, weight * grad) : where(x > 0.0, 0.0, x * grad);
    }, k);
  }
  return true;
}

}  // namespace braze::loop
