// One instruction set's kernels, built ahead with its flags: matrix tiles and softmax rows.
#pragma once

#include <cstdint>

namespace braze::runtime::cpu {

struct Isa {
  int64_t panel;        // columns of a packed panel
  int64_t tile_rows;
  int64_t most_dot_rows;   // up to so many rows of A `dot` is faster than packing B's panels
  // Packs rows [0, k) of `columns` (<= panel) columns into out[k][panel], padding with zeros.
  void (*pack)(const float* b, int64_t row_stride, int64_t column_stride, int64_t k, int64_t columns, float* out);
  // C[rows, panel] (+)= A[rows, k] * packed[k][panel], rows <= tile_rows at a time inside; then bias and relu.
  void (*multiply)(int64_t m, int64_t k, const float* a, int64_t a_stride, const float* packed, float* c,
                   int64_t c_stride, bool accumulate, const float* bias, bool relu);
  // C[m, n] (+)= A[m, k] * B[n, k] transposed, both with contiguous rows; then bias and relu.
  void (*dot)(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
              float* c, int64_t c_stride, bool accumulate, const float* bias, bool relu);
  // C[rows, panel] (+)= sum over taps of A_tap[rows, k] * packed[tap][k][panel], rows <= tile_rows; the rows of A_tap are
  // at pointers[tap * rows + row].
  void (*multiply_indirect)(int64_t rows, int64_t taps, int64_t k, const float* const* pointers, const float* packed,
                            float* c, int64_t c_stride, bool accumulate, const float* bias, bool relu);
  // Convolution weights w[filter][channel][tap] to out[tap][channel][panel].
  void (*pack_filters)(const float* w, int64_t filter_stride, int64_t channels, int64_t taps, int64_t filters, float* out);
  // out[c] = bias[c] + sum of inputs[tap][c] * weights[tap][c]; a null input is padding.
  void (*depthwise_pixel)(int64_t channels, int64_t taps, const float* const* inputs, const float* weights,
                          const float* bias, float* out);
  void (*transpose)(const float* in, int64_t in_stride, int64_t rows, int64_t columns, float* out, int64_t out_stride);
  // row[i] = exp(x[i] - largest x) with x = row * scale (+ mask): returns the sum, or 0 if every x is -inf (then row is 0).
  float (*softmax_row)(float* row, int64_t n, float scale, const float* mask, float* largest);
  // row[i] *= factor
  void (*scale_row)(float* row, int64_t n, float factor);
  // row[i] = exp(row[i] * scale (+ mask[i]) - shift)
  void (*exp_row)(float* row, int64_t n, float scale, const float* mask, float shift);
  // gradient[i] = p[i] * (gradient[i] - shift)
  void (*softmax_gradient_row)(const float* p, float* gradient, int64_t n, float shift);
};

extern const Isa kAvx512;
extern const Isa kAvx2;

// The best set that this machine has; nullptr if it has none.
const Isa* isa();

}  // namespace braze::runtime::cpu
