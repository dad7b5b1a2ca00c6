// Scaled dot-product attention on the CPU, built ahead for each instruction set.
//
//   out[b, h, i, :] = sum_j softmax_j(scale * <q[b, h, i], k[b, h, j]> + mask[b, h, i, j]) v[b, h, j, :]
//
// Keys and values of one head are packed once; a block of query rows then has its whole score row in L2, so the softmax
// is exact and in one piece. As ATen's CPU kernel, a row whose every score is -inf gives zeros, and `causal` lets row i
// see keys j <= i.
//
// Queries, keys, values and results are of one element type; scores, softmax and sums are single-precision. Where the
// machine multiplies all bf16 in pairs, probabilities are rounded to bf16 for the second product, as in ATen's kernel.
#pragma once

#include <cstdint>

#include "braze/runtime/cpu/element.h"

namespace braze::runtime {

struct AttentionTensor {            // [batch, heads, length, features], the features contiguous; strides in elements
  void* data;
  int64_t batch_stride, head_stride, row_stride;
};

struct AttentionShape {
  int64_t batch, heads, key_heads;  // heads is a multiple of key_heads (grouped queries)
  int64_t queries, keys, features, value_features;
};

struct AttentionMask {              // added to the scores; strides of 0 broadcast; data == nullptr: none
  const void* data = nullptr;
  Element element = Element::F32;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;   // the last dimension is contiguous
};

struct AttentionRows {              // [batch, heads, queries]: one number a row of scores; data == nullptr: not wanted
  float* data = nullptr;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
};

// log_sums receives log(sum_j exp(scores)) for the backward pass; 0 for a row whose every score is -inf.
void attention(Element element, const AttentionShape& shape, AttentionTensor q, AttentionTensor k, AttentionTensor v,
               const AttentionMask& mask, bool causal, float scale, AttentionTensor out, const AttentionRows& log_sums);

struct AttentionGradients { AttentionTensor q, k, v; };   // data == nullptr: not wanted

// The gradients for `grad_out`, with what attention() gave. shape.key_heads == shape.heads.
void attention_backward(Element element, const AttentionShape& shape, AttentionTensor q, AttentionTensor k, AttentionTensor v,
                        AttentionTensor out, AttentionTensor grad_out, const AttentionRows& log_sums,
                        const AttentionMask& mask, bool causal, float scale, const AttentionGradients& gradients);

}  // namespace braze::runtime
