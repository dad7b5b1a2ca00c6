#include "braze/loop/arithmetic.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "braze/support/check.h"

namespace braze::loop {
namespace {

// A float rounded to `mantissa` stored bits (half to even), for bf16.
float round_bf16(float x) {
  if (std::isnan(x)) return std::bit_cast<float>(0x7fc00000u);
  uint32_t bits = std::bit_cast<uint32_t>(x);
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return std::bit_cast<float>(bits & 0xffff0000u);
}

// f16 has 10 stored mantissa bits, exponents down to 2^-14, then subnormals in steps of 2^-24.
float round_f16(float x) {
  if (std::isnan(x) || std::isinf(x) || x == 0) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int step = std::max(exponent - 11, -24);
  const double scaled = std::nearbyint(std::ldexp(static_cast<double>(x), -step));
  const double rounded = std::ldexp(scaled, step);
  if (std::fabs(rounded) > 65504.0) return std::copysign(std::numeric_limits<float>::infinity(), x);
  return static_cast<float>(rounded);
}

double round_real(DType dtype, double value) {
  switch (dtype) {
    case DType::F64: return value;
    case DType::F32: return static_cast<float>(value);
    case DType::BF16: return round_bf16(static_cast<float>(value));
    case DType::F16: return round_f16(static_cast<float>(value));
    default: break;   // the other floating types are in no kernel
  }
  CHECK(false, "no kernel type: " << text_of(dtype));
  return 0;
}

int64_t wrap(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::Bool: return value != 0;
    case DType::U8: return static_cast<uint8_t>(value);
    case DType::I8: return static_cast<int8_t>(value);
    case DType::I16: return static_cast<int16_t>(value);
    case DType::U16: return static_cast<uint16_t>(value);
    case DType::I32: return static_cast<int32_t>(value);
    case DType::U32: return static_cast<uint32_t>(value);
    default: return value;
  }
}

int mantissa_bits(DType dtype) {
  switch (dtype) {
    case DType::F64: return 53;
    case DType::F32: return 24;
    case DType::F16: return 11;
    case DType::BF16: return 8;
    default: return 0;
  }
}

// As the machine truncates: what does not fit becomes the lowest integer of 32 bits (64 for i64).
int64_t to_integer(DType dtype, double value) {
  const bool wide = size_of(dtype) == 8;
  const double limit = wide ? 9223372036854775808.0 : 2147483648.0;
  if (value > -limit - 1 && value < limit) return static_cast<int64_t>(value);
  return wide ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
}

int64_t integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  uint64_t result = 1, b = static_cast<uint64_t>(base);
  for (uint64_t e = static_cast<uint64_t>(exponent); e != 0; e >>= 1) {
    if (e & 1) result *= b;
    b *= b;
  }
  return static_cast<int64_t>(result);
}

int64_t compute_integer(ScalarOp op, DType dtype, std::span<const Number> v) {
  const auto a = v.empty() ? 0 : v[0].integer;
  const auto b = v.size() > 1 ? v[1].integer : 0;
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const auto checked = [&] {
    if (b == 0) throw std::domain_error("ZeroDivisionError");
  };
  switch (op) {
    case ScalarOp::Neg: return static_cast<int64_t>(0 - ua);
    case ScalarOp::Abs: return a < 0 ? static_cast<int64_t>(0 - ua) : a;
    case ScalarOp::Sign: return a > 0 ? 1 : (a < 0 ? -1 : 0);
    case ScalarOp::Floor: case ScalarOp::Ceil: case ScalarOp::Trunc: case ScalarOp::Round: return a;
    case ScalarOp::BitNot: return dtype == DType::Bool ? !a : ~a;
    case ScalarOp::Add: return static_cast<int64_t>(ua + ub);
    case ScalarOp::Sub: return static_cast<int64_t>(ua - ub);
    case ScalarOp::Mul: return static_cast<int64_t>(ua * ub);
    case ScalarOp::FloorDiv: {
      checked();
      if (b == -1) return static_cast<int64_t>(0 - ua);
      const int64_t q = a / b;
      return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
    }
    case ScalarOp::TruncDiv:
      checked();
      return b == -1 ? static_cast<int64_t>(0 - ua) : a / b;
    case ScalarOp::Remainder: {
      checked();
      if (b == -1) return 0;
      const int64_t r = a % b;
      return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
    }
    case ScalarOp::Fmod:
      checked();
      return b == -1 ? 0 : a % b;
    case ScalarOp::Pow: return integer_power(a, b);
    case ScalarOp::Minimum: case ScalarOp::Fmin: return a < b ? a : b;
    case ScalarOp::Maximum: case ScalarOp::Fmax: return a > b ? a : b;
    case ScalarOp::BitAnd: return a & b;
    case ScalarOp::BitOr: return a | b;
    case ScalarOp::BitXor: return a ^ b;
    case ScalarOp::ShiftLeft: return static_cast<int64_t>(ua << (ub & 63));
    case ScalarOp::ShiftRight: return a >> (ub & 63);
    default: break;
  }
  CHECK(false, text_of(op) << " has no integer form");
  return 0;
}

