// One instruction set's kernels, built ahead with its flags: matrix tiles and softmax rows.
#pragma once

#include <cstdint>

#include "braze/runtime/cpu/element.h"

namespace braze::runtime::cpu {

inline constexpr int64_t kFinishColumns = 64;   // the most columns that Products::finish takes

inline constexpr int64_t kMostSummedRows = 4;   // up to so many rows of A a B with contiguous rows is read as it is

// Matrix tiles for operands of one element type. Sums are single-precision.
//   packed panel   rows of `panel` lanes of 32 bits; a lane holds `per_lane` rows of B: a float, or a pair of bf16
//   rows of A      elements of a_bytes: the operands' own, or floats where the tiles multiply in single precision
struct Products {
  int64_t bytes;           // of an element in memory
  int64_t a_bytes;         // of an element of A as the tiles read it
  int64_t per_lane;
  // Up to so many rows of A, and one for each so many elements of K, `dot` is faster than packing B's panels (measured).
  int64_t most_dot_rows, k_per_dot_row;
  // Packs rows [0, k) of `columns` (<= panel) columns into ceil(k / per_lane) rows of a panel, padding with zeros.
  void (*pack)(const void* b, int64_t row_stride, int64_t column_stride, int64_t k, int64_t columns, float* out);
  // Rows of A with any strides to contiguous ones.
  void (*take_rows)(const void* a, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t k, void* out,
                    int64_t out_stride);
  // C[m, columns] (+)= A[m, k] * packed[k, panel]; whole vectors of C are written.
  void (*multiply)(int64_t m, int64_t columns, int64_t k, const void* a, int64_t a_stride, const float* packed, float* c, int64_t c_stride,
                   bool accumulate);
  // C[m, n] (+)= A[m, k] * B[n, k] transposed, both with contiguous rows; B as in memory.
  void (*dot)(int64_t m, int64_t n, int64_t k, const void* a, int64_t a_stride, const void* b, int64_t b_stride, float* c,
              int64_t c_stride, bool accumulate);
  // C[m, columns] = A[m, k] * B[k, columns], m <= kMostSummedRows, both with contiguous rows; B as in memory. Whole vectors
  // of C are written.
  void (*sum_rows)(int64_t m, int64_t columns, int64_t k, const void* a, int64_t a_stride, const void* b, int64_t b_stride,
                   float* c, int64_t c_stride);
  // out[rows, n] = sums (+ bias[n]), n <= kFinishColumns, rounded to the operands' type.
  void (*finish)(const float* sums, int64_t stride, int64_t rows, int64_t n, const float* bias, void* out, int64_t out_stride);
  // A contiguous row to floats and back.
  void (*to_floats)(const void* in, int64_t n, float* out);
  void (*from_floats)(const float* in, int64_t n, void* out);
};

struct Isa {
  int64_t panel;        // columns of a packed panel; divides kFinishColumns
  int64_t tile_rows;
  int64_t lanes;        // columns of a vector
  Products single, bfloat, half;
  const Products* few_rows_bfloat;   // what reads B as it is, for few rows of A, in place of `bfloat`; or nullptr
  // C[rows, panel] (+)= sum over taps of A_tap[rows, k] * packed[tap][k][panel], rows <= tile_rows, then bias and relu; the
  // rows of A_tap are at pointers[tap * rows + row].
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

inline const Products& products(const Isa& isa, Element element) {
  return element == Element::F32 ? isa.single : element == Element::BF16 ? isa.bfloat : isa.half;
}

extern const Isa kAvx512;
extern const Isa kAvx2;
extern const Products kBfloatPairs;   // AVX-512 with bf16 instructions

// The best set that this machine has; nullptr if it has none.
const Isa* isa();

}  // namespace braze::runtime::cpu
