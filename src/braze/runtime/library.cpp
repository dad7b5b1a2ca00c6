#include "braze/runtime/library.h"

#include <array>
#include <cmath>
#include <optional>

#include "braze/runtime/cpu/attention.h"
#include "braze/runtime/cpu/convolution.h"
#include "braze/runtime/cpu/matmul.h"

namespace braze::runtime {
namespace {

using graph::OpId;

std::optional<Element> element_of(const graph::Value* value) {
  if (value == nullptr || value->type.device.kind != Device::Kind::Cpu || !value->type.is_strided) return std::nullopt;
  if (value->type.dtype == DType::F32) return Element::F32;
  if (value->type.dtype == DType::BF16) return Element::BF16;
  if (value->type.dtype == DType::F16) return Element::F16;
  return std::nullopt;
}

std::optional<double> number(const graph::Argument& argument) {
  if (argument.is<double>()) return argument.as<double>();
  if (argument.is<graph::Expr>()) {
    if (auto value = argument.as<graph::Expr>().maybe_constant()) return static_cast<double>(*value);
  }
  return std::nullopt;
}

// mm(a, b), addmm(bias, a, b) with a row vector bias and factors 1, bmm(a, b).
class MatrixProduct final : public LibraryCall {
 public:
  MatrixProduct(Element element, bool has_bias, bool batched) : element_(element), has_bias_(has_bias), batched_(batched) {}

  std::string name() const override { return batched_ ? "batched matmul" : has_bias_ ? "matmul+bias" : "matmul"; }

  bool accepts(std::span<const StridedData> operands, std::span<const StridedData> outs) const override {
    const StridedData& out = outs[0];
    const size_t first = has_bias_ ? 1 : 0;
    const size_t rank = operands[first].sizes.size();
    if (out.sizes[rank - 1] > 1 && out.strides[rank - 1] != 1) return false;
    if (!has_bias_) return true;
    const StridedData& bias = operands[0];
    const size_t last = bias.sizes.size();
    if (last == 0 || bias.sizes[last - 1] != out.sizes[1]) return false;
    if (bias.sizes[last - 1] > 1 && bias.strides[last - 1] != 1) return false;
    return last == 1 || (last == 2 && (bias.sizes[0] == 1 || bias.strides[0] == 0));
  }

  void run(std::span<const StridedData> operands, std::span<const StridedData> outs, int way) const override {
    const StridedData& out = outs[0];
    const size_t first = has_bias_ ? 1 : 0;
    const StridedData &a = operands[first], &b = operands[first + 1];
    const size_t d = batched_ ? 1 : 0;
    const int64_t m = a.sizes[d], k = a.sizes[d + 1], n = b.sizes[d + 1];
    const MatmulOperand left{a.data, a.strides[d], a.strides[d + 1]}, right = right_of(operands);
    const auto form = way == kByModel ? std::nullopt : std::optional(kForms.at(static_cast<size_t>(way)));
    if (batched_)
      matmul_batch(element_, a.sizes[0], m, n, k, left, a.strides[0], right, b.strides[0], out.data, out.strides[1], out.strides[0], form);
    else
      matmul(element_, m, n, k, left, right, out.data, out.strides[0], has_bias_ ? operands[0].data : nullptr, form);
  }

  std::vector<std::string> ways(std::span<const StridedData> operands) const override {
    static constexpr std::array kNames = {"dot", "sums", "packed"};
    std::vector<std::string> out;
    for (size_t i = 0; i < kForms.size(); ++i) out.emplace_back(has_form(kForms[i], right_of(operands)) ? kNames[i] : "");
    return out;
  }

  std::string reason(std::span<const StridedData> operands) const override {
    const StridedData& a = operands[has_bias_ ? 1 : 0];
    const size_t d = batched_ ? 1 : 0;
    return name() + ": " + choose_matmul(element_, a.sizes[d], a.sizes[d + 1], right_of(operands)).reason;
  }

