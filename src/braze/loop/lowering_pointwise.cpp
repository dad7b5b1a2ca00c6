// Pointwise arithmetic. bf16 and f16 are rounded where ATen's CPU kernel rounds: after each op that is a kernel of its
// own, once at the end where the kernel computes in f32.
#include <cmath>
#include <limits>
#include <numbers>

#include "braze/loop/arithmetic.h"
#include "braze/loop/lowering.h"
#include "braze/support/check.h"

namespace braze::loop {
namespace {

DType result_dtype(const Node& node) { return node.result()->type.dtype; }
const Argument& first(const Node& node) { return node.arguments.at(0); }
const Argument& second(const Node& node) { return node.arguments.at(1); }

bool is_reduced_float(DType dtype) { return is_floating(dtype) && size_of(dtype) < 4; }

// A number, or a tensor known to have one element: ATen's mul and div take it in f32, without rounding it to 16 bits.
bool is_single(const Argument& argument) {
  return !argument.is<Value*>() || graph::numel(argument.as<Value*>()->type.sizes) == Expr(1);
}

// f(a, b) of both operands in the result's dtype, rounded after each op.
template <class F>
bool binary(Lowering& l, const Node& node, F&& f) {
  const DType dtype = result_dtype(node);
  l.pointwise(node, [&](const Indices& at) {
    return f(l.operand(first(node), at, dtype), l.operand(second(node), at, dtype));
  });
  return true;
}

// The same, but in f32 with one rounding where the second operand is a single 16-bit float.
template <class F>
bool scalable_binary(Lowering& l, const Node& node, F&& f) {
  const DType dtype = result_dtype(node);
  if (!is_reduced_float(dtype) || !is_single(second(node))) return binary(l, node, f);
  l.pointwise(node, [&](const Indices& at) {
    return f(l.operand(first(node), at, dtype).cast(DType::F32), l.operand(second(node), at, DType::F32));
  });
  return true;
}

bool is_one(const Argument& argument) { return graph::number(argument) == 1.0; }

}  // namespace

bool lower_unary(Lowering& l, const Node& node, ScalarOp op) {
  const DType dtype = result_dtype(node);
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(first(node), at, dtype);
    if (dtype == DType::Bool) return op == ScalarOp::BitNot ? !x : x;
    return x.apply(op);
  });
  return true;
}

bool lower_predicate(Lowering& l, const Node& node, ScalarOp op) {
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(first(node), at);
    const bool of_floats = op == ScalarOp::IsNan || op == ScalarOp::IsInf;
    if (of_floats && !is_floating(x.dtype())) return l.constant_int(DType::Bool, 0);
    if (op == ScalarOp::SignBit && !is_floating(x.dtype())) return x < 0.0;
    return x.test(op);
  });
  return true;
}

bool lower_infinity(Lowering& l, const Node& node, ScalarOp op) {
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(first(node), at);
    if (!is_floating(x.dtype())) return l.constant_int(DType::Bool, 0);
    return x.test(ScalarOp::IsInf) & x.test(op, x.constant(0));
  });
  return true;
}

bool lower_isfinite(Lowering& l, const Node& node, ScalarOp) {
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(first(node), at);
    if (!is_floating(x.dtype())) return l.constant_int(DType::Bool, 1);
    return !(x.test(ScalarOp::IsInf) | is_nan(x));
  });
  return true;
}

bool lower_frac(Lowering& l, const Node& node, ScalarOp) {
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(first(node), at, result_dtype(node));
    return x - x.apply(ScalarOp::Trunc);
  });
  return true;
}

bool lower_square(Lowering& l, const Node& node, ScalarOp) {
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(first(node), at, result_dtype(node));
    return x * x;
  });
  return true;
}

bool lower_relu(Lowering& l, const Node& node, ScalarOp) {
  if (result_dtype(node) == DType::Bool) return false;
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(first(node), at);
    return maximum(x.constant(0), x);   // x, of two zeros
  });
  return true;
}

