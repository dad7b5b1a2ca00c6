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

constexpr int64_t kQueryRows = 24;     // a multiple of the tile's rows; their score rows stay in L2

thread_local Scratch key_scratch, value_scratch, score_scratch, out_scratch;

struct Head {
  const float *q, *k, *v, *mask;
  float* out;
  float* log_sums;
};

// Query rows [first, last) of one head, with packed keys [ceil(keys / panel)][features][panel] and packed values
// [ceil(value_features / panel)][keys][panel].
void query_block(const Isa& isa, const AttentionShape& shape, const Head& head, int64_t q_stride, int64_t mask_stride,
                 int64_t out_stride, int64_t log_stride, const float* keys, const float* values, bool causal, float scale,
                 int64_t first, int64_t last) {
  const int64_t rows = last - first, panel = isa.panel;
  const int64_t visible = causal ? std::min(shape.keys, last) : shape.keys;
  const int64_t stride = rounded_up(shape.keys, panel);
  float* scores = score_scratch.at_least(kQueryRows * stride);
  const float* q = head.q + first * q_stride;
  for (int64_t j = 0; j < visible; j += panel)
    isa.multiply(rows, shape.features, q, q_stride, keys + j * shape.features, scores + j, stride, false, nullptr, false);
  float inverse[kQueryRows];
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t n = causal ? std::min(visible, first + r + 1) : visible;
    float* row = scores + r * stride;
    const float* mask = head.mask == nullptr ? nullptr : head.mask + (first + r) * mask_stride;
    float largest;
    const float sum = isa.softmax_row(row, n, scale, mask, &largest);
    inverse[r] = sum == 0.0f ? 0.0f : 1.0f / sum;
    if (head.log_sums != nullptr) head.log_sums[(first + r) * log_stride] = sum == 0.0f ? 0.0f : largest + std::log(sum);
    std::memset(row + n, 0, static_cast<size_t>(visible - n) * sizeof(float));
  }
  const int64_t width = rounded_up(shape.value_features, panel);
  float* out = out_scratch.at_least(kQueryRows * width);
  for (int64_t j = 0; j < width; j += panel)
    isa.multiply(rows, visible, scores, stride, values + j * shape.keys, out + j, width, false, nullptr, false);
  for (int64_t r = 0; r < rows; ++r) {
    isa.scale_row(out + r * width, shape.value_features, inverse[r]);
    std::memcpy(head.out + (first + r) * out_stride, out + r * width,
                static_cast<size_t>(shape.value_features) * sizeof(float));
  }
}

void pack_head(const Isa& isa, const AttentionShape& shape, const Head& head, int64_t k_stride, int64_t v_stride,
               float* keys, float* values) {
  for (int64_t j = 0; j < shape.keys; j += isa.panel)
    isa.pack(head.k + j * k_stride, 1, k_stride, shape.features, std::min(isa.panel, shape.keys - j),
             keys + j * shape.features);
  for (int64_t j = 0; j < shape.value_features; j += isa.panel)
    isa.pack(head.v + j, v_stride, 1, shape.keys, std::min(isa.panel, shape.value_features - j), values + j * shape.keys);
}

}  // namespace

void attention(const AttentionShape& shape, AttentionTensor q, AttentionTensor k, AttentionTensor v,
               const AttentionMask& mask, bool causal, float scale, AttentionTensor out, const AttentionRows& log_sums) {
  const Isa& isa = *cpu::isa();
  const int64_t heads = shape.batch * shape.heads;
  // Few heads are split by query blocks too, at the price of packing a head once a part.
  const int64_t blocks = (shape.queries + kQueryRows - 1) / kQueryRows;
  int64_t parts = 1;
  while (heads * parts < 2 * thread_count() && parts * 2 <= blocks) parts *= 2;
  const int64_t blocks_each = (blocks + parts - 1) / parts;
  const int64_t group = shape.heads / shape.key_heads;
  const auto task = [&](int64_t begin, int64_t end) {
    float* keys = key_scratch.at_least(rounded_up(shape.keys, isa.panel) * std::max<int64_t>(1, shape.features));
    float* values = value_scratch.at_least(rounded_up(shape.value_features, isa.panel) * std::max<int64_t>(1, shape.keys));
    int64_t packed = -1;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t index = t / parts, b = index / shape.heads, h = index % shape.heads;
      const auto at = [&](const AttentionTensor& x, int64_t head) { return x.data + b * x.batch_stride + head * x.head_stride; };
      const Head head{at(q, h), at(k, h / group), at(v, h / group),
                      mask.data == nullptr ? nullptr : mask.data + b * mask.batch_stride + h * mask.head_stride, at(out, h),
                      log_sums.data == nullptr ? nullptr : log_sums.data + b * log_sums.batch_stride + h * log_sums.head_stride};
      const int64_t key_head = b * shape.key_heads + h / group;
      if (key_head != packed) pack_head(isa, shape, head, k.row_stride, v.row_stride, keys, values);
      packed = key_head;
      const int64_t last_block = std::min(blocks, (t % parts + 1) * blocks_each);
      for (int64_t block = t % parts * blocks_each; block < last_block; ++block)
        query_block(isa, shape, head, q.row_stride, mask.row_stride, out.row_stride, log_sums.row_stride, keys,
                    values, causal, scale, block * kQueryRows, std::min(shape.queries, (block + 1) * kQueryRows));
    }
  };
  const int64_t work = heads * shape.queries * shape.keys * (shape.features + shape.value_features);
  if (work < 150'000) return task(0, heads * parts);
  run_parallel_tasks(heads * parts, task);
}

}  // namespace braze::runtime