 private:
  static constexpr std::array kForms = {MatmulForm::Dot, MatmulForm::Sums, MatmulForm::Packed};

  MatmulOperand right_of(std::span<const StridedData> operands) const {
    const StridedData& b = operands[has_bias_ ? 2 : 1];
    const size_t d = batched_ ? 1 : 0;
    return {b.data, b.strides[d], b.strides[d + 1]};
  }

  Element element_;
  bool has_bias_, batched_;
};

AttentionTensor attention_tensor(const StridedData& t) {
  if (t.sizes.empty()) return {nullptr, 0, 0, 0};   // an unused result
  return {t.data, t.strides[0], t.strides[1], t.strides[2]};
}

// A mask whose missing dimensions and those of size 1 broadcast.
AttentionMask attention_mask(const StridedData& m, Element element) {
  const size_t rank = m.sizes.size();
  const auto stride = [&](size_t from_end) {
    return rank < from_end || m.sizes[rank - from_end] == 1 ? 0 : m.strides[rank - from_end];
  };
  return {m.data, element, stride(4), stride(3), stride(2)};
}

bool accepts_mask(const StridedData& mask, int64_t keys) {
  const size_t rank = mask.sizes.size();
  if (rank < 2 || rank > 4 || mask.sizes[rank - 1] != keys) return false;
  return mask.sizes[rank - 1] == 1 || mask.strides[rank - 1] == 1;
}

bool has_contiguous_features(const StridedData& t) { return t.sizes[3] <= 1 || t.strides[3] == 1; }

// What attention and its backward pass read off their node.
struct AttentionOptions {
  Element element, mask_element;
  bool causal;
  std::optional<double> scale;
  float factor(int64_t features) const {
    return static_cast<float>(scale.value_or(1.0 / std::sqrt(static_cast<double>(features))));
  }
};

// _scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout_p, is_causal, *, attn_mask, scale) with no dropout.
class FlashAttention final : public LibraryCall {
 public:
  explicit FlashAttention(AttentionOptions options) : options_(options) {}

  std::string name() const override { return options_.causal ? "causal attention" : "attention"; }
  size_t n_results() const override { return 2; }

  bool accepts(std::span<const StridedData> operands, std::span<const StridedData> outs) const override {
    for (size_t i = 0; i < 3; ++i)
      if (!has_contiguous_features(operands[i])) return false;
    if (!has_contiguous_features(outs[0])) return false;
    if (operands[0].sizes[1] % operands[1].sizes[1] != 0 || operands[1].sizes[1] != operands[2].sizes[1]) return false;
    return operands.size() == 3 || accepts_mask(operands[3], operands[1].sizes[2]);
  }

  void run(std::span<const StridedData> operands, std::span<const StridedData> outs, int) const override {
    const StridedData &q = operands[0], &k = operands[1], &v = operands[2];
    const AttentionShape shape{q.sizes[0], q.sizes[1], k.sizes[1], q.sizes[2], k.sizes[2], q.sizes[3], v.sizes[3]};
    AttentionRows log_sums;
    if (outs.size() > 1 && outs[1].data != nullptr)
      log_sums = {reinterpret_cast<float*>(outs[1].data), outs[1].strides[0], outs[1].strides[1], outs[1].strides[2]};
    attention(options_.element, shape, attention_tensor(q), attention_tensor(k), attention_tensor(v),
              operands.size() == 4 ? attention_mask(operands[3], options_.mask_element) : AttentionMask(), options_.causal,
              options_.factor(shape.features), attention_tensor(outs[0]), log_sums);
  }

 private:
  AttentionOptions options_;
};

// ..._backward(grad_out, q, k, v, out, logsumexp, dropout_p, is_causal, *, attn_mask, scale) with no dropout.
class FlashAttentionBackward final : public LibraryCall {
 public:
  explicit FlashAttentionBackward(AttentionOptions options) : options_(options) {}