double floor_divide(double a, double b) {
  if (b == 0) return a / b;
  const double m = std::fmod(a, b);
  double q = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0, a / b);
  double f = std::floor(q);
  if (q - f > 0.5) f += 1;
  return f;
}

// In the type that eager computes in: float for f32 and below.
template <class T>
double compute_real(ScalarOp op, std::span<const Number> v) {
  const T a = v.empty() ? T(0) : static_cast<T>(v[0].real);
  const T b = v.size() > 1 ? static_cast<T>(v[1].real) : T(0);
  const auto nan = std::numeric_limits<T>::quiet_NaN();
  switch (op) {
    case ScalarOp::Neg: return -a;
    case ScalarOp::Abs: return std::fabs(a);
    case ScalarOp::Sign: return a > 0 ? 1 : (a < 0 ? -1 : T(0));
    case ScalarOp::Floor: return std::floor(a);
    case ScalarOp::Ceil: return std::ceil(a);
    case ScalarOp::Trunc: return std::trunc(a);
    case ScalarOp::Round: return std::nearbyint(a);
    case ScalarOp::Sqrt: return std::sqrt(a);
    case ScalarOp::Rsqrt: return T(1) / std::sqrt(a);
    case ScalarOp::Reciprocal: return T(1) / a;
    case ScalarOp::Exp: return std::exp(a);
    case ScalarOp::Exp2: return std::exp2(a);
    case ScalarOp::Expm1: return std::expm1(a);
    case ScalarOp::Log: return std::log(a);
    case ScalarOp::Log2: return std::log2(a);
    case ScalarOp::Log10: return std::log10(a);
    case ScalarOp::Log1p: return std::log1p(a);
    case ScalarOp::Sin: return std::sin(a);
    case ScalarOp::Cos: return std::cos(a);
    case ScalarOp::Tan: return std::tan(a);
    case ScalarOp::Asin: return std::asin(a);
    case ScalarOp::Acos: return std::acos(a);
    case ScalarOp::Atan: return std::atan(a);
    case ScalarOp::Sinh: return std::sinh(a);
    case ScalarOp::Cosh: return std::cosh(a);
    case ScalarOp::Tanh: return std::tanh(a);
    case ScalarOp::Asinh: return std::asinh(a);
    case ScalarOp::Acosh: return std::acosh(a);
    case ScalarOp::Atanh: return std::atanh(a);
    case ScalarOp::Erf: return std::erf(a);
    case ScalarOp::Erfc: return std::erfc(a);
    case ScalarOp::Sigmoid: return T(1) / (T(1) + std::exp(-a));
    case ScalarOp::Add: return a + b;
    case ScalarOp::Sub: return a - b;
    case ScalarOp::Mul: return a * b;
    case ScalarOp::Div: return a / b;
    case ScalarOp::FloorDiv: return floor_divide(a, b);
    case ScalarOp::TruncDiv: return std::trunc(a / b);
    case ScalarOp::Remainder: {
      const T m = std::fmod(a, b);
      return (m != 0 && (b < 0) != (m < 0)) ? m + b : m;
    }
    case ScalarOp::Fmod: return std::fmod(a, b);
    case ScalarOp::Pow: return std::pow(a, b);
    case ScalarOp::Atan2: return std::atan2(a, b);
    case ScalarOp::Hypot: return std::hypot(a, b);
    case ScalarOp::CopySign: return std::copysign(a, b);
    case ScalarOp::NextAfter: return std::nextafter(a, b);
    // Of two zeros the second, as the kernels do.
    case ScalarOp::Minimum: return std::isnan(a) || std::isnan(b) ? nan : (a < b ? a : b);
    case ScalarOp::Maximum: return std::isnan(a) || std::isnan(b) ? nan : (a > b ? a : b);
    case ScalarOp::Fmin: return std::isnan(b) || a < b ? a : b;
    case ScalarOp::Fmax: return std::isnan(b) || a > b ? a : b;
    case ScalarOp::Fma: return std::fma(a, b, static_cast<T>(v[2].real));
    default: break;
  }
  CHECK(false, text_of(op) << " has no floating form");
  return 0;
}

bool compute_predicate(ScalarOp op, DType operand_dtype, std::span<const Number> v) {
  const bool real = is_floating(operand_dtype);
  const auto compare = [&](auto a, auto b) {
    switch (op) {
      case ScalarOp::Eq: return a == b;
      case ScalarOp::Ne: return a != b;
      case ScalarOp::Lt: return a < b;
      case ScalarOp::Le: return a <= b;
      case ScalarOp::Gt: return a > b;
      case ScalarOp::Ge: return a >= b;
      default: break;
    }
    CHECK(false, text_of(op) << " is no comparison");
    return false;
  };
  switch (op) {
    case ScalarOp::IsNan: return real && std::isnan(v[0].real);
    case ScalarOp::IsInf: return real && std::isinf(v[0].real);
    case ScalarOp::SignBit: return real ? std::signbit(v[0].real) : v[0].integer < 0;
    case ScalarOp::LogicalNot: return !is_true(v[0], operand_dtype);
    default: break;
  }
  return real ? compare(v[0].real, v[1].real) : compare(v[0].integer, v[1].integer);
}

