#include "braze/runtime/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "braze/runtime/cpu/isa.h"
#include "braze/runtime/cpu/scratch.h"
#include "braze/runtime/parallel.h"

namespace braze::runtime {
namespace {

using cpu::Isa;
using cpu::Products;

constexpr int64_t kQueryRows = 24;     // a multiple of the tile's rows; their score rows stay in L2

thread_local Scratch key_scratch, value_scratch, score_scratch, out_scratch, query_scratch, mask_scratch;

const char* moved(const void* data, int64_t elements, int64_t bytes) { return static_cast<const char*>(data) + elements * bytes; }
char* moved(void* data, int64_t elements, int64_t bytes) { return static_cast<char*>(data) + elements * bytes; }

struct Head {
  const char *q, *k, *v, *mask;
  char* out;
  float* log_sums;
};

// Work on one block of query rows after the other, with the packed keys and values of their head.
class Attention {
 public:
  Attention(const Isa& isa, Element element, const AttentionShape& shape, const AttentionTensor& q, const AttentionTensor& k,
            const AttentionTensor& v, const AttentionMask& mask, bool causal, float scale, const AttentionTensor& out,
            const AttentionRows& log_sums)
      : isa_(isa), products_(cpu::products(isa, element)), shape_(shape), q_(q), k_(k), v_(v), mask_(mask), causal_(causal),
        scale_(scale), out_(out), log_sums_(log_sums) {}

  Head head(int64_t b, int64_t h, int64_t group) const {
    const auto at = [&](const AttentionTensor& x, int64_t i) {
      return moved(x.data, b * x.batch_stride + i * x.head_stride, products_.bytes);
    };
    return {at(q_, h), at(k_, h / group), at(v_, h / group),
            mask_.data == nullptr ? nullptr : moved(mask_.data, b * mask_.batch_stride + h * mask_.head_stride, size_of(mask_.element)),
            at(out_, h),
            log_sums_.data == nullptr ? nullptr : log_sums_.data + b * log_sums_.batch_stride + h * log_sums_.head_stride};
  }

  // Keys to [ceil(keys / panel)][features][panel] and values to [ceil(value_features / panel)][keys][panel], in packed rows.
  void pack(const Head& head) {
    keys_ = key_scratch.at_least(rounded_up(shape_.keys, isa_.panel) * std::max<int64_t>(1, key_rows()));
    values_ = value_scratch.at_least(rounded_up(shape_.value_features, isa_.panel) * std::max<int64_t>(1, value_rows()));
    for (int64_t j = 0; j < shape_.keys; j += isa_.panel)
      products_.pack(moved(head.k, j * k_.row_stride, products_.bytes), 1, k_.row_stride, shape_.features,
                     std::min(isa_.panel, shape_.keys - j), keys_ + j * key_rows());
    for (int64_t j = 0; j < shape_.value_features; j += isa_.panel)
      products_.pack(moved(head.v, j, products_.bytes), v_.row_stride, 1, shape_.keys,
                     std::min(isa_.panel, shape_.value_features - j), values_ + j * value_rows());
  }

