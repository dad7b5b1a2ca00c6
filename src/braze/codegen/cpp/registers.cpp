#include "braze/codegen/cpp/registers.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "braze/support/check.h"

namespace braze::codegen {

Register register_of(DType dtype) {
  switch (dtype) {
    case DType::F16: case DType::BF16: case DType::F32: return Register::Float;
    case DType::F64: return Register::Double;
    case DType::U8: case DType::I8: case DType::I16: case DType::U16: case DType::I32: return Register::Int;
    case DType::U32: return Register::Unsigned;
    case DType::I64: return Register::Long;
    case DType::U64: return Register::UnsignedLong;
    case DType::Bool: return Register::Mask;
    default: break;
  }
  CHECK(false, "no generated kernel holds " << text_of(dtype));
  return Register::Float;
}

const char* vector_type(Register r) {
  switch (r) {
    case Register::Float: return "VF";
    case Register::Double: return "VD";
    case Register::Int: case Register::Mask: return "VI";
    case Register::Unsigned: return "VU";
    case Register::Long: return "VL";
    case Register::UnsignedLong: return "VK";
  }
  return "";
}

const char* element_type(Register r) {
  switch (r) {
    case Register::Float: return "float";
    case Register::Double: return "double";
    case Register::Int: case Register::Mask: return "int";
    case Register::Unsigned: return "unsigned";
    case Register::Long: return "long";
    case Register::UnsignedLong: return "unsigned long";
  }
  return "";
}

char suffix_of(Register r) {
  switch (r) {
    case Register::Float: return 'f';
    case Register::Double: return 'd';
    case Register::Int: return 'i';
    case Register::Unsigned: return 'u';
    case Register::Long: return 'l';
    case Register::UnsignedLong: return 'k';
    case Register::Mask: return 'm';
  }
  return 0;
}

const char* storage_type(DType dtype) {
  switch (dtype) {
    case DType::Bool: case DType::U8: return "unsigned char";
    case DType::I8: return "signed char";
    case DType::I16: return "short";
    case DType::U16: case DType::F16: case DType::BF16: return "unsigned short";
    case DType::I32: return "int";
    case DType::U32: return "unsigned";
    case DType::I64: return "long";
    case DType::U64: return "unsigned long";
    case DType::F32: return "float";
    case DType::F64: return "double";
    default: break;
  }
  CHECK(false, "no generated kernel stores " << text_of(dtype));
  return "";
}

std::string text_suffix(DType dtype) { return std::string(text_of(dtype)); }

bool is_reduced_float(DType dtype) { return dtype == DType::BF16 || dtype == DType::F16; }

std::string fit_text(const std::string& value, DType dtype) {
  switch (dtype) {
    case DType::BF16: return "rnd_bf16(" + value + ")";
    case DType::F16: return "rnd_f16(" + value + ")";
    case DType::U8: return "((" + value + ") & 255)";
    case DType::U16: return "((" + value + ") & 65535)";
    case DType::I8: return "wrap_i8(" + value + ")";
    case DType::I16: return "wrap_i16(" + value + ")";
    default: return value;
  }
}

namespace {

std::string convert(const std::string& value, const char* type) {
  return "__builtin_convertvector(" + value + ", " + type + ")";
}

bool narrower(DType to, DType from) {   // may a value of `from` not fit into `to`?
  if (to == from) return false;
  if (to == DType::BF16 || to == DType::F16) return true;
  const bool small = to == DType::U8 || to == DType::I8 || to == DType::U16 || to == DType::I16;
  if (!small || from == DType::Bool) return false;
  if (from == DType::U8 && (to == DType::U16 || to == DType::I16)) return false;
  return !(from == DType::I8 && to == DType::I16);
}

// Between register forms, without fitting.
std::string convert_register(const std::string& value, Register from, Register to, DType to_dtype) {
  if (from == to) return value;
  const char* type = vector_type(to);
  if (to == Register::Mask) {
    const std::string test = "(" + value + " != 0)";
    const bool wide = from == Register::Double || from == Register::Long || from == Register::UnsignedLong;
    return wide ? convert(test, "VI") : test;
  }
  if (from == Register::Mask) {
    if (to == Register::Float) return "(VF)(" + value + " & 0x3f800000)";
    if (to == Register::Int) return "(" + value + " & 1)";
    return convert("(" + value + " & 1)", type);
  }
  const bool floating = from == Register::Float || from == Register::Double;
  // PyTorch converts floats to unsigned types by way of int64.
  if (floating && (to_dtype == DType::U8 || to == Register::Unsigned)) return convert(convert(value, "VL"), type);
  return convert(value, type);
}

std::string real_text(double value, bool single) {
  const char* suffix = single ? "f" : "";
  if (std::isnan(value)) return single ? "__builtin_nanf(\"\")" : "__builtin_nan(\"\")";
  if (std::isinf(value)) return std::string(value < 0 ? "-" : "") + (single ? "__builtin_inff()" : "__builtin_inf()");
  char text[64];
  std::snprintf(text, sizeof text, single ? "%.9g" : "%.17g", value);
  std::string result = text;
  if (result.find_first_of(".e") == std::string::npos) result += ".0";
  return result + suffix;
}

// To bf16 and back, half to even. NaN and infinity are kept.
double round_to_bf16(double value) {
  if (std::isnan(value) || std::isinf(value)) return value;
  const float single = static_cast<float>(value);
  uint32_t bits;
  static_assert(sizeof bits == sizeof single);
  __builtin_memcpy(&bits, &single, sizeof bits);
  bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
  float result;
  __builtin_memcpy(&result, &bits, sizeof result);
  return static_cast<double>(result);
}

double round_to_f16(double value) {
  const double single = static_cast<double>(static_cast<float>(value));
  if (std::isnan(single) || std::isinf(single) || single == 0) return single;
  int exponent = 0;
  std::frexp(single, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 11, -24));
  const double rounded = std::nearbyint(single / unit) * unit;
  return std::fabs(rounded) > 65504 ? std::copysign(std::numeric_limits<double>::infinity(), single) : rounded;
}

}  // namespace

std::string cast_text(const std::string& value, DType from, DType to) {
  const std::string converted = convert_register(value, register_of(from), register_of(to), to);
  return narrower(to, from) ? fit_text(converted, to) : converted;
}

std::string constant_text(DType dtype, double real, int64_t integer) {
  switch (register_of(dtype)) {
    case Register::Float:
      if (dtype == DType::BF16) real = round_to_bf16(real);
      if (dtype == DType::F16) real = round_to_f16(real);
      return "set_f(" + real_text(real, true) + ")";
    case Register::Double: return "set_d(" + real_text(real, false) + ")";
    case Register::Int: return "set_i((int)" + std::to_string(static_cast<int32_t>(integer)) + ")";
    case Register::Unsigned: return "set_u(" + std::to_string(static_cast<uint32_t>(integer)) + "u)";
    case Register::Long:
      return integer == std::numeric_limits<int64_t>::min() ? "set_l(-9223372036854775807l - 1)"
                                                            : "set_l(" + std::to_string(integer) + "l)";
    case Register::UnsignedLong: return "set_k(" + std::to_string(static_cast<uint64_t>(integer)) + "ul)";
    case Register::Mask: return integer != 0 ? "set_i(-1)" : "set_i(0)";
  }
  return {};
}

}  // namespace braze::codegen
