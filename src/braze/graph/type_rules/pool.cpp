// Pooling, resampling, patches.
#include "braze/graph/type_rules/layout.h"
#include "braze/graph/type_rules/promotion.h"
#include "braze/graph/type_rules/rules.h"

namespace braze::graph::rules {
namespace {

// A list argument with one entry per spatial dimension; one entry stands for all; empty: `if_empty`.
std::optional<Shape> per_dimension(const Call& call, size_t i, size_t spatial, const Shape& if_empty) {
  Shape out = call.exprs(i);
  if (out.empty()) return if_empty;
  if (out.size() == 1) out.resize(spatial, out[0]);
  return out.size() == spatial ? std::optional(std::move(out)) : std::nullopt;
}

// pooling_output_shape of ATen.
Expr pooled_size(const Call& call, Expr size, Expr kernel, Expr padding, Expr stride, Expr dilation, bool ceil_mode) {
  Expr out =
      sym::floor_div(size + padding * 2 - dilation * (kernel - 1) - 1 + (ceil_mode ? stride - 1 : Expr(0)), stride) + 1;
  // The last window must start inside the input or the left padding.
  if (ceil_mode && !call.less((out - 1) * stride, size + padding)) out = out - 1;
  return out;
}

struct Window {
  Shape kernel, stride, padding, dilation;
  bool ceil_mode;
};

std::optional<Shape> pooled_sizes(const Call& call, const TensorType& self, const Window& w) {
  const size_t spatial = w.kernel.size(), rank = self.sizes.size();
  if (rank != spatial + 1 && rank != spatial + 2) return std::nullopt;
  Shape sizes = self.sizes;
  for (size_t i = rank - spatial - 1; i < rank; ++i)
    if (call.is_zero(sizes[i])) return std::nullopt;
  for (size_t i = 0; i < spatial; ++i) {
    if (call.less(w.kernel[i], 1) || call.less(w.stride[i], 1) || call.less(w.padding[i], 0) ||
        call.less(sym::floor_div(w.kernel[i], 2), w.padding[i]) || call.less(w.dilation[i], 1))
      return std::nullopt;
    Expr& size = sizes[rank - spatial + i];
    size = pooled_size(call, size, w.kernel[i], w.padding[i], w.stride[i], w.dilation[i], w.ceil_mode);
    if (call.less(size, 1)) return std::nullopt;
  }
  return sizes;
}

// A fresh result in the operand's format where the rank has channels.
TensorType in_format_of(const Call& call, const TensorType& self, Shape sizes) {
  TensorType out = contiguous_type(self.dtype, std::move(sizes), self.device);
  const int format = suggested_format(call, self);
  if (format != 0 && self.sizes.size() == out.sizes.size()) out.strides = strides_of_format(out.sizes, format);
  return out;
}

bool wide_or_int(DType dtype) { return is_integral(dtype, false) || dtype == DType::F32 || dtype == DType::F64; }

}  // namespace

Types max_pool(const Call& call) {
  const TensorType* self = call.tensor(0);
  const size_t spatial = call.op.id == OpId::max_pool3d_with_indices ? 3 : 2;
  const auto kernel = per_dimension(call, 1, spatial, {});
  if (!kernel || kernel->size() != spatial || self->dtype == DType::Bool || is_complex(self->dtype))
    return unsupported(call, "operand or kernel");
  const auto stride = per_dimension(call, 2, spatial, *kernel),
             padding = per_dimension(call, 3, spatial, Shape(spatial, 0)),
             dilation = per_dimension(call, 4, spatial, Shape(spatial, 1));
  if (!stride || !padding || !dilation) return unsupported(call, "window");
  std::optional<Shape> sizes = pooled_sizes(call, *self, {*kernel, *stride, *padding, *dilation, call.boolean(5)});
  if (!sizes) return unsupported(call, "window");
  std::vector<TensorType> out(2, in_format_of(call, *self, std::move(*sizes)));
  out[1].dtype = DType::I64;
  return out;
}

Types max_pool_backward(const Call& call) {
  const TensorType* self = call.tensor(1);
  return one(in_format_of(call, *self, self->sizes));
}

Types avg_pool(const Call& call) {
  const TensorType* self = call.tensor(0);
  const size_t spatial = call.op.id == OpId::avg_pool3d ? 3 : 2;
  const auto kernel = per_dimension(call, 1, spatial, {});
  if (!kernel || kernel->size() != spatial || self->dtype == DType::Bool || is_complex(self->dtype))
    return unsupported(call, "operand or kernel");
  const auto stride = per_dimension(call, 2, spatial, *kernel),
             padding = per_dimension(call, 3, spatial, Shape(spatial, 0));
  if (!stride || !padding) return unsupported(call, "window");
  std::optional<Shape> sizes =
      pooled_sizes(call, *self, {*kernel, *stride, *padding, Shape(spatial, 1), call.boolean(4)});
  if (!sizes) return unsupported(call, "window");
  if (!call.is_none(6) && call.is_zero(call.expr(6))) return unsupported(call, "divisor");
  if (spatial == 3 && !wide_or_int(self->dtype)) return unsupported(call, "element type");
  TensorType out = in_format_of(call, *self, *sizes);
  if (spatial == 3) out.strides = contiguous_strides(out.sizes);
  return one(std::move(out));
}

Types avg_pool_backward(const Call& call) {
  const TensorType* self = call.tensor(1);
  if (call.op.id == OpId::avg_pool3d_backward) return one(contiguous_type(self->dtype, self->sizes, self->device));
  return one(in_format_of(call, *self, self->sizes));
}

namespace {

std::optional<Shape> adaptive_sizes(const Call& call, const TensorType& self, size_t spatial) {
  const auto wanted = per_dimension(call, 1, spatial, {});
  const size_t rank = self.sizes.size();
  if (!wanted || wanted->size() != spatial || (rank != spatial + 1 && rank != spatial + 2)) return std::nullopt;
  Shape sizes = self.sizes;
  for (size_t i = rank - spatial - 1; i < rank; ++i)
    if (call.is_zero(sizes[i])) return std::nullopt;
  for (size_t i = 0; i < spatial; ++i) {
    if (call.less((*wanted)[i], 0)) return std::nullopt;
    sizes[rank - spatial + i] = (*wanted)[i];
  }
  return sizes;
}

}  // namespace

Types adaptive_avg_pool(const Call& call) {
  const TensorType* self = call.tensor(0);
  const bool is_3d = call.op.id == OpId::_adaptive_avg_pool3d;
  std::optional<Shape> sizes = adaptive_sizes(call, *self, is_3d ? 3 : 2);
  if (!sizes || !is_floating(self->dtype)) return unsupported(call, "operand or sizes");
  TensorType out = in_format_of(call, *self, std::move(*sizes));
  if (is_3d) out.strides = contiguous_strides(out.sizes);
  return one(std::move(out));
}

Types adaptive_avg_pool_backward(const Call& call) {
  const TensorType* self = call.tensor(1);
  TensorType out = in_format_of(call, *self, self->sizes);
  if (call.op.id == OpId::_adaptive_avg_pool3d_backward) out.strides = contiguous_strides(out.sizes);
  return one(std::move(out));
}

Types adaptive_max_pool(const Call& call) {
  const TensorType* self = call.tensor(0);
  const bool is_3d = call.op.id == OpId::adaptive_max_pool3d;
  std::optional<Shape> sizes = adaptive_sizes(call, *self, is_3d ? 3 : 2);
  if (!sizes || !is_floating(self->dtype)) return unsupported(call, "operand or sizes");
  std::vector<TensorType> out(2, in_format_of(call, *self, std::move(*sizes)));
  if (is_3d) out[0].strides = out[1].strides = contiguous_strides(out[0].sizes);
  out[1].dtype = DType::I64;
  return out;
}

Types upsample(const Call& call) {
  const TensorType* self = call.tensor(0);
  const Shape wanted = call.exprs(1);
  const size_t rank = self->sizes.size();
  if (rank != wanted.size() + 2 || rank < 3) return unsupported(call, "rank");
  Shape sizes = self->sizes;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (call.less(wanted[i], 1) || call.is_zero(sizes[i + 2])) return unsupported(call, "sizes");
    sizes[i + 2] = wanted[i];
  }
  if (call.is_zero(sizes[1]) || (!is_floating(self->dtype) && self->dtype != DType::U8))
    return unsupported(call, "operand");
  const bool antialias = call.op.id == OpId::_upsample_bilinear2d_aa || call.op.id == OpId::_upsample_bicubic2d_aa;
  if (antialias && size_of(self->dtype) == 2) return unsupported(call, "element type");
  return one(in_format_of(call, *self, std::move(sizes)));
}