bool lower_nan_to_num(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node);
  for (const char* name : {"nan", "posinf", "neginf"})
    if (graph::is_unknown_number(node, name)) return false;
  double greatest = std::numeric_limits<double>::max();
  if (dtype == DType::F32) greatest = std::numeric_limits<float>::max();
  if (dtype == DType::BF16) greatest = 0x1.fep127;
  if (dtype == DType::F16) greatest = 65504;
  const double nan = graph::number(node, "nan").value_or(0);
  const double positive = graph::number(node, "posinf").value_or(greatest);
  const double negative = graph::number(node, "neginf").value_or(-greatest);
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(first(node), at);
    if (!is_floating(dtype)) return x;
    const Term infinite = x.test(ScalarOp::IsInf);
    return where(is_nan(x), nan, where(infinite & (x > 0.0), positive, where(infinite & (x < 0.0), negative, x)));
  });
  return true;
}

bool lower_logit(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node);
  const auto eps = graph::number(node, "eps");
  if (graph::is_unknown_number(node, "eps")) return false;
  l.pointwise(node, [&](const Indices& at) {
    Term x = l.operand(first(node), at, dtype);
    if (eps) {
      const Term low = x.constant(*eps), high = x.constant(1) - low;
      x = where(x < low, low, where(x > high, high, x));
    }
    return log(x / (1.0 - x));
  });
  return true;
}

bool lower_degrees(Lowering& l, const Node& node, ScalarOp) {
  const double factor =
      node.op->name == "aten.deg2rad" ? std::numbers::pi / 180.0 : 180.0 / std::numbers::pi;
  const DType dtype = result_dtype(node);
  const DType inner = compute_type(dtype);   // mul by a number
  l.pointwise(node, [&](const Indices& at) { return l.operand(first(node), at, dtype).cast(inner) * factor; });
  return true;
}

// To a power of ten: x * 10^d, rounded, and back.
bool lower_round_decimals(Lowering& l, const Node& node, ScalarOp op) {
  const DType dtype = result_dtype(node);
  const auto decimals = graph::integer(node, "decimals");
  if (!decimals || !is_floating(dtype)) return false;
  const double power = std::pow(10.0, static_cast<double>(std::abs(*decimals)));
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(first(node), at).cast(compute_type(dtype));
    return *decimals >= 0 ? (x * power).apply(op) / power : (x / power).apply(op) * power;
  });
  return true;
}

bool lower_sinc(Lowering& l, const Node& node, ScalarOp op) {
  const DType dtype = result_dtype(node), inner = compute_type(dtype);
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(first(node), at, dtype).cast(inner) * std::numbers::pi;
    return where(x == 0.0, 1.0, x.apply(op) / x);
  });
  return true;
}

bool lower_entr(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node);
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(first(node), at, dtype);
    const Term below = where(x == 0.0, 0.0, x.constant(-std::numeric_limits<double>::infinity()));
    return where(is_nan(x), x, where(x > 0.0, -x * log(x), below));
  });
  return true;
}

bool lower_copy(Lowering& l, const Node& node, ScalarOp) {
  l.pointwise(node, [&](const Indices& at) { return l.operand(first(node), at, result_dtype(node)); });
  return true;
}

bool lower_copy_into(Lowering& l, const Node& node, ScalarOp) {
  l.pointwise(node, [&](const Indices& at) { return l.operand(second(node), at, result_dtype(node)); });
  return true;
}

// ---- Two operands

namespace {

// a + alpha * b in one rounding, as ATen's vector kernel has it.
bool scaled_sum(Lowering& l, const Node& node, const Argument& a, const Argument& b, ScalarOp op) {
  const DType dtype = result_dtype(node);
  const Argument& alpha = node.argument("alpha");
  if (!graph::number(alpha)) return false;
  l.pointwise(node, [&](const Indices& at) {
    const Term x = l.operand(a, at, dtype), y = l.operand(b, at, dtype);
    if (dtype == DType::Bool) return x | (y & l.number(alpha, DType::Bool));
    if (is_one(alpha)) return x.apply(op, y);
    if (!is_floating(dtype)) return x.apply(op, y * l.number(alpha, dtype));
    const Term factor = l.number(alpha, dtype);
    return fma(y, op == ScalarOp::Sub ? -factor : factor, x);
  });
  return true;
}

}  // namespace

