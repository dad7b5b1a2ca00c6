#include "braze/graph/type_rules/promotion.h"

namespace braze::graph {
namespace {

TensorType weak(DType dtype) {
  TensorType t;
  t.dtype = dtype;
  t.wrapped_number = true;
  return t;
}

std::optional<DType> join(std::optional<DType> a, std::optional<DType> b) {
  if (!a) return b;
  if (!b) return a;
  return try_promote(*a, *b).value_or(DType::Other);
}

// The lower category counts only where its kind is higher.
std::optional<DType> combine(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher) return lower;
  if (!lower) return higher;
  if (is_complex(*higher)) return higher;
  if (is_floating(*higher)) return is_complex(*lower) ? complex_of(*higher) : *higher;
  if (*higher == DType::Bool || is_floating(*lower) || is_complex(*lower)) return join(higher, lower);
  return higher;
}

}  // namespace

const TensorType* number_type(const Argument& argument) {
  static const TensorType kInt = weak(DType::I64), kReal = weak(DType::F64), kBool = weak(DType::Bool),
                          kComplex = weak(DType::C128);
  if (argument.is<Expr>()) return &kInt;
  if (argument.is<double>()) return &kReal;
  if (argument.is<bool>()) return &kBool;
  if (argument.is<std::complex<double>>()) return &kComplex;
  return nullptr;
}

DType default_complex(DType default_dtype) {
  if (default_dtype == DType::F64) return DType::C128;
  return default_dtype == DType::F16 ? DType::C32 : DType::C64;
}

DType real_of(DType dtype) {
  switch (dtype) {
    case DType::C32:
      return DType::F16;
    case DType::C64:
      return DType::F32;
    case DType::C128:
      return DType::F64;
    default:
      return dtype;
  }
}

DType complex_of(DType dtype) {
  switch (dtype) {
    case DType::F16:
      return DType::C32;
    case DType::F64:
      return DType::C128;
    default:
      return is_complex(dtype) ? dtype : DType::C64;
  }
}

DType result_dtype(const Call& call, std::span<const TensorType* const> operands) {
  std::optional<DType> dimensioned, zero_dim, number;
  for (const TensorType* t : operands) {
    DType dtype = t->dtype;
    if (t->wrapped_number) {
      if (is_complex(dtype))
        dtype = default_complex(call.default_dtype);
      else if (is_floating(dtype))
        dtype = call.default_dtype;
    }
    std::optional<DType>& category = !t->sizes.empty() ? dimensioned : t->wrapped_number ? number : zero_dim;
    category = join(category, dtype);
  }
  return combine(dimensioned, combine(zero_dim, number)).value_or(call.default_dtype);
}

}  // namespace braze::graph