  // Query rows [first, last) of one head.
  void block(const Head& head, int64_t first, int64_t last) {
    const int64_t rows = last - first, panel = isa_.panel;
    const int64_t visible = causal_ ? std::min(shape_.keys, last) : shape_.keys;
    const int64_t stride = rounded_up(shape_.keys, panel);
    float* scores = score_scratch.at_least(2 * kQueryRows * stride);
    const void* q = moved(head.q, first * q_.row_stride, products_.bytes);
    int64_t q_stride = q_.row_stride;
    if (products_.a_bytes != products_.bytes) {
      float* taken = query_scratch.at_least(kQueryRows * std::max<int64_t>(1, shape_.features));
      products_.take_rows(q, q_stride, 1, rows, shape_.features, taken, shape_.features);
      q = taken;
      q_stride = shape_.features;
    }
    for (int64_t j = 0; j < visible; j += panel)
      products_.multiply(rows, std::min(panel, visible - j), shape_.features, q, q_stride, keys_ + j * key_rows(), scores + j, stride, false);
    // Probabilities as the second product reads them.
    const bool narrow = products_.a_bytes != static_cast<int64_t>(sizeof(float));
    void* probabilities = narrow ? scores + kQueryRows * stride : scores;
    float inverse[kQueryRows];
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t n = causal_ ? std::min(visible, first + r + 1) : visible;
      float* row = scores + r * stride;
      float largest;
      const float sum = isa_.softmax_row(row, n, scale_, mask_row(head, first + r, n), &largest);
      inverse[r] = sum == 0.0f ? 0.0f : 1.0f / sum;
      if (head.log_sums != nullptr)
        head.log_sums[(first + r) * log_sums_.row_stride] = sum == 0.0f ? 0.0f : largest + std::log(sum);
      std::memset(row + n, 0, static_cast<size_t>(visible - n) * sizeof(float));
      if (narrow) products_.from_floats(row, visible, moved(probabilities, r * stride, products_.a_bytes));
    }
    const int64_t width = rounded_up(shape_.value_features, panel);
    float* out = out_scratch.at_least(kQueryRows * width);
    for (int64_t j = 0; j < width; j += panel)
      products_.multiply(rows, std::min(panel, shape_.value_features - j), visible, probabilities, stride, values_ + j * value_rows(), out + j, width, false);
    for (int64_t r = 0; r < rows; ++r) {
      isa_.scale_row(out + r * width, shape_.value_features, inverse[r]);
      products_.from_floats(out + r * width, shape_.value_features, moved(head.out, (first + r) * out_.row_stride, products_.bytes));
    }
  }

 private:
  int64_t key_rows() const { return (shape_.features + products_.per_lane - 1) / products_.per_lane; }
  int64_t value_rows() const { return (shape_.keys + products_.per_lane - 1) / products_.per_lane; }

  const float* mask_row(const Head& head, int64_t row, int64_t n) const {
    if (head.mask == nullptr) return nullptr;
    const char* from = moved(head.mask, row * mask_.row_stride, size_of(mask_.element));
    if (mask_.element == Element::F32) return reinterpret_cast<const float*>(from);
    float* floats = mask_scratch.at_least(shape_.keys);
    cpu::products(isa_, mask_.element).to_floats(from, n, floats);
    return floats;
  }

  const Isa& isa_;
  const Products& products_;
  const AttentionShape& shape_;
  const AttentionTensor &q_, &k_, &v_;
  const AttentionMask& mask_;
  const bool causal_;
  const float scale_;
  const AttentionTensor& out_;
  const AttentionRows& log_sums_;
  float *keys_ = nullptr, *values_ = nullptr;
};

}  // namespace

void attention(Element element, const AttentionShape& shape, AttentionTensor q, AttentionTensor k, AttentionTensor v,
               const AttentionMask& mask, bool causal, float scale, AttentionTensor out, const AttentionRows& log_sums) {
  const Isa& isa = *cpu::isa();
  const int64_t heads = shape.batch * shape.heads;
  // Few heads are split by query blocks too, at the price of packing a head once a part.
  const int64_t blocks = (shape.queries + kQueryRows - 1) / kQueryRows;
  int64_t parts = 1;
  while (heads * parts < 2 * thread_count() && parts * 2 <= blocks) parts *= 2;
  const int64_t blocks_each = (blocks + parts - 1) / parts;
  // Blocks of about one size: a last one of few rows would be slow for what it is.
  const int64_t block_rows = rounded_up((shape.queries + blocks - 1) / std::max<int64_t>(blocks, 1), isa.tile_rows);
  const int64_t group = shape.heads / shape.key_heads;
  const auto task = [&](int64_t begin, int64_t end) {
    Attention work(isa, element, shape, q, k, v, mask, causal, scale, out, log_sums);
    int64_t packed = -1;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t index = t / parts, b = index / shape.heads, h = index % shape.heads;
      const Head head = work.head(b, h, group);
      const int64_t key_head = b * shape.key_heads + h / group;
      if (key_head != packed) work.pack(head);
      packed = key_head;
      const int64_t last_block = std::min(blocks, (t % parts + 1) * blocks_each);
      for (int64_t block = t % parts * blocks_each; block < last_block; ++block)
        work.block(head, block * block_rows, std::min(shape.queries, (block + 1) * block_rows));
    }
  };
  const int64_t work = heads * shape.queries * shape.keys * (shape.features + shape.value_features);
  if (work < 150'000) return task(0, heads * parts);
  run_parallel_tasks(heads * parts, task);
}

}  // namespace braze::runtime
