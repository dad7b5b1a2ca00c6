// Normalizations: layer, group, batch, root mean square.
#include "braze/graph/type_rules/layout.h"
#include "braze/graph/type_rules/promotion.h"
#include "braze/graph/type_rules/rules.h"

namespace braze::graph::rules {
namespace {

TensorType undefined() {
  TensorType t;
  t.defined = false;
  return t;
}

TensorType like(const TensorType& t) { return contiguous_type(t.dtype, t.sizes, t.device); }

// The CPU kernels keep statistics in float where parameters are float and the input is of lower precision.
std::optional<DType> statistics_dtype(DType input, const TensorType* weight, const TensorType* bias) {
  bool mixed = false;
  for (const TensorType* t : {weight, bias}) {
    if (t == nullptr || t->dtype == input) continue;
    if (size_of(input) != 2 || t->dtype != DType::F32) return std::nullopt;
    mixed = true;
  }
  return mixed ? DType::F32 : input;
}

bool mask_at(const Argument& mask, size_t i) { return mask.as<ArgumentList>()[i].as<bool>(); }

}  // namespace

Types layer_norm(const Call& call) {
  const TensorType* input = call.tensor(0);
  const Shape normalized = call.exprs(1);
  const size_t rank = input->sizes.size();
  if (normalized.empty() || normalized.size() > rank || !is_floating(input->dtype)) return unsupported(call, "operand");
  for (size_t i = 0; i < normalized.size(); ++i)
    if (!call.same(normalized[i], input->sizes[rank - normalized.size() + i]))
      return unsupported(call, "normalized shape");
  for (const size_t i : {2u, 3u})
    if (const TensorType* t = call.tensor(i); t != nullptr && !call.same(t->sizes, normalized))
      return unsupported(call, "weight or bias");
  const std::optional<DType> statistics = statistics_dtype(input->dtype, call.tensor(2), call.tensor(3));
  if (!statistics) return unsupported(call, "element types");
  Shape outer = input->sizes;
  for (size_t i = rank - normalized.size(); i < rank; ++i) outer[i] = 1;
  std::vector<TensorType> out{like(*input)};
  out.resize(3, contiguous_type(*statistics, std::move(outer), input->device));
  return out;
}

Types layer_norm_backward(const Call& call) {
  const TensorType *input = call.tensor(1), *weight = call.tensor(5), *bias = call.tensor(6);
  const Argument& mask = call[7];
  std::vector<TensorType> out;
  out.push_back(mask_at(mask, 0) ? like(*input) : undefined());
  out.push_back(mask_at(mask, 1) && weight != nullptr ? like(*weight) : undefined());
  out.push_back(mask_at(mask, 2) && bias != nullptr ? like(*bias) : undefined());
  return out;
}

Types group_norm(const Call& call) {
  const TensorType* input = call.tensor(0);
  if (input->sizes.size() < 2 || !is_floating(input->dtype)) return unsupported(call, "operand");
  const std::optional<DType> statistics = statistics_dtype(input->dtype, call.tensor(1), call.tensor(2));
  if (!statistics) return unsupported(call, "element types");
  const Expr groups = call.expr(6);
  const int format = suggested_format(call, *input);
  // The kernel asserts this; composites call contiguous() before.
  if (format == 0 ? !is_contiguous(call, *input) : !is_channels_last_contiguous(call, *input))
    return unsupported(call, "layout");
  TensorType y = like(*input);
  y.strides = strides_of_format(y.sizes, format);
  std::vector<TensorType> out;
  out.push_back(std::move(y));
  out.resize(3, contiguous_type(*statistics, {call.expr(3), groups}, input->device));
  return out;
}

Types group_norm_backward(const Call& call) {
  const TensorType *input = call.tensor(1), *weight = call.tensor(4);
  const Argument& mask = call[9];
  TensorType grad = like(*input);
  grad.strides = strides_of_format(grad.sizes, suggested_format(call, *input));
  std::vector<TensorType> out;
  out.push_back(mask_at(mask, 0) ? std::move(grad) : undefined());
  for (const size_t i : {1u, 2u}) out.push_back(mask_at(mask, i) && weight != nullptr ? like(*weight) : undefined());
  return out;
}

namespace {

// Output, saved mean, saved inverse deviation. The latter two are empty in evaluation.
Types batch_norm_results(const Call& call, const TensorType* weight, const TensorType* bias,
                         const TensorType* running_mean, const TensorType* running_var, bool training) {
  const TensorType* input = call.tensor(0);
  if (input->sizes.size() < 2 || !is_floating(input->dtype)) return unsupported(call, "operand");
  const std::optional<DType> statistics = statistics_dtype(input->dtype, weight, bias);
  const std::optional<DType> running = statistics_dtype(input->dtype, running_mean, running_var);
  if (!statistics || !running) return unsupported(call, "element types");
  TensorType y = like(*input);
  if (!is_contiguous(call, *input)) y.strides = strides_of_format(y.sizes, suggested_format(call, *input));
  std::vector<TensorType> out;
  out.push_back(std::move(y));
  out.resize(3, contiguous_type(*statistics == input->dtype ? *running : *statistics,
                                {training ? input->sizes[1] : Expr(0)}, input->device));
  return out;
}

}  // namespace

Types batch_norm(const Call& call) {
  const bool has_stats = call.op.id != OpId::_native_batch_norm_legit_no_stats;
  const bool training =
      call.op.id == OpId::_native_batch_norm_legit_no_training ? false : call.boolean(has_stats ? 5 : 3);
  if (has_stats)
    for (const size_t i : {3u, 4u})
      if (const TensorType* t = call.tensor(i);
          !training && (t == nullptr || (t->dtype != call.tensor(0)->dtype && t->dtype != DType::F32)))
        return unsupported(call, "running statistics");
  return batch_norm_results(call, call.tensor(1), call.tensor(2), has_stats ? call.tensor(3) : nullptr,
                            has_stats ? call.tensor(4) : nullptr, training);
}

Types batch_norm_functional(const Call& call) {
  const TensorType *mean = call.tensor(3), *variance = call.tensor(4);
  if (mean == nullptr || variance == nullptr) return unsupported(call, "running statistics");
  Types results = batch_norm_results(call, call.tensor(1), call.tensor(2), mean, variance, call.boolean(5));
  if (!results.ok()) return results;
  std::vector<TensorType> out = std::move(results).value();
  for (const TensorType* t : {mean, variance}) {
    out.push_back(like(*t));
    out.back().strides = preserved_strides(call, *t);
  }
  return out;
}

Types batch_norm_backward(const Call& call) {
  const TensorType *input = call.tensor(1), *weight = call.tensor(2);
  const Argument& mask = call[9];
  TensorType grad = like(*input);
  grad.strides = strides_of_format(grad.sizes, suggested_format(call, *input));
  const DType parameter = weight != nullptr ? weight->dtype : input->dtype;
  std::vector<TensorType> out;
  out.push_back(mask_at(mask, 0) ? std::move(grad) : undefined());
  for (const size_t i : {1u, 2u})
    out.push_back(mask_at(mask, i) ? contiguous_type(parameter, {input->sizes[1]}, input->device) : undefined());
  return out;
}

Types rms_norm(const Call& call) {
  const TensorType *input = call.tensor(0), *weight = call.tensor(2);
  const Shape normalized = call.exprs(1);
  const size_t rank = input->sizes.size();
  if (normalized.empty() || normalized.size() > rank || !is_floating(input->dtype)) return unsupported(call, "operand");
  if (weight != nullptr && weight->dtype != input->dtype) return unsupported(call, "element types");
  if (!is_contiguous(call, *input)) return unsupported(call, "layout");
  Shape outer = input->sizes;
  for (size_t i = rank - normalized.size(); i < rank; ++i) outer[i] = 1;
  const DType statistics = size_of(input->dtype) == 2 ? DType::F32 : input->dtype;
  std::vector<TensorType> out{like(*input)};
  out.push_back(contiguous_type(statistics, std::move(outer), input->device));
  return out;
}

Types rms_norm_backward(const Call& call) {
  const TensorType *input = call.tensor(1), *weight = call.tensor(4);
  const Argument& mask = call[5];
  std::vector<TensorType> out;
  out.push_back(mask_at(mask, 0) ? like(*input) : undefined());
  out.push_back(mask_at(mask, 1) && weight != nullptr ? like(*weight) : undefined());
  return out;
}

}  // namespace braze::graph::rules