bool lower_add(Lowering& l, const Node& node, ScalarOp) {
  return scaled_sum(l, node, first(node), second(node), ScalarOp::Add);
}

bool lower_sub(Lowering& l, const Node& node, ScalarOp) {
  if (result_dtype(node) == DType::Bool) return false;
  return scaled_sum(l, node, first(node), second(node), ScalarOp::Sub);
}

bool lower_rsub(Lowering& l, const Node& node, ScalarOp) {
  if (result_dtype(node) == DType::Bool) return false;
  return scaled_sum(l, node, second(node), first(node), ScalarOp::Sub);
}

bool lower_mul(Lowering& l, const Node& node, ScalarOp) {
  return scalable_binary(l, node, [](Term a, Term b) { return a.dtype() == DType::Bool ? a & b : a * b; });
}

bool lower_div(Lowering& l, const Node& node, ScalarOp) {
  const bool has_mode = node.op->argument_index("rounding_mode") >= 0;
  const Argument none;
  const Argument& mode = has_mode ? node.argument("rounding_mode") : none;
  if (result_dtype(node) == DType::Bool) return false;
  if (mode.is_none())
    return scalable_binary(l, node, [](Term a, Term b) { return a / b; });
  const bool floor = mode.as<std::string>() == "floor";
  return scalable_binary(l, node, [&](Term a, Term b) {
    if (floor) return a.apply(ScalarOp::FloorDiv, b);
    return is_floating(a.dtype()) ? (a / b).apply(ScalarOp::Trunc) : a.apply(ScalarOp::TruncDiv, b);
  });
}

bool lower_floor_divide(Lowering& l, const Node& node, ScalarOp) {
  if (result_dtype(node) == DType::Bool) return false;
  return scalable_binary(l, node, [](Term a, Term b) { return a.apply(ScalarOp::FloorDiv, b); });
}

bool lower_binary(Lowering& l, const Node& node, ScalarOp op) {
  if (result_dtype(node) == DType::Bool) {
    switch (op) {
      case ScalarOp::BitAnd: case ScalarOp::BitOr: case ScalarOp::BitXor: break;
      case ScalarOp::Maximum: case ScalarOp::Fmax: op = ScalarOp::BitOr; break;
      case ScalarOp::Minimum: case ScalarOp::Fmin: op = ScalarOp::BitAnd; break;
      default: return false;
    }
  }
  // Of two zeros eager's fmax and fmin give the first, except where they convert bf16.
  const bool first_zero = (op == ScalarOp::Fmax || op == ScalarOp::Fmin) && result_dtype(node) != DType::BF16;
  return binary(l, node, [op, first_zero](Term a, Term b) { return first_zero ? b.apply(op, a) : a.apply(op, b); });
}

// In the operands' own precision: a neighbour in f32 is none in bf16.
bool lower_nextafter(Lowering& l, const Node& node, ScalarOp op) {
  return is_reduced_float(result_dtype(node)) ? false : lower_binary(l, node, op);
}

bool lower_shift(Lowering& l, const Node& node, ScalarOp op) {
  const DType dtype = result_dtype(node);
  if (dtype == DType::Bool) return false;
  const auto bits = static_cast<double>(size_of(dtype) * 8);
  return binary(l, node, [&](Term a, Term b) {
    const double limit = op == ScalarOp::ShiftLeft || dtype == DType::U8 ? bits : bits - 1;
    const Term outside = (b < 0.0) | (b >= limit);
    const Term inside = a.apply(op, where(outside, 0.0, b));
    if (op == ScalarOp::ShiftLeft || dtype == DType::U8) return where(outside, 0.0, inside);
    return where(outside, a.apply(op, b.constant(limit)), inside);
  });
}

