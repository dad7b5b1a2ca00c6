#include <algorithm>
#include <cstring>
#include <utility>

#include "braze/runtime/cpu/attention.h"
#include "braze/runtime/cpu/isa.h"
#include "braze/runtime/cpu/scratch.h"
#include "braze/runtime/parallel.h"

namespace braze::runtime {
namespace {

using cpu::Isa;
using cpu::Products;

// With P = exp(scores - log_sums), one row of queries gives
//   dV += P^T dO     dP = dO V^T     dS = P * (dP - <dO, O>)     dQ = scale * dS K     dK += scale * dS^T Q
constexpr int64_t kQueryRows = 24;      // rows of scores at a time, as in attention()
constexpr int64_t kChunkRows = 240;     // rows whose transposed P and dS are kept for dV and dK

thread_local Scratch score_scratch, gradient_scratch, transposed_scratch, packed_scratch, sum_scratch, float_scratch;

struct Operands {                       // of one head
  const float *q, *k, *v, *out, *grad_out, *log_sums, *mask;
  float *grad_q, *grad_k, *grad_v;
};

struct Strides { int64_t q, k, v, out, grad_out, log_sums, mask, grad_q, grad_k, grad_v; };

// One head. Scratch memory is laid out once: packed operands, then sums.
class Head {
 public:
  Head(const Isa& isa, const AttentionShape& shape, const Operands& x, const Strides& strides, bool causal, float scale)
      : isa_(isa), shape_(shape), x_(x), strides_(strides), causal_(causal), scale_(scale),
        columns_(rounded_up(shape.keys, isa.panel)),
        features_(rounded_up(shape.features, isa.panel)),
        value_features_(rounded_up(shape.value_features, isa.panel)) {}

  void run() {
    pack();
    const int64_t sums = shape_.keys * (features_ + value_features_);
    key_sums_ = sum_scratch.at_least(sums);
    value_sums_ = key_sums_ + shape_.keys * features_;
    std::memset(key_sums_, 0, static_cast<size_t>(sums) * sizeof(float));
    for (int64_t first = 0; first < shape_.queries; first += kChunkRows) chunk(first, std::min(shape_.queries, first + kChunkRows));
    if (x_.grad_k != nullptr)
      for (int64_t j = 0; j < shape_.keys; ++j) {
        isa_.scale_row(key_sums_ + j * features_, shape_.features, scale_);
        copy_row(x_.grad_k + j * strides_.grad_k, key_sums_ + j * features_, shape_.features);
      }
    if (x_.grad_v != nullptr)
      for (int64_t j = 0; j < shape_.keys; ++j)
        copy_row(x_.grad_v + j * strides_.grad_v, value_sums_ + j * value_features_, shape_.value_features);
  }

 private:
  static void copy_row(float* to, const float* from, int64_t n) { std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float)); }

  // Columns of B in panels one behind the other, each `rows` x panel.
  void pack_panels(const float* b, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t columns, float* out) const {
    for (int64_t j = 0; j < columns; j += isa_.panel)
      isa_.single.pack(b + j * column_stride, row_stride, column_stride, rows, std::min(isa_.panel, columns - j), out + j * rows);
  }

  void multiply_panels(int64_t rows, int64_t k, const float* a, int64_t a_stride, const float* packed, int64_t columns,
                       int64_t packed_rows, float* c, int64_t c_stride, bool accumulate) const {
    for (int64_t j = 0; j < columns; j += isa_.panel)
      isa_.single.multiply(rows, std::min(isa_.panel, columns - j), k, a, a_stride, packed + j * packed_rows, c + j, c_stride, accumulate);
  }

  void pack() {
    float* at = packed_scratch.at_least(columns_ * (shape_.features + shape_.value_features) + features_ * shape_.keys +
                                        (features_ + value_features_) * kChunkRows);
    const auto take = [&](int64_t n) { return std::exchange(at, at + n); };
    keys_for_scores_ = take(columns_ * shape_.features);
    values_ = take(columns_ * shape_.value_features);
    keys_ = take(features_ * shape_.keys);
    queries_ = take(features_ * kChunkRows);
    grad_out_ = take(value_features_ * kChunkRows);
    pack_panels(x_.k, 1, strides_.k, shape_.features, shape_.keys, keys_for_scores_);
    pack_panels(x_.v, 1, strides_.v, shape_.value_features, shape_.keys, values_);
    pack_panels(x_.k, strides_.k, 1, shape_.keys, shape_.features, keys_);
  }

