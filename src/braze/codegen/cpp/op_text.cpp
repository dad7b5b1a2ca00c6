#include "braze/codegen/cpp/op_text.h"

#include <algorithm>

#include "braze/codegen/cpp/registers.h"
#include "braze/support/check.h"

namespace braze::codegen {

namespace {

using loop::ReduceOp;
using loop::Scalar;
using loop::ScalarOp;

bool is_wide(Register r) { return r == Register::Double || r == Register::Long || r == Register::UnsignedLong; }
bool is_float(Register r) { return r == Register::Float || r == Register::Double; }
bool is_unsigned(Register r) { return r == Register::Unsigned || r == Register::UnsignedLong; }

// A comparison of vectors as a VI mask.
std::string mask_of(Register r, const std::string& comparison) {
  return is_wide(r) ? "mask_d(" + comparison + ")" : comparison;
}

std::string call(const std::string& name, Register r, std::span<const std::string> operands,
                 const std::string& more = {}) {
  std::string text = name + "_" + suffix_of(r) + "(";
  for (size_t i = 0; i < operands.size(); ++i) text += (i == 0 ? "" : ", ") + operands[i];
  return text + more + ")";
}

std::string infix(const std::string& a, const char* op, const std::string& b) {
  return "(" + a + " " + op + " " + b + ")";
}

std::string comparison(ScalarOp op, Register r, const std::string& a, const std::string& b) {
  const bool boolean = r == Register::Mask;
  switch (op) {
    case ScalarOp::Eq: return boolean ? "~(" + a + " ^ " + b + ")" : mask_of(r, infix(a, "==", b));
    case ScalarOp::Ne: return boolean ? infix(a, "^", b) : mask_of(r, infix(a, "!=", b));
    case ScalarOp::Lt: return boolean ? infix("~" + a, "&", b) : mask_of(r, infix(a, "<", b));
    case ScalarOp::Le: return boolean ? infix("~" + a, "|", b) : mask_of(r, infix(a, "<=", b));
    case ScalarOp::Gt: return boolean ? infix(a, "& ~", b) : mask_of(r, infix(a, ">", b));
    default: return boolean ? infix(a, "| ~", b) : mask_of(r, infix(a, ">=", b));
  }
}

// Integer types narrower than their register form are exact in it; the result is wrapped by the caller.
std::string division(const Scalar& s, Register r, std::span<const std::string> v, const std::string& live) {
  const char* name = s.op == ScalarOp::FloorDiv    ? "floor_div"
                     : s.op == ScalarOp::TruncDiv  ? "trunc_div"
                     : s.op == ScalarOp::Remainder ? "remainder"
                                                   : "fmod";
  if (!is_float(r)) return call(name, r, v, ", " + live + ", error");
  if (s.op == ScalarOp::TruncDiv) return call("trunc", r, std::vector<std::string>{infix(v[0], "/", v[1])});
  return call(name, r, v);
}

int bits_of(DType dtype) { return static_cast<int>(8 * size_of(dtype)); }

std::string raw_text(const Scalar& s, std::span<const std::string> v, const std::string& live) {
  const Register r = s.operands.empty() ? register_of(s.dtype) : register_of(s.operands[0]->dtype);
  const bool boolean = r == Register::Mask;
  switch (s.op) {
    case ScalarOp::Constant: case ScalarOp::Index: case ScalarOp::Load: case ScalarOp::Reduced: break;
    case ScalarOp::Cast: return cast_text(v[0], s.operands[0]->dtype, s.dtype);
    case ScalarOp::Bitcast:
      return "in_" + text_suffix(s.dtype) + "(out_" + text_suffix(s.operands[0]->dtype) + "(" + v[0] + "))";
    case ScalarOp::Neg: return is_float(r) ? call("neg", r, v) : "(-" + v[0] + ")";
    case ScalarOp::Abs: return boolean || is_unsigned(r) ? v[0] : call("abs", r, v);
    case ScalarOp::Sign:
      if (boolean) return v[0];
      if (is_unsigned(r)) return std::string("(") + vector_type(r) + ")((" + v[0] + " != 0) & 1)";
      return call("sign", r, v);
    case ScalarOp::Floor: return is_float(r) ? call("floor", r, v) : v[0];
    case ScalarOp::Ceil: return is_float(r) ? call("ceil", r, v) : v[0];
    case ScalarOp::Trunc: return is_float(r) ? call("trunc", r, v) : v[0];
    case ScalarOp::Round: return is_float(r) ? call("round", r, v) : v[0];
    case ScalarOp::Rsqrt: return (r == Register::Double ? "(1. / " : "(1.f / ") + call("sqrt", r, v) + ")";
    case ScalarOp::Reciprocal: return (r == Register::Double ? "(1. / " : "(1.f / ") + v[0] + ")";
    case ScalarOp::Sqrt: case ScalarOp::Exp: case ScalarOp::Exp2: case ScalarOp::Expm1: case ScalarOp::Log:
    case ScalarOp::Log2: case ScalarOp::Log10: case ScalarOp::Log1p: case ScalarOp::Sin: case ScalarOp::Cos:
    case ScalarOp::Tan: case ScalarOp::Asin: case ScalarOp::Acos: case ScalarOp::Atan: case ScalarOp::Sinh:
    case ScalarOp::Cosh: case ScalarOp::Tanh: case ScalarOp::Asinh: case ScalarOp::Acosh: case ScalarOp::Atanh:
    case ScalarOp::Erf: case ScalarOp::Erfc: case ScalarOp::Sigmoid: case ScalarOp::Pow: case ScalarOp::Atan2:
    case ScalarOp::Hypot: case ScalarOp::CopySign: case ScalarOp::NextAfter:
      return call(loop::text_of(s.op), r, v);
    case ScalarOp::IsNan: return is_float(r) ? mask_of(r, infix(v[0], "!=", v[0])) : "set_i(0)";
    case ScalarOp::IsInf:
      if (!is_float(r)) return "set_i(0)";
      return mask_of(r, infix(call("abs", r, v), "==", r == Register::Float ? "__builtin_inff()" : "__builtin_inf()"));
    case ScalarOp::SignBit:
      if (r == Register::Float) return "((VI)" + v[0] + " < 0)";
      if (r == Register::Double) return "mask_d((VL)" + v[0] + " < 0)";
      return boolean || is_unsigned(r) ? "set_i(0)" : mask_of(r, infix(v[0], "<", "0"));
    case ScalarOp::LogicalNot: return boolean ? "~" + v[0] : mask_of(r, infix(v[0], "==", "0"));
    case ScalarOp::BitNot: return "~" + v[0];
    case ScalarOp::Add: return infix(v[0], boolean ? "|" : "+", v[1]);
    case ScalarOp::Sub: return infix(v[0], boolean ? "^" : "-", v[1]);
    case ScalarOp::Mul: return infix(v[0], boolean ? "&" : "*", v[1]);
    case ScalarOp::Div: return infix(v[0], "/", v[1]);
    case ScalarOp::FloorDiv: case ScalarOp::TruncDiv: case ScalarOp::Remainder: case ScalarOp::Fmod:
      return division(s, r, v, live);
    case ScalarOp::Minimum: return boolean ? infix(v[0], "&", v[1]) : call("min", r, v);
    case ScalarOp::Maximum: return boolean ? infix(v[0], "|", v[1]) : call("max", r, v);
    case ScalarOp::Fmin: return boolean ? infix(v[0], "&", v[1]) : call(is_float(r) ? "fmin" : "min", r, v);
    case ScalarOp::Fmax: return boolean ? infix(v[0], "|", v[1]) : call(is_float(r) ? "fmax" : "max", r, v);
    case ScalarOp::Eq: case ScalarOp::Ne: case ScalarOp::Lt: case ScalarOp::Le: case ScalarOp::Gt: case ScalarOp::Ge:
      return comparison(s.op, r, v[0], v[1]);
    case ScalarOp::BitAnd: return infix(v[0], "&", v[1]);
    case ScalarOp::BitOr: return infix(v[0], "|", v[1]);
    case ScalarOp::BitXor: return infix(v[0], "^", v[1]);
    case ScalarOp::ShiftLeft: return call("shl", r, v, ", " + std::to_string(bits_of(s.dtype)));
    case ScalarOp::ShiftRight: return call("shr", r, v, ", " + std::to_string(bits_of(s.dtype)));
    case ScalarOp::Where: return call("sel", register_of(s.dtype), v);
    case ScalarOp::Fma: return call("fma1", r, v);
  }
  CHECK(false, "no text for scalar op " << loop::text_of(s.op));
  return {};
}

// Ops whose result has the operands' precision already.
bool is_exact_in_dtype(ScalarOp op) {
  switch (op) {
    case ScalarOp::Cast: case ScalarOp::Bitcast:   // fitted by cast_text, or bits
    case ScalarOp::Abs: case ScalarOp::Sign: case ScalarOp::Floor: case ScalarOp::Ceil: case ScalarOp::Trunc:
    case ScalarOp::Round: case ScalarOp::Minimum: case ScalarOp::Maximum: case ScalarOp::Fmin: case ScalarOp::Fmax:
    case ScalarOp::Where: case ScalarOp::CopySign: case ScalarOp::BitAnd: case ScalarOp::BitOr: case ScalarOp::BitXor:
    case ScalarOp::ShiftRight:
      return true;
    default: return false;
  }
}

// Whether a NaN that the value may be has a zero lower half: one of bf16, or the machine's own, handed on by arithmetic.
bool has_bf16_nan(const Scalar& s, int depth) {
  if (s.dtype == DType::BF16) return true;   // rounded already
  if (s.dtype != DType::F32 || depth > 6) return false;
  switch (s.op) {
    case ScalarOp::Constant: return true;
    case ScalarOp::Cast: return s.operands[0]->dtype == DType::BF16 || !is_floating(s.operands[0]->dtype);
    case ScalarOp::Add: case ScalarOp::Sub: case ScalarOp::Mul: case ScalarOp::Div: case ScalarOp::Sqrt: case ScalarOp::Rsqrt:
    case ScalarOp::Reciprocal: case ScalarOp::Neg: case ScalarOp::Abs:
      for (const Scalar* operand : s.operands)
        if (!has_bf16_nan(*operand, depth + 1)) return false;
      return true;
    default: return false;
  }
}

bool is_arithmetic(ScalarOp op) {
  switch (op) {
    case ScalarOp::Add: case ScalarOp::Sub: case ScalarOp::Mul: case ScalarOp::Div: case ScalarOp::Sqrt: case ScalarOp::Rsqrt:
    case ScalarOp::Reciprocal:
      return true;
    default: return false;
  }
}

// A result of bf16 whose rounding need not look for NaN.
bool rounds_plainly(const Scalar& s) {
  if (s.dtype != DType::BF16) return false;
  if (s.op == ScalarOp::Cast) return s.operands[0]->dtype == DType::F32 && has_bf16_nan(*s.operands[0], 1);
  return is_arithmetic(s.op) && std::ranges::all_of(s.operands, [](const Scalar* operand) { return has_bf16_nan(*operand, 1); });
}

}  // namespace

std::string op_text(const Scalar& s, std::span<const std::string> operands, const std::string& live) {
  if (s.op == ScalarOp::Cast && rounds_plainly(s)) return "rnn_bf16(" + operands[0] + ")";
  const std::string raw = raw_text(s, operands, live);
  if (is_exact_in_dtype(s.op) && !(s.op == ScalarOp::Abs && is_integral(s.dtype, false))) return raw;
  if (s.op == ScalarOp::Neg && is_floating(s.dtype)) return raw;
  if (rounds_plainly(s)) return "rnn_bf16(" + raw + ")";
  return fit_text(raw, s.dtype);
}

std::string combine_text(ReduceOp op, DType dtype, const std::string& a, const std::string& b) {
  const Register r = register_of(dtype);
  const bool boolean = r == Register::Mask;
  const std::vector<std::string> both = {a, b};
  switch (op) {
    case ReduceOp::Sum: return fit_text(infix(a, boolean ? "|" : "+", b), dtype);
    case ReduceOp::Prod: return fit_text(infix(a, boolean ? "&" : "*", b), dtype);
    case ReduceOp::Max: return boolean ? infix(a, "|", b) : call("max", r, both);
    case ReduceOp::Min: return boolean ? infix(a, "&", b) : call("min", r, both);
    case ReduceOp::Any: return infix(a, "|", b);
    case ReduceOp::All: return infix(a, "&", b);
    case ReduceOp::Xor: return infix(a, "^", b);
    case ReduceOp::ArgMax: case ReduceOp::ArgMin: break;
  }
  CHECK(false, "an index of an extreme is no simple step");
  return {};
}

std::string neutral_text(ReduceOp op, DType dtype) {
  const Register r = register_of(dtype);
  auto extreme = [&](bool low) -> std::string {
    switch (r) {
      case Register::Float: return low ? "set_f(-__builtin_inff())" : "set_f(__builtin_inff())";
      case Register::Double: return low ? "set_d(-__builtin_inf())" : "set_d(__builtin_inf())";
      case Register::Int: return low ? "set_i(-2147483647 - 1)" : "set_i(2147483647)";
      case Register::Unsigned: return low ? "set_u(0)" : "set_u(0xffffffffu)";
      case Register::Long: return low ? "set_l(-0x7fffffffffffffffl - 1)" : "set_l(0x7fffffffffffffffl)";
      case Register::UnsignedLong: return low ? "set_k(0)" : "set_k(0xfffffffffffffffful)";
      case Register::Mask: return low ? "set_i(0)" : "set_i(-1)";
    }
    return {};
  };
  switch (op) {
    case ReduceOp::Sum: case ReduceOp::Xor: return constant_text(dtype, 0, 0);
    case ReduceOp::Prod: return constant_text(dtype, 1, 1);
    case ReduceOp::Max: case ReduceOp::ArgMax: return extreme(true);
    case ReduceOp::Min: case ReduceOp::ArgMin: return extreme(false);
    case ReduceOp::Any: return "set_i(0)";
    case ReduceOp::All: return "set_i(-1)";
  }
  return {};
}

int weight_of(const Scalar& s) {
  const int rounding = is_reduced_float(s.dtype) ? 5 : 0;
  switch (s.op) {
    case ScalarOp::Exp: case ScalarOp::Log: case ScalarOp::Sigmoid: case ScalarOp::Tanh: case ScalarOp::Sin:
    case ScalarOp::Cos:
      return kHeavy + rounding;
    case ScalarOp::Exp2: case ScalarOp::Expm1: case ScalarOp::Log2: case ScalarOp::Log10: case ScalarOp::Log1p:
    case ScalarOp::Tan: case ScalarOp::Asin: case ScalarOp::Acos: case ScalarOp::Atan: case ScalarOp::Sinh:
    case ScalarOp::Cosh: case ScalarOp::Asinh: case ScalarOp::Acosh: case ScalarOp::Atanh: case ScalarOp::Erf:
    case ScalarOp::Erfc: case ScalarOp::Pow: case ScalarOp::Atan2: case ScalarOp::Hypot: case ScalarOp::NextAfter:
    case ScalarOp::FloorDiv: case ScalarOp::TruncDiv: case ScalarOp::Remainder: case ScalarOp::Fmod:
      return 2 * kHeavy + rounding;
    case ScalarOp::Constant: case ScalarOp::Reduced: return 0;
    case ScalarOp::Load: return 1;
    default: return (size_of(s.dtype) == 8 ? 2 : 1) + rounding;
  }
}

}  // namespace braze::codegen
