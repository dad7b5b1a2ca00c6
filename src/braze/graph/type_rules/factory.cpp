// New tensors: factories, copies, *_like, new_*, random numbers.
#include <cmath>

#include "braze/graph/type_rules/layout.h"
#include "braze/graph/type_rules/promotion.h"
#include "braze/graph/type_rules/rules.h"

namespace braze::graph::rules {
namespace {

struct Options {
  DType dtype;
  Device device;
};

// The keyword arguments dtype, layout and device, or those of `base`. nullopt: a layout that is not strided.
std::optional<Options> options_of(const Call& call, DType dtype, Device device = {}) {
  Options out{dtype, device};
  for (size_t i = 0; i < call.size(); ++i) {
    const OpArgument& declared = call.op.arguments[i];
    if (declared.type == "ScalarType?")
      out.dtype = call.dtype(i).value_or(out.dtype);
    else if (declared.type == "Device?")
      out.device = call.device(i, out.device);
    else if (const auto* layout = std::get_if<Layout>(&call[i].v); layout != nullptr && layout->value != 0)
      return std::nullopt;
  }
  return out;
}

std::optional<size_t> index_of(const Call& call, std::string_view name) {
  const int i = call.op.argument_index(name);
  return i < 0 ? std::nullopt : std::optional(static_cast<size_t>(i));
}

Shape sizes_argument(const Call& call) { return call.exprs(*index_of(call, "size")); }

bool has_negative(const Call& call, const Shape& sizes) {
  for (const Expr& size : sizes)
    if (call.less(size, 0)) return true;
  return false;
}

// The memory_format argument for a tensor of `sizes`; preserve means as `base` has it.
std::optional<Shape> formatted(const Call& call, const Shape& sizes, const TensorType* base) {
  const std::optional<size_t> i = index_of(call, "memory_format");
  const int preserve = 1;
  const int format = i                 ? call.memory_format(*i).value_or(base != nullptr ? preserve : 0)
                     : base != nullptr ? preserve
                                       : 0;
  if (format == preserve) return base != nullptr ? std::optional(preserved_strides(call, *base)) : std::nullopt;
  if (format == 2 && sizes.size() != 4) return std::nullopt;
  if (format == 3 && sizes.size() != 5) return std::nullopt;
  return strides_of_format(sizes, format);
}

DType dtype_of_number(const Call& call, const Argument& value) {
  if (value.is<bool>()) return DType::Bool;
  if (value.is<Expr>()) return DType::I64;
  if (value.is<std::complex<double>>()) return default_complex(call.default_dtype);
  return call.default_dtype;
}

Types made(const Call& call, Shape sizes, DType default_dtype, const TensorType* base = nullptr) {
  const auto options = options_of(call, default_dtype, base != nullptr ? base->device : Device{});
  if (!options) return unsupported(call, "layout");
  if (has_negative(call, sizes)) return unsupported(call, "negative size");
  return one(contiguous_type(options->dtype, std::move(sizes), options->device));
}

double number(const Call& call, size_t i) {
  const Argument& a = call[i];
  if (a.is<double>()) return a.as<double>();
  return static_cast<double>(call.integer(i));
}

}  // namespace

Types factory(const Call& call) {
  DType dtype = call.default_dtype;
  if (call.op.id == OpId::full) dtype = dtype_of_number(call, call[1]);
  const auto options = options_of(call, dtype);
  if (!options) return unsupported(call, "layout");
  if (call.op.id == OpId::full && is_complex(dtype) && !is_complex(options->dtype))
    return unsupported(call, "complex value");
  Shape sizes = sizes_argument(call);
  if (has_negative(call, sizes)) return unsupported(call, "negative size");
  TensorType out = contiguous_type(options->dtype, std::move(sizes), options->device);
  if (call.op.id == OpId::empty_permuted) {
    const Dims order = call.integers(1);
    if (order.size() != out.sizes.size()) return unsupported(call, "order");
    Expr stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
      const auto d = wrap_dim(order[i], order.size());
      if (!d) return unsupported(call, "order");
      out.strides[*d] = stride;
      stride = stride * sym::max(out.sizes[*d], 1);
    }
  } else {
    std::optional<Shape> strides = formatted(call, out.sizes, nullptr);
    if (!strides) return unsupported(call, "memory format");
    out.strides = std::move(*strides);
  }
  return one(std::move(out));
}

Types empty_strided(const Call& call) {
  const auto options = options_of(call, call.default_dtype);
  if (!options) return unsupported(call, "layout");
  TensorType out = contiguous_type(options->dtype, call.exprs(0), options->device);
  out.strides = call.exprs(1);
  if (out.strides.size() != out.sizes.size()) return unsupported(call, "sizes and strides differ in number");
  return one(std::move(out));
}

Types scalar_tensor(const Call& call) { return made(call, {}, call.default_dtype); }