  // Query rows [first, last): their dQ, and their part of dK and dV.
  void chunk(int64_t first, int64_t last) {
    const int64_t rows = last - first, visible = causal_ ? std::min(shape_.keys, last) : shape_.keys;
    float* p_transposed = transposed_scratch.at_least(2 * shape_.keys * kChunkRows);
    float* s_transposed = p_transposed + shape_.keys * kChunkRows;
    for (int64_t row = first; row < last; row += kQueryRows)
      block(row, std::min(last, row + kQueryRows), visible, p_transposed + (row - first), s_transposed + (row - first));
    if (x_.grad_v != nullptr) {
      pack_panels(x_.grad_out + first * strides_.grad_out, strides_.grad_out, 1, rows, shape_.value_features, grad_out_);
      multiply_panels(visible, rows, p_transposed, kChunkRows, grad_out_, shape_.value_features, rows, value_sums_,
                      value_features_, true);
    }
    if (x_.grad_k != nullptr) {
      pack_panels(x_.q + first * strides_.q, strides_.q, 1, rows, shape_.features, queries_);
      multiply_panels(visible, rows, s_transposed, kChunkRows, queries_, shape_.features, rows, key_sums_, features_, true);
    }
  }

  void block(int64_t first, int64_t last, int64_t visible, float* p_transposed, float* s_transposed) {
    const int64_t rows = last - first;
    float* p = score_scratch.at_least(kQueryRows * (columns_ + features_));
    float* grad_q = p + kQueryRows * columns_;
    float* s = gradient_scratch.at_least(kQueryRows * columns_);
    const float* grad_out = x_.grad_out + first * strides_.grad_out;
    multiply_panels(rows, shape_.features, x_.q + first * strides_.q, strides_.q, keys_for_scores_, visible, shape_.features,
                    p, columns_, false);
    multiply_panels(rows, shape_.value_features, grad_out, strides_.grad_out, values_, visible, shape_.value_features, s,
                    columns_, false);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = first + r, n = causal_ ? std::min(visible, row + 1) : visible;
      float *p_row = p + r * columns_, *s_row = s + r * columns_;
      isa_.exp_row(p_row, n, scale_, x_.mask == nullptr ? nullptr : x_.mask + row * strides_.mask,
                   x_.log_sums[row * strides_.log_sums]);
      const float *g = grad_out + r * strides_.grad_out, *o = x_.out + row * strides_.out;
      float shift = 0;
      isa_.single.dot(1, 1, shape_.value_features, g, 0, o, 0, &shift, 1, false);
      isa_.softmax_gradient_row(p_row, s_row, n, shift);
      const auto hidden = static_cast<size_t>(visible - n) * sizeof(float);
      std::memset(p_row + n, 0, hidden);
      std::memset(s_row + n, 0, hidden);
    }
    if (x_.grad_q != nullptr) {
      multiply_panels(rows, visible, s, columns_, keys_, shape_.features, shape_.keys, grad_q, features_, false);
      for (int64_t r = 0; r < rows; ++r) {
        isa_.scale_row(grad_q + r * features_, shape_.features, scale_);
        copy_row(x_.grad_q + (first + r) * strides_.grad_q, grad_q + r * features_, shape_.features);
      }
    }
    isa_.transpose(p, columns_, rows, visible, p_transposed, kChunkRows);
    isa_.transpose(s, columns_, rows, visible, s_transposed, kChunkRows);
  }

  const Isa& isa_;
  const AttentionShape& shape_;
  const Operands& x_;
  const Strides& strides_;
  bool causal_;
  float scale_;
  int64_t columns_, features_, value_features_;   // rounded up to whole panels
  float *keys_for_scores_ = nullptr, *values_ = nullptr, *keys_ = nullptr, *queries_ = nullptr, *grad_out_ = nullptr;
  float *key_sums_ = nullptr, *value_sums_ = nullptr;
};

// Floats for what of one head is 16-bit: operands and gradients, the mask.
int64_t floats_of_head(const AttentionShape& s, Element element, const AttentionMask& mask) {
  int64_t floats = element == Element::F32 ? 0 : 2 * (s.queries + s.keys) * (s.features + s.value_features);
  if (mask.data != nullptr && mask.element != Element::F32) floats += s.queries * s.keys;
  return floats;
}

// One head whose tensors are 16-bit, or whose mask is: copies of them in floats.
class FloatHead {
 public:
  FloatHead(const Products& products, int64_t floats) : products_(products), at_(float_scratch.at_least(floats)) {}