bool gives_predicate(ScalarOp op) {
  switch (op) {
    case ScalarOp::IsNan: case ScalarOp::IsInf: case ScalarOp::SignBit: case ScalarOp::LogicalNot: case ScalarOp::Eq:
    case ScalarOp::Ne: case ScalarOp::Lt: case ScalarOp::Le: case ScalarOp::Gt: case ScalarOp::Ge:
      return true;
    default: return false;
  }
}

}  // namespace

Number number_of(DType dtype, double value) {
  if (is_floating(dtype)) return {.real = round_real(dtype, value)};
  if (dtype == DType::Bool) return {.integer = value != 0};
  return {.integer = wrap(dtype, to_integer(dtype, value))};
}

Number number_of_int(DType dtype, int64_t value) {
  if (!is_floating(dtype)) return {.integer = wrap(dtype, value)};
  // One rounding from the integer to f32, as static_cast<float> does; by way of double there would be two.
  if (dtype != DType::F64) return {.real = round_real(dtype, static_cast<float>(value))};
  return {.real = static_cast<double>(value)};
}

double as_double(Number number, DType dtype) {
  return is_floating(dtype) ? number.real : static_cast<double>(number.integer);
}

bool is_true(Number number, DType dtype) {
  return is_floating(dtype) ? number.real != 0 : number.integer != 0;
}

Number convert(Number number, DType from, DType to) {
  return is_floating(from) ? number_of(to, number.real) : number_of_int(to, number.integer);
}

Number bitcast(Number number, DType from, DType to) {
  uint64_t bits = 0;
  switch (from) {
    case DType::F64: bits = std::bit_cast<uint64_t>(number.real); break;
    case DType::F32: bits = std::bit_cast<uint32_t>(static_cast<float>(number.real)); break;
    case DType::BF16: bits = std::bit_cast<uint32_t>(static_cast<float>(number.real)) >> 16; break;
    case DType::F16: {
      const auto x = static_cast<_Float16>(number.real);
      uint16_t half;
      std::memcpy(&half, &x, 2);
      bits = half;
      break;
    }
    default: bits = static_cast<uint64_t>(number.integer);
  }
  switch (to) {
    case DType::F64: return {.real = std::bit_cast<double>(bits)};
    case DType::F32: return {.real = std::bit_cast<float>(static_cast<uint32_t>(bits))};
    case DType::BF16: return {.real = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16)};
    case DType::F16: {
      const auto half = static_cast<uint16_t>(bits);
      _Float16 x;
      std::memcpy(&x, &half, 2);
      return {.real = static_cast<double>(x)};
    }
    default: return {.integer = wrap(to, static_cast<int64_t>(bits))};
  }
}

Number compute(ScalarOp op, DType dtype, DType operand_dtype, std::span<const Number> operands) {
  if (op == ScalarOp::Cast) return convert(operands[0], operand_dtype, dtype);
  if (op == ScalarOp::Bitcast) return bitcast(operands[0], operand_dtype, dtype);
  if (op == ScalarOp::Where) return operands[0].integer != 0 ? operands[1] : operands[2];
  if (gives_predicate(op)) return {.integer = compute_predicate(op, operand_dtype, operands)};
  if (!is_floating(dtype)) return {.integer = wrap(dtype, compute_integer(op, dtype, operands))};
  if (dtype == DType::F64) return {.real = compute_real<double>(op, operands)};
  return {.real = round_real(dtype, compute_real<float>(op, operands))};
}

bool represents_all(DType to, DType from) {
  if (to == from || from == DType::Bool) return true;
  if (to == DType::Bool) return false;
  const int64_t from_bits = size_of(from) * 8, to_bits = size_of(to) * 8;
  const auto is_unsigned = [](DType d) {
    return d == DType::U8 || d == DType::U16 || d == DType::U32 || d == DType::U64;
  };
  if (is_floating(from)) {
    if (!is_floating(to)) return false;
    return to == DType::F64 || (to == DType::F32 && from != DType::F64);
  }
  if (is_floating(to)) return from_bits - (is_unsigned(from) ? 0 : 1) <= mantissa_bits(to);
  if (is_unsigned(from)) return is_unsigned(to) ? to_bits >= from_bits : to_bits > from_bits;
  return !is_unsigned(to) && to_bits >= from_bits;
}

bool is_kernel_dtype(DType dtype) {
  switch (dtype) {
    case DType::Bool: case DType::U8: case DType::I8: case DType::I16: case DType::I32: case DType::I64:
    case DType::F16: case DType::BF16: case DType::F32: case DType::F64:
      return true;
    default: return false;
  }
}

}  // namespace braze::loop