bool lower_comparison(Lowering& l, const Node& node, ScalarOp op) {
  const DType dtype = l.common_dtype({&first(node), &second(node)});
  if (!is_kernel_dtype(dtype)) return false;
  l.pointwise(node, [&](const Indices& at) {
    return l.operand(first(node), at, dtype).test(op, l.operand(second(node), at, dtype));
  });
  return true;
}

bool lower_logical(Lowering& l, const Node& node, ScalarOp op) {
  l.pointwise(node, [&](const Indices& at) {
    return truth(l.operand(first(node), at)).apply(op, truth(l.operand(second(node), at)));
  });
  return true;
}

bool lower_pow_scalar(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node);
  const auto exponent = graph::number(second(node));
  if (!exponent || dtype == DType::Bool) return false;
  if (!is_floating(dtype) && *exponent < 0) return false;   // eager raises
  // ATen's f16 kernel is a plain pow in f32; the others know the roots.
  const bool half = dtype == DType::F16;
  l.pointwise(node, [&](const Indices& at) {
    const Term x = half ? l.operand(first(node), at, dtype).cast(DType::F32) : l.operand(first(node), at, dtype);
    if (*exponent == 0) return x.constant(1);
    if (*exponent == 1) return x;
    if (*exponent == 2) return x * x;
    if (*exponent == 3) return x * x * x;
    if (is_floating(dtype)) {
      if (*exponent == 0.5 && !half) return x.apply(ScalarOp::Sqrt);
      if (*exponent == -0.5 && !half) return x.apply(ScalarOp::Rsqrt);
      if (*exponent == -1) return x.apply(ScalarOp::Reciprocal);
      if (*exponent == -2) return (x * x).apply(ScalarOp::Reciprocal);
    }
    return x.apply(ScalarOp::Pow, l.number(second(node), dtype).cast(x.dtype()));
  });
  return true;
}

bool lower_pow(Lowering& l, const Node& node, ScalarOp op) {
  const DType dtype = result_dtype(node);
  if (dtype == DType::Bool) return false;
  if (!first(node).is<Value*>() && is_one(first(node))) {
    l.pointwise(node, [&](const Indices&) { return l.constant(dtype, 1); });
    return true;
  }
  return binary(l, node, [op](Term a, Term b) { return a.apply(op, b); });
}

namespace {

// Both operands in f32 for 16-bit floats, the result rounded once.
template <class F>
bool in_compute_type(Lowering& l, const Node& node, F&& f) {
  const DType dtype = result_dtype(node), inner = compute_type(dtype);
  l.pointwise(node, [&](const Indices& at) {
    return f(l.operand(first(node), at, dtype).cast(inner), l.operand(second(node), at, dtype).cast(inner));
  });
  return true;
}

}  // namespace

bool lower_logaddexp(Lowering& l, const Node& node, ScalarOp) {
  if (!is_floating(result_dtype(node))) return false;
  return in_compute_type(l, node, [](Term a, Term b) {
    const Term greater = maximum(a, b);
    const Term equal_infinities = a.test(ScalarOp::IsInf) & (a == b);
    return where(equal_infinities, a, greater + log1p(exp(-abs(a - b))));
  });
}

bool lower_logaddexp2(Lowering& l, const Node& node, ScalarOp) {
  if (!is_floating(result_dtype(node))) return false;
  return in_compute_type(l, node, [](Term a, Term b) {
    const Term greater = maximum(a, b);
    const Term equal_infinities = a.test(ScalarOp::IsInf) & (a == b);
    const Term rest = log1p((-abs(a - b)).apply(ScalarOp::Exp2)) * (1.0 / std::numbers::ln2);
    return where(equal_infinities, a, greater + rest);
  });
}

bool lower_xlogy(Lowering& l, const Node& node, ScalarOp op) {
  return binary(l, node, [op](Term x, Term y) {
    return where(is_nan(y), y, where(x == 0.0, 0.0, x * y.apply(op)));
  });
}