Types upsample_backward(const Call& call) {
  const TensorType* grad = call.tensor(0);
  const Shape sizes = call.exprs(2);
  if (call.op.id == OpId::upsample_nearest3d_backward || call.op.id == OpId::_upsample_nearest_exact3d_backward)
    return one(contiguous_type(grad->dtype, sizes, grad->device));
  return one(in_format_of(call, *grad, sizes));
}

Types grid_sampler(const Call& call) {
  const TensorType *input = call.tensor(0), *grid = call.tensor(1);
  const size_t rank = call.op.id == OpId::grid_sampler_2d ? 4 : 5;
  if (input->sizes.size() != rank || grid->sizes.size() != rank || input->dtype != grid->dtype ||
      (input->dtype != DType::F32 && input->dtype != DType::F64))
    return unsupported(call, "operands");
  if (!call.same(input->sizes[0], grid->sizes[0]) ||
      !call.same(grid->sizes[rank - 1], Expr(static_cast<int64_t>(rank - 2))))
    return unsupported(call, "sizes");
  for (size_t i = 2; i < rank; ++i)
    if (call.is_zero(input->sizes[i])) return unsupported(call, "empty input");
  Shape sizes{input->sizes[0], input->sizes[1]};
  for (size_t i = 1; i + 1 < rank; ++i) sizes.push_back(grid->sizes[i]);
  return one(contiguous_type(input->dtype, std::move(sizes), input->device));
}

