// Convolution. The result's memory format follows the CPU back end that ATen chooses (at::native's
// determine_backend_memory_format): oneDNN and the 2-D native kernels keep channels last, the 3-D native ones do not.
#include "braze/graph/type_rules/layout.h"
#include "braze/graph/type_rules/promotion.h"
#include "braze/graph/type_rules/rules.h"

namespace braze::graph::rules {
namespace {

struct Arguments {
  Shape stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups;
};

// Arguments first, first + 1, ...: stride, padding, dilation, transposed, output_padding, groups. A single number
// stands for all spatial dimensions.
std::optional<Arguments> arguments_of(const Call& call, size_t first, size_t spatial) {
  const auto list = [&](size_t i) {
    Shape out = call.exprs(i);
    if (out.size() == 1) out.resize(spatial, out[0]);
    return out;
  };
  Arguments out{list(first),     list(first + 1),         list(first + 2),
                list(first + 4), call.boolean(first + 3), call.integer(first + 5)};
  for (const Shape* shape : {&out.stride, &out.padding, &out.dilation, &out.output_padding})
    if (shape->size() != spatial) return std::nullopt;
  return out;
}

// ATen's use_mkldnn, for strided CPU tensors and more than one thread.
bool uses_onednn(const Call& call, const TensorType& input, const TensorType& weight, const Arguments& a) {
  if (a.transposed) {
    for (size_t i = 0; i < a.stride.size(); ++i)
      if (!call.less(a.output_padding[i], a.stride[i])) return false;
    if (a.groups > 1 && call.same(input.sizes[1], a.groups)) return false;
  }
  if (input.dtype == DType::BF16) return kernel_facts().onednn_bf16;
  if (input.dtype == DType::F16) return kernel_facts().onednn_f16;
  if (input.dtype != DType::F32) return false;
  if (a.groups > 1) return true;
  const size_t rank = weight.sizes.size();
  if (call.less(3, weight.sizes[rank - 1]) && call.less(3, weight.sizes[rank - 2])) return true;
  if (call.less(1, input.sizes[0])) return true;
  return call.less(20480, input.sizes[0] * input.sizes[1] * input.sizes[2] * input.sizes[3]);
}

// A dimension of size 1 before the last one, as ATen makes 2-D convolutions of 1-D ones.
TensorType as_2d(const TensorType& t) {
  TensorType out = t;
  out.sizes.insert(out.sizes.begin() + 2, Expr(1));
  out.strides.insert(out.strides.begin() + 2, t.sizes[2] * t.strides[2]);
  return out;
}

// A 1-D input is made contiguous, so that a permutation is not taken for channels last; the weight is not.
bool is_channels_last_1d(const Call& call, const TensorType& input, const TensorType& weight) {
  TensorType in = input;
  if (!is_contiguous(call, in)) in.strides = contiguous_strides(in.sizes);
  return suggested_format(call, as_2d(in)) == 2 || suggested_format(call, as_2d(weight)) == 2;
}

// Whether a 2-D or 3-D convolution's results are in channels last.
bool keeps_channels_last(const Call& call, const TensorType& input, const TensorType& weight, const Arguments& a) {
  if (suggested_format(call, input) == 0 && suggested_format(call, weight) == 0) return false;
  return input.sizes.size() == 4 || uses_onednn(call, input, weight, a);
}

}  // namespace

Types convolution(const Call& call) {
  const TensorType *input = call.tensor(0), *weight = call.tensor(1), *bias = call.tensor(2);
  const size_t rank = input->sizes.size();
  if (rank < 3 || rank > 5 || weight->sizes.size() != rank) return unsupported(call, "rank");
  if (input->dtype != weight->dtype || (bias != nullptr && bias->dtype != input->dtype) || !is_floating(input->dtype))
    return unsupported(call, "element types");
  std::optional<Arguments> a = arguments_of(call, 3, rank - 2);
  if (!a || a->groups < 1) return unsupported(call, "arguments");
  const Expr groups = a->groups;
  const Expr channels_out = a->transposed ? weight->sizes[1] * groups : weight->sizes[0];
  const Expr channels_in = a->transposed ? weight->sizes[0] : weight->sizes[1] * groups;
  if (!call.same(input->sizes[1], channels_in)) return unsupported(call, "channels");
  if (!a->transposed && !call.is_zero(sym::mod(weight->sizes[0], groups))) return unsupported(call, "groups");
  if (bias != nullptr && (bias->sizes.size() != 1 || !call.same(bias->sizes[0], channels_out)))
    return unsupported(call, "bias");
  Shape sizes{input->sizes[0], channels_out};
  for (size_t i = 0; i < rank - 2; ++i) {
    const Expr kernel = a->dilation[i] * (weight->sizes[i + 2] - 1) + 1, size = input->sizes[i + 2];
    if (call.less(a->stride[i], 1) || call.less(a->padding[i], 0) || call.less(a->dilation[i], 1))
      return unsupported(call, "stride, padding or dilation");
    if (a->transposed) {
      sizes.push_back((size - 1) * a->stride[i] - a->padding[i] * 2 + kernel + a->output_padding[i]);
    } else {
      const Expr padded = size + a->padding[i] * 2;
      if (call.less(padded, kernel)) return unsupported(call, "kernel is larger than the input");
      sizes.push_back(sym::floor_div(padded - kernel, a->stride[i]) + 1);
    }
    if (call.less(sizes.back(), 1)) return unsupported(call, "empty result");
  }
  if (call.is_zero(numel(input->sizes))) return unsupported(call, "empty input");
  TensorType out = contiguous_type(input->dtype, std::move(sizes), input->device);
  if (rank == 3) {
    if (is_channels_last_1d(call, *input, *weight)) {
      const Shape strides = channels_last_strides({out.sizes[0], out.sizes[1], 1, out.sizes[2]});
      out.strides = {strides[0], strides[1], strides[3]};
    }
    return one(std::move(out));
  }
  if (keeps_channels_last(call, *input, *weight, *a)) out.strides = channels_last_strides(out.sizes);
  return one(std::move(out));
}

Types convolution_backward(const Call& call) {
  const TensorType *grad = call.tensor(0), *input = call.tensor(1), *weight = call.tensor(2);
  const size_t rank = input->sizes.size();
  if (rank < 3 || rank > 5 || weight->sizes.size() != rank || call.is_zero(numel(input->sizes)))
    return unsupported(call, "operands");
  const std::optional<Arguments> a = arguments_of(call, 4, rank - 2);
  if (!a) return unsupported(call, "arguments");
  const ArgumentList& mask = call[10].as<ArgumentList>();
  std::vector<TensorType> out{contiguous_type(input->dtype, input->sizes, input->device),
                              contiguous_type(weight->dtype, weight->sizes, weight->device),
                              contiguous_type(grad->dtype, {grad->sizes[1]}, grad->device)};
  if (rank == 3 && is_channels_last_1d(call, *input, *weight)) return unsupported(call, "layout");
  if (rank > 3 && keeps_channels_last(call, *input, *weight, *a)) {
    // A kernel of one place has both formats; which strides its gradient gets is the library's choice.
    TensorType last = *weight;
    last.strides = channels_last_strides(last.sizes);
    if (is_contiguous(call, last)) return unsupported(call, "layout");
    out[0].strides = channels_last_strides(out[0].sizes);
    out[1].strides = channels_last_strides(out[1].sizes);
  }
  for (size_t i = 0; i < 3; ++i)
    if (!mask[i].as<bool>()) {
      out[i] = TensorType{};
      out[i].defined = false;
    }
  return out;
}

}  // namespace braze::graph::rules