Types arange(const Call& call) {
  const size_t n = call.op.id == OpId::arange ? 1 : call.op.id == OpId::arange_start ? 2 : 3;
  bool integral = true;
  for (size_t i = 0; i < n; ++i) integral = integral && !call[i].is<double>();
  const auto options = options_of(call, integral ? DType::I64 : call.default_dtype);
  if (!options || !(is_integral(options->dtype, false) || is_floating(options->dtype)))
    return unsupported(call, "layout or element type");
  Expr length;
  const size_t end = n == 1 ? 0 : 1;
  if (!integral && is_integral(options->dtype, false)) {
    // The bounds are truncated to the element type first.
    const auto truncated = [&](size_t i) { return static_cast<int64_t>(number(call, i)); };
    const int64_t low = n == 1 ? 0 : truncated(0), high = truncated(end), step = n == 3 ? truncated(2) : 1;
    if (step == 0 || (step > 0 ? high < low : high > low)) return unsupported(call, "bounds");
    length = sym::ceil_div(high - low, step);
  } else if (integral) {
    const Expr low = n == 1 ? Expr(0) : call.expr(0), high = call.expr(end);
    const int64_t step = n == 3 ? call.integer(2) : 1;
    if (step == 0 || call.less(step > 0 ? high - low : low - high, 0)) return unsupported(call, "bounds");
    length = sym::ceil_div(high - low, step);
  } else {
    const double low = n == 1 ? 0 : number(call, 0), high = number(call, end), step = n == 3 ? number(call, 2) : 1;
    const double count = std::ceil((high - low) / step);
    if (!(count >= 0) || count > 1e15) return unsupported(call, "bounds");
    length = static_cast<int64_t>(count);
  }
  return made(call, {length}, integral ? DType::I64 : call.default_dtype);
}

Types eye(const Call& call) {
  const Expr n = call.expr(0), m = call.op.id == OpId::eye_m ? call.expr(1) : n;
  return made(call, {n, m}, call.default_dtype);
}

Types linspace(const Call& call) {
  if (call[0].is<std::complex<double>>() || call[1].is<std::complex<double>>())
    return unsupported(call, "complex bounds");
  return made(call, {call.expr(2)}, call.default_dtype);
}

Types tri_indices(const Call& call) {
  const int64_t rows = call.integer(0), columns = call.integer(1), offset = call.integer(2);
  if (rows < 0 || columns < 0) return unsupported(call, "negative size");
  int64_t count = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t kept = std::min(std::max<int64_t>(row + offset + 1, 0), columns);  // columns <= row + offset
    const int64_t below = std::min(std::max<int64_t>(row + offset, 0), columns);     // columns < row + offset
    count += call.op.id == OpId::tril_indices ? kept : columns - below;
  }
  return made(call, {2, count}, DType::I64);
}

Types like(const Call& call) {
  const TensorType* self = call.tensor(0);
  const auto options = options_of(call, self->dtype, self->device);
  if (!options) return unsupported(call, "layout");
  std::optional<Shape> strides = formatted(call, self->sizes, self);
  if (!strides) return unsupported(call, "memory format");
  TensorType out = contiguous_type(options->dtype, self->sizes, options->device);
  out.strides = std::move(*strides);
  return one(std::move(out));
}

Types clone(const Call& call) { return like(call); }
Types to_copy(const Call& call) { return like(call); }

Types new_tensor(const Call& call) {
  const TensorType* self = call.tensor(0);
  return made(call, call.exprs(1), self->dtype, self);
}

Types new_empty_strided(const Call& call) {
  const TensorType* self = call.tensor(0);
  const auto options = options_of(call, self->dtype, self->device);
  if (!options) return unsupported(call, "layout");
  TensorType out = contiguous_type(options->dtype, call.exprs(1), options->device);
  out.strides = call.exprs(2);
  if (out.strides.size() != out.sizes.size()) return unsupported(call, "sizes and strides differ in number");
  return one(std::move(out));
}

Types random_int(const Call& call) {
  const std::optional<size_t> n = index_of(call, "n");
  if (const std::optional<size_t> d = index_of(call, "dtype"); d && call.dtype(*d) == DType::Bool)
    return unsupported(call, "element type");
  return made(call, n ? Shape{call.expr(*n)} : sizes_argument(call), DType::I64);
}

Types random_unary(const Call& call) {
  const TensorType* self = call.tensor(0);
  TensorType out = contiguous_type(self->dtype, self->sizes, self->device);
  if (call.op.id != OpId::bernoulli && call.op.id != OpId::bernoulli_p) out.strides = preserved_strides(call, *self);
  return one(std::move(out));
}

Types normal_tensor(const Call& call) {
  const TensorType *mean = call.tensor(0), *deviation = call.tensor(1);
  if (mean != nullptr && deviation != nullptr) {
    if (mean->dtype != deviation->dtype || !is_floating(mean->dtype)) return unsupported(call, "element types");
    const TensorType* operands[] = {mean, deviation};
    std::optional<Shape> shape = broadcast(call, operands);
    if (!shape) return unsupported(call, "sizes do not broadcast");
    return one(contiguous_type(mean->dtype, std::move(*shape), mean->device));
  }
  const TensorType* given = mean != nullptr ? mean : deviation;
  if (!is_floating(given->dtype)) return unsupported(call, "element type");
  return one(contiguous_type(given->dtype, given->sizes, given->device));
}

Types native_dropout(const Call& call) {
  const TensorType* self = call.tensor(0);
  if (!is_floating(self->dtype)) return unsupported(call, "element type");
  // Eager returns an empty operand itself.
  if (call.is_zero(numel(self->sizes))) return unsupported(call, "empty operand");
  std::vector<TensorType> out(2, contiguous_type(self->dtype, self->sizes, self->device));
  out[1].strides = preserved_strides(call, *self);
  const TensorType* product[] = {self, &out[1]};
  out[0].strides = iterator_strides(call, self->sizes, product);
  out[1].dtype = DType::Bool;
  return out;
}

Types rrelu(const Call& call) {
  const TensorType *self = call.tensor(0), *noise = call.tensor(1);
  std::vector<TensorType> out(2, contiguous_type(self->dtype, self->sizes, self->device));
  out[1].strides = preserved_strides(call, *noise);
  return out;
}

}  // namespace braze::graph::rules
