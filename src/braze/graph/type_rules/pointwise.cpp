// Pointwise ops: TensorIterator's promotion, broadcasting and strides.
#include <algorithm>

#include "braze/graph/type_rules/layout.h"
#include "braze/graph/type_rules/promotion.h"
#include "braze/graph/type_rules/rules.h"

namespace braze::graph::rules {
namespace {

using Operands = SmallVector<const TensorType*, 4>;
std::span<const TensorType* const> view(const Operands& operands) { return {operands.data(), operands.size()}; }

// The tensor arguments, numbers as weak 0-dim tensors; `scalars` also takes Scalar arguments.
Operands operands_of(const Call& call, bool scalars) {
  Operands out;
  for (size_t i = 0; i < call.size(); ++i) {
    const OpArgument& declared = call.op.arguments[i];
    if (!declared.is_tensor && !(scalars && declared.is_scalar && declared.name != "alpha")) continue;
    if (const TensorType* t = call.tensor(i))
      out.push_back(t);
    else if (const TensorType* number = number_type(call[i]))
      out.push_back(number);
  }
  return out;
}

Device device_of(const Operands& operands) {
  for (const TensorType* t : operands)
    if (!t->sizes.empty()) return t->device;
  for (const TensorType* t : operands)
    if (!t->wrapped_number) return t->device;
  return {};
}

// Operands of another type than `common` are converted first, which makes them dense.
struct Converted {
  std::vector<TensorType> copies;
  Operands operands;
};
Converted convert(const Call& call, const Operands& operands, DType common) {
  Converted out;
  out.copies.reserve(operands.size());
  for (const TensorType* t : operands) {
    if (t->dtype == common || t->sizes.empty()) {
      out.operands.push_back(t);
      continue;
    }
    out.copies.push_back(*t);
    out.copies.back().strides = preserved_strides(call, *t);
    out.operands.push_back(&out.copies.back());
  }
  return out;
}

Types elementwise(const Call& call, const Operands& operands, DType result) {
  TensorType out;
  out.dtype = result;
  out.device = device_of(operands);
  const TensorType& first = *operands[0];
  if (operands.size() == 1) {
    out.sizes = first.sizes;
  } else {
    std::optional<Shape> shape = broadcast(call, view(operands));
    if (!shape) return unsupported(call, "sizes do not broadcast");
    out.sizes = std::move(*shape);
  }
  for (const TensorType* t : operands)
    if (!t->sizes.empty() && t->device != out.device) return unsupported(call, "operands on different devices");
  out.strides = iterator_strides(call, out.sizes, view(operands));
  return one(std::move(out));
}

// Operands converted to `common`, a result of type `result`.
Types promoted(const Call& call, const Operands& operands, DType common, DType result) {
  const bool all_common =
      std::ranges::all_of(operands, [&](const TensorType* t) { return t->dtype == common || t->sizes.empty(); });
  if (all_common) return elementwise(call, operands, result);
  const Converted converted = convert(call, operands, common);
  return elementwise(call, converted.operands, result);
}

// empty_like(t): t's layout if dense.
Types fresh_like(const Call& call, const TensorType& t, DType dtype) {
  TensorType out = contiguous_type(dtype, t.sizes, t.device);
  out.strides = preserved_strides(call, t);
  return one(std::move(out));
}

bool is_unsigned(DType dtype) {
  return dtype == DType::U8 || dtype == DType::U16 || dtype == DType::U32 || dtype == DType::U64;
}

DType float_of(const Call& call, DType dtype) { return is_integral(dtype, true) ? call.default_dtype : dtype; }

// Kinds of element types that an op's CPU kernel takes.
enum Accepts : uint32_t { kBool = 1, kInt = 2, kFloat = 4, kComplex = 8, kAll = 15 };

uint32_t bit_of(DType dtype) {
  switch (kind_of(dtype)) {
    case DTypeKind::Bool:
      return kBool;
    case DTypeKind::Int:
      return kInt;
    case DTypeKind::Float:
      return kFloat;
    case DTypeKind::Complex:
      return kComplex;
    case DTypeKind::Opaque:
      return 0;
  }
  return 0;
}

uint32_t accepted(OpId id) {
  switch (id) {
    case OpId::neg:
      return kInt | kFloat | kComplex;
    case OpId::sign:
      return kBool | kInt | kFloat;
    case OpId::abs:
      return kInt | kFloat | kComplex;
    case OpId::floor:
    case OpId::ceil:
    case OpId::trunc:
    case OpId::round:
      return kInt | kFloat;
    case OpId::round_decimals:
    case OpId::frac:
      return kFloat;
    case OpId::relu:
      return kInt | kFloat;
    case OpId::clamp:
    case OpId::clamp_Tensor:
    case OpId::clamp_min:
    case OpId::clamp_min_Tensor:
    case OpId::clamp_max:
    case OpId::clamp_max_Tensor:
      return kBool | kInt | kFloat;
    case OpId::hardtanh:
      return kInt | kFloat;
    case OpId::hardswish:
    case OpId::hardsigmoid:
    case OpId::leaky_relu:
    case OpId::elu:
    case OpId::gelu:
    case OpId::mish:
    case OpId::softplus:
    case OpId::hardshrink:
    case OpId::softshrink:
      return kFloat;
    case OpId::silu:
      return kFloat | kComplex;
    case OpId::threshold:
      return kInt | kFloat;
    case OpId::bitwise_not:
      return kBool | kInt;
    case OpId::positive:
      return kInt | kFloat | kComplex;
    case OpId::log2:
    case OpId::log10:
    case OpId::log1p:
    case OpId::expm1:
    case OpId::exp2:
      return kAll;
    case OpId::erf:
    case OpId::erfc:
    case OpId::erfinv:
    case OpId::lgamma:
    case OpId::digamma:
    case OpId::logit:
    case OpId::i0:
    case OpId::deg2rad:
    case OpId::rad2deg:
    case OpId::special_i0e:
    case OpId::special_i1:
    case OpId::special_i1e:
    case OpId::special_entr:
    case OpId::special_ndtri:
    case OpId::special_log_ndtr:
    case OpId::special_erfcx:
    case OpId::special_bessel_j0:
    case OpId::special_bessel_j1:
    case OpId::special_bessel_y0:
    case OpId::special_bessel_y1:
    case OpId::polygamma:
      return kBool | kInt | kFloat;
    case OpId::sub_Tensor:
    case OpId::sub_Scalar:
    case OpId::rsub_Tensor:
    case OpId::rsub_Scalar:
      return kInt | kFloat | kComplex;
    case OpId::floor_divide:
    case OpId::floor_divide_Scalar:
    case OpId::remainder_Tensor:
    case OpId::remainder_Scalar:
    case OpId::remainder_Scalar_Tensor:
    case OpId::fmod_Tensor:
    case OpId::fmod_Scalar:
      return kInt | kFloat;
    case OpId::maximum:
    case OpId::minimum:
    case OpId::fmax:
    case OpId::fmin:
    case OpId::heaviside:
      return kBool | kInt | kFloat;
    case OpId::bitwise_and_Tensor:
    case OpId::bitwise_and_Scalar:
    case OpId::bitwise_and_Scalar_Tensor:
    case OpId::bitwise_or_Tensor:
    case OpId::bitwise_or_Scalar:
    case OpId::bitwise_or_Scalar_Tensor:
    case OpId::bitwise_xor_Tensor:
    case OpId::bitwise_xor_Scalar:
    case OpId::bitwise_xor_Scalar_Tensor:
      return kBool | kInt;
    case OpId::bitwise_left_shift_Tensor:
    case OpId::bitwise_left_shift_Tensor_Scalar:
    case OpId::bitwise_right_shift_Tensor:
    case OpId::bitwise_right_shift_Tensor_Scalar:
    case OpId::gcd:
    case OpId::lcm:
      return kInt;
    case OpId::hypot:
    case OpId::nextafter:
    case OpId::logaddexp2:
    case OpId::igamma:
    case OpId::igammac:
      return kFloat;
    case OpId::logaddexp:
      return kFloat | kComplex;
    case OpId::gelu_backward:
    case OpId::hardswish_backward:
    case OpId::hardsigmoid_backward:
    case OpId::mish_backward:
    case OpId::logit_backward:
    case OpId::hardtanh_backward:
    case OpId::leaky_relu_backward:
    case OpId::elu_backward:
    case OpId::softplus_backward:
    case OpId::hardshrink_backward:
    case OpId::softshrink_backward:
    case OpId::log_sigmoid_backward:
      return kFloat;
    case OpId::silu_backward:
    case OpId::tanh_backward:
    case OpId::sigmoid_backward:
      return kFloat | kComplex;
    case OpId::threshold_backward:
      return kInt | kFloat;
    case OpId::atan2:
    case OpId::copysign_Tensor:
    case OpId::copysign_Scalar:
    case OpId::xlogy_Tensor:
    case OpId::xlogy_Scalar_Other:
    case OpId::xlogy_Scalar_Self:
    case OpId::special_xlog1py:
    case OpId::special_zeta:
      return kBool | kInt | kFloat;
    case OpId::lt_Tensor:
    case OpId::lt_Scalar:
    case OpId::le_Tensor:
    case OpId::le_Scalar:
    case OpId::gt_Tensor:
    case OpId::gt_Scalar:
    case OpId::ge_Tensor:
    case OpId::ge_Scalar:
      return kBool | kInt | kFloat;
    case OpId::pow_Tensor_Tensor:
    case OpId::pow_Tensor_Scalar:
    case OpId::pow_Scalar:
      return kInt | kFloat | kComplex;
    case OpId::addcmul:
      return kInt | kFloat | kComplex;
    case OpId::isposinf:
    case OpId::isneginf:
    case OpId::signbit:
      return kBool | kInt | kFloat;
    case OpId::addcdiv:
      return kFloat | kComplex;
    case OpId::lerp_Scalar:
    case OpId::lerp_Tensor:
      return kFloat | kComplex;
    default:
      return kAll;
  }
}

// Kernels without 16-bit floats.
bool needs_wide_floats(OpId id) {
  switch (id) {
    case OpId::special_ndtri:
    case OpId::special_log_ndtr:
    case OpId::special_erfcx:
    case OpId::special_bessel_j0:
    case OpId::special_bessel_j1:
    case OpId::special_bessel_y0:
    case OpId::special_bessel_y1:
    case OpId::special_zeta:
      return true;
    default:
      return false;
  }
}

// Types that few kernels know; ATen decides.
bool is_rare(DType dtype) {
  switch (dtype) {
    case DType::U16:
    case DType::U32:
    case DType::U64:
    case DType::C32:
      return true;
    default:
      return is_floating(dtype) && size_of(dtype) == 1;
  }
}

bool accepts(const Call& call, DType dtype) {
  if (is_rare(dtype)) return false;
  if (needs_wide_floats(call.op.id) && is_floating(dtype) && size_of(dtype) < 4) return false;
  return (accepted(call.op.id) & bit_of(dtype)) != 0;
}

bool is_negative_integer(const Argument& a) {
  return a.is<Expr>() && a.as<Expr>().is_constant() && a.as<Expr>().constant() < 0;
}

// alpha must be of a kind that the result can hold.
bool alpha_fits(const Call& call, DType result) {
  const int i = call.op.argument_index("alpha");
  if (i < 0) return true;
  const Argument& alpha = call[static_cast<size_t>(i)];
  if (alpha.is<bool>()) return result == DType::Bool;
  if (alpha.is<double>()) return is_floating(result) || is_complex(result);
  return !alpha.is<std::complex<double>>() || is_complex(result);
}

}  // namespace

Types unary(const Call& call) {
  const Operands operands = operands_of(call, false);
  const TensorType& self = *operands[0];
  if (!accepts(call, self.dtype)) return unsupported(call, "element type");
  if (call.op.id == OpId::hardtanh && kind_of(self.dtype) == DTypeKind::Int && is_unsigned(self.dtype))
    return unsupported(call, "bounds of an unsigned type");
  if (call.op.id == OpId::nan_to_num || call.op.id == OpId::hardtanh) return fresh_like(call, self, self.dtype);
  return elementwise(call, operands, self.dtype);
}

Types unary_float(const Call& call) {
  const Operands operands = operands_of(call, false);
  if (!accepts(call, operands[0]->dtype)) return unsupported(call, "element type");
  const DType result = float_of(call, operands[0]->dtype);
  if (call.op.id == OpId::deg2rad || call.op.id == OpId::rad2deg) return fresh_like(call, *operands[0], result);
  return promoted(call, operands, result, result);
}

Types unary_real(const Call& call) {
  const Operands operands = operands_of(call, false);
  if (!accepts(call, operands[0]->dtype)) return unsupported(call, "element type");
  DType result = real_of(operands[0]->dtype);
  if (call.op.id == OpId::angle) {
    result = float_of(call, result);
    if (is_complex(operands[0]->dtype)) return one(contiguous_type(result, operands[0]->sizes, operands[0]->device));
  }
  return elementwise(call, operands, result);
}

Types unary_bool(const Call& call) {
  const Operands operands = operands_of(call, false);
  if (!accepts(call, operands[0]->dtype)) return unsupported(call, "element type");
  return elementwise(call, operands, DType::Bool);
}

Types clamp(const Call& call) {
  const Operands operands = operands_of(call, true);
  if (operands.size() < 2) return unsupported(call, "no bound");
  const DType common = result_dtype(call, view(operands));
  if (!accepts(call, common)) return unsupported(call, "element type");
  Operands tensors;
  for (const TensorType* t : operands)
    if (!t->wrapped_number || t == operands[0]) tensors.push_back(t);
  return promoted(call, tensors, common, common);
}

Types binary(const Call& call) {
  Operands operands = operands_of(call, true);
  const DType common = result_dtype(call, view(operands));
  if (!accepts(call, common) || !alpha_fits(call, common)) return unsupported(call, "element type");
  switch (call.op.id) {
    case OpId::sub_Tensor:
    case OpId::sub_Scalar:
    case OpId::rsub_Tensor:
    case OpId::rsub_Scalar:
      for (const TensorType* t : operands)
        if (t->dtype == DType::Bool) return unsupported(call, "subtraction of bools");
      if (call.op.id == OpId::rsub_Tensor || call.op.id == OpId::rsub_Scalar) std::swap(operands[0], operands[1]);
      break;
    case OpId::heaviside:
      if (operands[0]->dtype != operands[1]->dtype) return unsupported(call, "operands of different types");
      break;
    case OpId::div_Tensor_mode:
    case OpId::div_Scalar_mode: {
      const DType result = call.is_none(2) ? float_of(call, common) : common;
      if (!call.is_none(2) && (is_complex(result) || result == DType::Bool))
        return unsupported(call, "rounding of complex numbers or bools");
      return promoted(call, operands, result, result);
    }
    case OpId::pow_Tensor_Scalar: {
      if (is_integral(operands[0]->dtype, true) && is_negative_integer(call[1]))
        return unsupported(call, "integers to negative integer powers");
      const Operands base{operands[0]};
      return promoted(call, base, common, common);
    }
    case OpId::pow_Scalar:
      return one(contiguous_type(common, operands[1]->sizes, operands[1]->device));
    default:
      break;
  }
  return promoted(call, operands, common, common);
}

Types binary_float(const Call& call) {
  const Operands operands = operands_of(call, true);
  const DType common = result_dtype(call, view(operands));
  if (!accepts(call, common)) return unsupported(call, "element type");
  const DType result = float_of(call, common);
  return promoted(call, operands, result, result);
}

Types comparison(const Call& call) {
  const Operands operands = operands_of(call, true);
  const DType common = result_dtype(call, view(operands));
  if (!accepts(call, common)) return unsupported(call, "element type");
  // Logical ops take operands of different types as they are.
  const OpId id = call.op.id;
  if (id == OpId::logical_and || id == OpId::logical_or || id == OpId::logical_xor)
    return elementwise(call, operands, DType::Bool);
  return promoted(call, operands, common, DType::Bool);
}

Types ternary(const Call& call) {
  const Operands operands = operands_of(call, false);
  const bool promotes = call.op.id == OpId::addcmul || call.op.id == OpId::addcdiv;
  const DType common = result_dtype(call, view(operands));
  if (!accepts(call, common)) return unsupported(call, "element type");
  if (!promotes)
    for (const TensorType* t : operands)
      if (t->dtype != operands[0]->dtype) return unsupported(call, "operands of different types");
  return promoted(call, operands, common, common);
}

Types where(const Call& call) {
  const TensorType* condition = call.tensor(0);
  if (condition == nullptr || condition->dtype != DType::Bool) return unsupported(call, "condition is no bool");
  Operands operands = operands_of(call, true);
  const DType common = result_dtype(call, view(operands).subspan(1));
  Operands values;
  values.append(operands.begin() + 1, operands.end());
  const Converted converted = convert(call, values, common);
  Operands all{condition};
  all.append(converted.operands.begin(), converted.operands.end());
  return elementwise(call, all, common);
}

Types masked_fill(const Call& call) {
  const TensorType *self = call.tensor(0), *mask = call.tensor(1);
  if (self == nullptr || mask == nullptr || mask->dtype != DType::Bool) return unsupported(call, "mask is no bool");
  const TensorType* value = call.tensor(2);
  if (value != nullptr && !value->sizes.empty()) return unsupported(call, "value is no 0-dim tensor");
  const Operands operands{mask, self};
  std::optional<Shape> shape = broadcast(call, view(operands));
  if (!shape) return unsupported(call, "sizes do not broadcast");
  return one(contiguous_type(self->dtype, std::move(*shape), self->device));
}

Types fill(const Call& call) {
  const TensorType* self = call.tensor(0);
  const TensorType* value = call.tensor(1);
  if (self == nullptr || (value != nullptr && !value->sizes.empty())) return unsupported(call, "value has dimensions");
  TensorType out = contiguous_type(self->dtype, self->sizes, self->device);
  out.strides = preserved_strides(call, *self);
  return one(std::move(out));
}

Types complex(const Call& call) {
  const Operands operands = operands_of(call, false);
  if (operands[0]->dtype != operands[1]->dtype || !is_floating(operands[0]->dtype))
    return unsupported(call, "element types");
  return elementwise(call, operands, complex_of(operands[0]->dtype));
}

Types binary_grad(const Call& call) {
  Operands operands = operands_of(call, false);
  if (call.op.id == OpId::log_sigmoid_backward) {
    const TensorType& grad = *operands[0];
    if (!accepts(call, grad.dtype) || operands[1]->dtype != grad.dtype || !call.same(grad.sizes, operands[1]->sizes))
      return unsupported(call, "operands");
    return fresh_like(call, grad, grad.dtype);
  }
  if (call.op.id == OpId::native_dropout_backward && !is_floating(operands[0]->dtype))
    return unsupported(call, "element type");   // the scale makes a float of it
  // Iterated as (self, gradient).
  if (call.op.id == OpId::threshold_backward || call.op.id == OpId::leaky_relu_backward)
    std::swap(operands[0], operands[1]);
  const DType common = result_dtype(call, view(operands));
  if (!accepts(call, common)) return unsupported(call, "element type");
  return promoted(call, operands, common, common);
}

Types log_sigmoid_forward(const Call& call) {
  const TensorType* self = call.tensor(0);
  if (!is_floating(self->dtype)) return unsupported(call, "element type");
  return std::vector<TensorType>(2, contiguous_type(self->dtype, self->sizes, self->device));
}

Types prelu(const Call& call) {
  const Operands operands = operands_of(call, false);
  if (operands[0]->dtype != operands[1]->dtype || !is_floating(operands[0]->dtype))
    return unsupported(call, "element types");
  const std::optional<Shape> shape = broadcast(call, view(operands));
  if (!shape || !call.same(*shape, operands[0]->sizes)) return unsupported(call, "sizes do not broadcast");
  return fresh_like(call, *operands[0], operands[0]->dtype);
}

Types prelu_backward(const Call& call) {
  // Iterated as (self, weight, gradient).
  const Operands operands{call.tensor(1), call.tensor(2), call.tensor(0)};
  Types first = elementwise(call, operands, operands[0]->dtype);
  if (!first.ok()) return first;
  std::vector<TensorType> out = std::move(first).value();
  out.push_back(out[0]);
  return out;
}

Types glu(const Call& call) {
  const TensorType* self = call.tensor(0);
  const auto dim = wrap_dim(call.integer(1), self->sizes.size());
  if (self->sizes.empty() || !dim || !is_floating(self->dtype)) return unsupported(call, "operand");
  if (!call.is_zero(sym::mod(self->sizes[*dim], 2))) return unsupported(call, "odd size");
  TensorType half = *self;
  half.sizes[*dim] = sym::floor_div(half.sizes[*dim], 2);
  const Operands operands{&half, &half};
  return elementwise(call, operands, self->dtype);
}

Types glu_backward(const Call& call) {
  const TensorType* self = call.tensor(1);
  return one(contiguous_type(self->dtype, self->sizes, self->device));
}

}  // namespace braze::graph::rules