  const float* take(const void* from, const AttentionTensor& x, int64_t rows, int64_t columns, int64_t& stride) {
    return take(products_, from, x.row_stride, rows, columns, stride);
  }
  const float* take(const Products& products, const void* from, int64_t row_stride, int64_t rows, int64_t columns, int64_t& stride) {
    if (from == nullptr || products.bytes == static_cast<int64_t>(sizeof(float))) {
      stride = row_stride;
      return static_cast<const float*>(from);
    }
    float* to = place(rows, columns, stride);
    for (int64_t i = 0; i < rows; ++i)
      products.to_floats(static_cast<const char*>(from) + i * row_stride * products.bytes, columns, to + i * columns);
    return to;
  }

  // Where a gradient is to be written; give() then takes it to `to`.
  float* target(void* to, const AttentionTensor& x, int64_t rows, int64_t columns, int64_t& stride) {
    if (to == nullptr || products_.bytes == static_cast<int64_t>(sizeof(float))) {
      stride = x.row_stride;
      return static_cast<float*>(to);
    }
    return place(rows, columns, stride);
  }
  void give(const float* from, void* to, const AttentionTensor& x, int64_t rows, int64_t columns) const {
    if (to == nullptr || products_.bytes == static_cast<int64_t>(sizeof(float))) return;
    for (int64_t i = 0; i < rows; ++i)
      products_.from_floats(from + i * columns, columns, static_cast<char*>(to) + i * x.row_stride * products_.bytes);
  }

 private:
  float* place(int64_t rows, int64_t columns, int64_t& stride) {
    stride = columns;
    return std::exchange(at_, at_ + rows * columns);
  }

  const Products& products_;
  float* at_;
};

}  // namespace

void attention_backward(Element element, const AttentionShape& shape, AttentionTensor q, AttentionTensor k, AttentionTensor v,
                        AttentionTensor out, AttentionTensor grad_out, const AttentionRows& log_sums,
                        const AttentionMask& mask, bool causal, float scale, const AttentionGradients& gradients) {
  const Isa& isa = *cpu::isa();
  const Products& products = cpu::products(isa, element);
  const int64_t heads = shape.batch * shape.heads;
  const auto task = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / shape.heads, h = i % shape.heads;
      const auto at = [&](const AttentionTensor& x) -> void* {
        return x.data == nullptr ? nullptr : static_cast<char*>(x.data) + (b * x.batch_stride + h * x.head_stride) * products.bytes;
      };
      FloatHead floats(products, floats_of_head(shape, element, mask));
      Operands x{};
      Strides strides{};
      x.q = floats.take(at(q), q, shape.queries, shape.features, strides.q);
      x.k = floats.take(at(k), k, shape.keys, shape.features, strides.k);
      x.v = floats.take(at(v), v, shape.keys, shape.value_features, strides.v);
      x.out = floats.take(at(out), out, shape.queries, shape.value_features, strides.out);
      x.grad_out = floats.take(at(grad_out), grad_out, shape.queries, shape.value_features, strides.grad_out);
      x.log_sums = log_sums.data + b * log_sums.batch_stride + h * log_sums.head_stride;
      strides.log_sums = log_sums.row_stride;
      if (mask.data != nullptr)
        x.mask = floats.take(cpu::products(isa, mask.element),
                             static_cast<const char*>(mask.data) + (b * mask.batch_stride + h * mask.head_stride) * size_of(mask.element),
                             mask.row_stride, shape.queries, shape.keys, strides.mask);
      const AttentionGradients& g = gradients;
      x.grad_q = floats.target(at(g.q), g.q, shape.queries, shape.features, strides.grad_q);
      x.grad_k = floats.target(at(g.k), g.k, shape.keys, shape.features, strides.grad_k);
      x.grad_v = floats.target(at(g.v), g.v, shape.keys, shape.value_features, strides.grad_v);
      Head(isa, shape, x, strides, causal, scale).run();
      floats.give(x.grad_q, at(g.q), g.q, shape.queries, shape.features);
      floats.give(x.grad_k, at(g.k), g.k, shape.keys, shape.features);
      floats.give(x.grad_v, at(g.v), g.v, shape.keys, shape.value_features);
    }
  };
  const int64_t work = heads * shape.queries * shape.keys * (3 * shape.features + 2 * shape.value_features);
  if (work < 150'000) return task(0, heads);
  run_parallel_tasks(heads, task);
}

}  // namespace braze::runtime