  std::string name() const override { return "attention backward"; }
  size_t n_results() const override { return 3; }

  bool accepts(std::span<const StridedData> operands, std::span<const StridedData> outs) const override {
    for (size_t i = 0; i < 5; ++i)
      if (!has_contiguous_features(operands[i])) return false;
    for (const StridedData& out : outs)
      if (!out.sizes.empty() && !has_contiguous_features(out)) return false;
    if (operands[1].sizes[1] != operands[2].sizes[1] || operands[1].sizes[1] != operands[3].sizes[1]) return false;
    return operands.size() == 6 || accepts_mask(operands[6], operands[2].sizes[2]);
  }

  void run(std::span<const StridedData> operands, std::span<const StridedData> outs, int) const override {
    const StridedData &q = operands[1], &k = operands[2], &v = operands[3], &rows = operands[5];
    const AttentionShape shape{q.sizes[0], q.sizes[1], k.sizes[1], q.sizes[2], k.sizes[2], q.sizes[3], v.sizes[3]};
    const AttentionRows log_sums{reinterpret_cast<float*>(rows.data), rows.strides[0], rows.strides[1], rows.strides[2]};
    attention_backward(options_.element, shape, attention_tensor(q), attention_tensor(k), attention_tensor(v),
                       attention_tensor(operands[4]), attention_tensor(operands[0]), log_sums,
                       operands.size() == 7 ? attention_mask(operands[6], options_.mask_element) : AttentionMask(), options_.causal,
                       options_.factor(shape.features),
                       {attention_tensor(outs[0]), attention_tensor(outs[1]), attention_tensor(outs[2])});
  }

 private:
  AttentionOptions options_;
};

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups) over two dimensions.
class Convolution final : public LibraryCall {
 public:
  Convolution(std::array<int64_t, 2> stride, std::array<int64_t, 2> padding, std::array<int64_t, 2> dilation, int64_t groups)
      : stride_(stride), padding_(padding), dilation_(dilation), groups_(groups) {}

  std::string name() const override { return "convolution"; }

  bool accepts(std::span<const StridedData> operands, std::span<const StridedData> outs) const override {
    const StridedData& out = outs[0];
    const StridedData& weight = operands[1];
    int64_t expected = 1;
    for (size_t d = 4; d-- > 0; expected *= weight.sizes[d])
      if (weight.sizes[d] > 1 && weight.strides[d] != expected) return false;
    if (operands.size() == 3 && operands[2].sizes[0] > 1 && operands[2].strides[0] != 1) return false;
    for (int64_t size : out.sizes)
      if (size == 0) return false;
    return true;
  }

  void run(std::span<const StridedData> operands, std::span<const StridedData> outs, int) const override {
    const StridedData& out = outs[0];
    const auto image = [](const StridedData& t) {
      return ImageTensor{reinterpret_cast<float*>(t.data), {t.strides[0], t.strides[1], t.strides[2], t.strides[3]}};
    };
    const StridedData &in = operands[0], &weight = operands[1];
    const ConvolutionShape shape{in.sizes[0], in.sizes[1], in.sizes[2], in.sizes[3], out.sizes[1], out.sizes[2], out.sizes[3],
                                 weight.sizes[2], weight.sizes[3], stride_, padding_, dilation_, groups_};
    const float* bias = operands.size() == 3 ? reinterpret_cast<const float*>(operands[2].data) : nullptr;
    convolution(shape, image(in), reinterpret_cast<const float*>(weight.data), bias, image(out));
  }