bool lower_heaviside(Lowering& l, const Node& node, ScalarOp) {
  if (result_dtype(node) == DType::Bool) return false;
  return binary(l, node, [](Term x, Term values) {
    return where(x == 0.0, values, where(x > 0.0, x.constant(1), x.constant(0)));
  });
}

// ---- Three operands and more

bool lower_where(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node);
  l.pointwise(node, [&](const Indices& at) {
    return where(truth(l.operand(first(node), at)), l.operand(second(node), at, dtype),
                 l.operand(node.arguments.at(2), at, dtype));
  });
  return true;
}

bool lower_masked_fill(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node);
  l.pointwise(node, [&](const Indices& at) {
    return where(truth(l.operand(second(node), at)), l.operand(node.arguments.at(2), at, dtype),
                 l.operand(first(node), at, dtype));
  });
  return true;
}

bool lower_fill(Lowering& l, const Node& node, ScalarOp) {
  l.pointwise(node, [&](const Indices& at) { return l.operand(second(node), at, result_dtype(node)); });
  return true;
}

bool lower_clamp(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node);
  if (dtype == DType::Bool) return false;
  const auto bound = [&](std::string_view name) -> const Argument* {
    if (node.op->argument_index(name) < 0) return nullptr;
    const Argument& argument = node.argument(name);
    const bool missing = argument.is_none() || (argument.is<Value*>() && argument.as<Value*>() == nullptr);
    return missing ? nullptr : &argument;
  };
  const Argument *low = bound("min"), *high = bound("max");
  l.pointwise(node, [&](const Indices& at) {
    Term x = l.operand(first(node), at, dtype);
    // Of two zeros the second operand is the result: x beside a number, as eager has it, and the bound beside a tensor.
    const auto bounded = [&](ScalarOp op, const Argument& argument) {
      const Term limit = l.operand(argument, at, dtype);
      return argument.is<Value*>() ? x.apply(op, limit) : limit.apply(op, x);
    };
    if (low != nullptr) x = bounded(ScalarOp::Maximum, *low);
    if (high != nullptr) x = bounded(ScalarOp::Minimum, *high);
    return x;
  });
  return true;
}

bool lower_addcmul(Lowering& l, const Node& node, ScalarOp op) {
  const DType dtype = result_dtype(node), inner = compute_type(dtype);
  if (dtype == DType::Bool || (op == ScalarOp::Div && !is_floating(dtype))) return false;
  const Argument& value = node.argument("value");
  l.pointwise(node, [&](const Indices& at) {
    const Term self = l.operand(first(node), at, dtype).cast(inner);
    const Term a = l.operand(second(node), at, dtype).cast(inner);
    const Term b = l.operand(node.arguments.at(2), at, dtype).cast(inner);
    const Term scaled = l.number(value, inner) * a;
    return self + scaled.apply(op, b);
  });
  return true;
}

// beta * self + alpha * the outer product; a beta of 0 leaves self unread.
bool lower_addr(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node);
  if (dtype == DType::Bool) return false;
  l.pointwise(node, [&](const Indices& at) {
    const Term a = l.operand(second(node), {at[0]}, dtype), b = l.operand(node.arguments.at(2), {at[1]}, dtype);
    const Term product = l.number(node, "alpha", dtype) * a * b;
    if (graph::number(node, "beta") == 0.0) return product;
    return l.number(node, "beta", dtype) * l.operand(first(node), at, dtype) + product;
  });
  return true;
}

bool lower_lerp(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node), inner = compute_type(dtype);
  if (!is_floating(dtype)) return false;
  const Argument& given = node.argument("weight");
  l.pointwise(node, [&](const Indices& at) {
    const Term start = l.operand(first(node), at, dtype).cast(inner);
    const Term end = l.operand(second(node), at, dtype).cast(inner);
    const Term weight = given.is<Value*>() ? l.operand(given, at, dtype).cast(inner) : l.number(given, inner);
    const Term difference = end - start;
    return where(abs(weight) < 0.5, fma(weight, difference, start), fma(weight - 1.0, difference, end));
  });
  return true;
}

}  // namespace braze::loop