Types grid_sampler_backward(const Call& call) {
  const TensorType *input = call.tensor(1), *grid = call.tensor(2);
  std::vector<TensorType> out(2);
  out[0].defined = call[6].as<ArgumentList>()[0].as<bool>();
  if (out[0].defined) out[0] = contiguous_type(input->dtype, input->sizes, input->device);
  out[1] = contiguous_type(grid->dtype, grid->sizes, grid->device);
  return out;
}

// Patches of an image as columns: [N, C*kh*kw, positions].
Types im2col(const Call& call) {
  const TensorType* self = call.tensor(0);
  const auto kernel = per_dimension(call, 1, 2, {}), dilation = per_dimension(call, 2, 2, {}),
             padding = per_dimension(call, 3, 2, {}), stride = per_dimension(call, 4, 2, {});
  const size_t rank = self->sizes.size();
  if (!kernel || !dilation || !padding || !stride || (rank != 3 && rank != 4) || is_integral(self->dtype, true))
    return unsupported(call, "operand");
  Expr positions = 1;
  for (size_t i = 0; i < 2; ++i) {
    const Expr count =
        sym::floor_div(self->sizes[rank - 2 + i] + (*padding)[i] * 2 - (*dilation)[i] * ((*kernel)[i] - 1) - 1,
                       (*stride)[i]) +
        1;
    if (call.less(count, 1)) return unsupported(call, "window");
    positions = positions * count;
  }
  Shape sizes;
  if (rank == 4) sizes.push_back(self->sizes[0]);
  sizes.push_back(self->sizes[rank - 3] * (*kernel)[0] * (*kernel)[1]);
  sizes.push_back(positions);
  return one(contiguous_type(self->dtype, std::move(sizes), self->device));
}

Types col2im(const Call& call) {
  const TensorType* self = call.tensor(0);
  const auto size = per_dimension(call, 1, 2, {}), kernel = per_dimension(call, 2, 2, {});
  const size_t rank = self->sizes.size();
  if (!size || !kernel || size->size() != 2 || kernel->size() != 2 || (rank != 2 && rank != 3) ||
      is_integral(self->dtype, true))
    return unsupported(call, "operand");
  const Expr window = (*kernel)[0] * (*kernel)[1], channels = self->sizes[rank - 2];
  if (!call.is_zero(sym::mod(channels, window))) return unsupported(call, "channels");
  Shape sizes;
  if (rank == 3) sizes.push_back(self->sizes[0]);
  sizes.push_back(sym::floor_div(channels, window));
  sizes.push_back((*size)[0]);
  sizes.push_back((*size)[1]);
  return one(contiguous_type(self->dtype, std::move(sizes), self->device));
}

}  // namespace braze::graph::rules