 private:
  std::array<int64_t, 2> stride_, padding_, dilation_;
  int64_t groups_;
};

std::optional<std::array<int64_t, 2>> pair_of(const graph::Argument& argument) {
  if (!argument.is<graph::ArgumentList>()) return std::nullopt;
  const graph::ArgumentList& list = argument.as<graph::ArgumentList>();
  if (list.empty() || list.size() > 2) return std::nullopt;
  const auto first = number(list[0]), last = number(list.back());   // one number stands for both dimensions
  if (!first || !last) return std::nullopt;
  return std::array<int64_t, 2>{static_cast<int64_t>(*first), static_cast<int64_t>(*last)};
}

std::unique_ptr<LibraryCall> convolution_call(const graph::Node& node) {
  const graph::Argument& input = node.argument("input");
  if (!input.is<graph::Value*>() || input.as<graph::Value*>()->type.dim() != 4) return nullptr;
  const graph::Argument& transposed = node.argument("transposed");
  if (!transposed.is<bool>() || transposed.as<bool>()) return nullptr;
  const auto stride = pair_of(node.argument("stride")), padding = pair_of(node.argument("padding")),
             dilation = pair_of(node.argument("dilation"));
  const auto groups = number(node.argument("groups"));
  if (!stride || !padding || !dilation || !groups) return nullptr;
  return std::make_unique<Convolution>(*stride, *padding, *dilation, static_cast<int64_t>(*groups));
}

template <class Call>
std::unique_ptr<LibraryCall> attention_call(const graph::Node& node, Element element) {
  if (number(node.argument("dropout_p")) != 0.0) return nullptr;
  const graph::Argument& scale = node.argument("scale");
  if (!scale.is_none() && !number(scale)) return nullptr;
  const graph::Argument& causal = node.argument("is_causal");
  const graph::Argument& mask = node.argument("attn_mask");
  const bool masked = mask.is<graph::Value*>() && mask.as<graph::Value*>() != nullptr;
  const auto mask_element = masked ? element_of(mask.as<graph::Value*>()) : Element::F32;
  if (!mask_element) return nullptr;
  return std::make_unique<Call>(AttentionOptions{element, *mask_element,
                                                 causal.is<bool>() ? causal.as<bool>() : number(causal) != 0.0, number(scale)});
}

// Operands that need not be of the results' type: a mask, and the sums beside attention, which are single-precision.
bool may_differ(const graph::Node& node, const graph::Value* value) {
  const auto is = [&](std::string_view name) {
    const graph::Argument& argument = node.argument(name);
    return argument.is<graph::Value*>() && argument.as<graph::Value*>() == value;
  };
  switch (node.op->id) {
    case OpId::_scaled_dot_product_flash_attention_for_cpu: return is("attn_mask");
    case OpId::_scaled_dot_product_flash_attention_for_cpu_backward:
      return is("attn_mask") || (is("logsumexp") && element_of(value) == Element::F32);
    default: return false;
  }
}

}  // namespace

std::unique_ptr<LibraryCall> find_library_call(const graph::Node& node) {
  if (!matmul_available() || node.results.empty()) return nullptr;
  const auto element = element_of(node.results[0]);
  if (!element) return nullptr;
  bool same = true;
  for (const graph::Argument& argument : node.arguments)
    for_each_value(argument, [&](const graph::Value* value) { same &= element_of(value) == element || may_differ(node, value); });
  if (!same) return nullptr;
  switch (node.op->id) {
    case OpId::mm: return std::make_unique<MatrixProduct>(*element, false, false);
    case OpId::bmm: return std::make_unique<MatrixProduct>(*element, false, true);
    case OpId::addmm:
      if (number(node.argument("beta")) != 1.0 || number(node.argument("alpha")) != 1.0) return nullptr;
      return std::make_unique<MatrixProduct>(*element, true, false);
    case OpId::_scaled_dot_product_flash_attention_for_cpu: return attention_call<FlashAttention>(node, *element);
    case OpId::_scaled_dot_product_flash_attention_for_cpu_backward: return attention_call<FlashAttentionBackward>(node, *element);
    case OpId::convolution: return *element == Element::F32 ? convolution_call(node) : nullptr;
    default: return nullptr;   // every other op is ATen's
  }
}

}  // namespace braze::runtime
