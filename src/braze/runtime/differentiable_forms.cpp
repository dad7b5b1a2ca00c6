#include "braze/runtime/differentiable_forms.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <limits>
#include <string_view>
#include <unordered_map>

#include "braze/graph/arguments.h"

namespace braze::runtime {
namespace {

using Tensors = std::vector<at::Tensor>;
using Operands = std::span<const at::Tensor>;

Tensors silu_backward(const graph::Node&, Operands x) {
  const at::Tensor s = x[1].sigmoid();
  return {x[0] * s * (1 + x[1] * (1 - s))};
}

Tensors mish_backward(const graph::Node&, Operands x) {
  const at::Tensor t = at::softplus(x[1]).tanh();
  return {x[0] * (t + x[1] * x[1].sigmoid() * (1 - t * t))};
}

Tensors logit_backward(const graph::Node& node, Operands x) {
  const at::Tensor inner = x[0] / (x[1] * (1 - x[1]));
  const auto eps = graph::number(node, "eps");
  const at::Tensor outside = eps ? at::zeros_like(x[1]) : at::full_like(x[1], std::numeric_limits<double>::quiet_NaN());
  const double low = eps.value_or(0);
  return {at::where(x[1].lt(low).logical_or(x[1].gt(1 - low)), outside, inner)};
}

// operands: grad_out, input, mean, rstd, weight if there is one. The statistics are functions of the input.
Tensors group_norm_backward(const graph::Node& node, Operands x) {
  const auto groups = graph::integer(node, "group");
  TORCH_CHECK(groups.has_value(), "braze: a group norm without a number of groups");
  const int64_t n = x[1].size(0), c = x[1].size(1);
  std::vector<int64_t> per_channel(static_cast<size_t>(x[1].dim()), 1);
  per_channel[1] = c;
  const bool has_weight = x.size() > 4;
  const auto grouped = [&](const at::Tensor& t) { return t.reshape({n, *groups, -1}); };
  const at::Tensor input = grouped(x[1]);
  const at::Tensor centred = input - input.mean(-1, true), variance = centred.square().mean(-1, true);
  const at::Tensor eps = (x[3].reshape({n, *groups, 1}).pow(-2) - variance).detach();
  const at::Tensor rstd = (variance + eps).rsqrt(), normal = centred * rstd;
  const at::Tensor grad = grouped(has_weight ? x[0] * x[4].reshape(per_channel) : x[0]);
  Tensors out(3);
  const at::Tensor mean_of_grad = grad.mean(-1, true), projection = (grad * normal).mean(-1, true);
  out[0] = (rstd * (grad - mean_of_grad - normal * projection)).reshape(x[1].sizes());
  const auto over_channels = [&](const at::Tensor& t) { return t.transpose(0, 1).reshape({c, -1}).sum(-1); };
  if (has_weight) out[1] = over_channels(x[0] * normal.reshape(x[1].sizes()));
  out[2] = over_channels(x[0]);
  return out;
}

}  // namespace

DifferentiableForm differentiable_form(const graph::Op& op) {
  static const std::unordered_map<std::string_view, DifferentiableForm> forms = {
      {"aten.silu_backward", silu_backward},
      {"aten.mish_backward", mish_backward},
      {"aten.logit_backward", logit_backward},
      {"aten.native_group_norm_backward", group_norm_backward},
  };
  const auto found = forms.find(op.name);
  return found == forms.end() ? nullptr : found->second;
}

}  // namespace braze::runtime
