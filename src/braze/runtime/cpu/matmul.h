// Single-precision matrix products on the CPU, built ahead for each instruction set.
//
//   C[M, N] = A[M, K] * B[K, N] (+ bias[N]) (then relu)
//
// Two forms, neither of which keeps a copy of B between calls (a copy could go stale unnoticed: writes through
// `param.data` change no version counter):
//   dot      B has contiguous columns (a weight [N, K]) and M is small: tiles of 6 rows x 4 columns along K
//   packed   panels of 64 columns, packed K block by K block into thread-local memory; tiles of 6 x 64
#pragma once

#include <cstdint>

namespace braze::runtime {

struct MatmulOperand {
  const float* data;
  int64_t row_stride, column_stride;       // in elements
};

struct MatmulEpilogue {
  const float* bias = nullptr;             // [N], contiguous
  bool relu = false;
};

// A and B have any strides (an A whose rows are not contiguous, as in a weight's gradient, is transposed first); C is
// row-major with `c_stride`. Runs on torch's pool when the product is worth it.
void matmul(int64_t m, int64_t n, int64_t k, MatmulOperand a, MatmulOperand b, float* c, int64_t c_stride,
            const MatmulEpilogue& epilogue);

// `batches` products, each operand `..._batch` elements behind the one before.
void matmul_batch(int64_t batches, int64_t m, int64_t n, int64_t k, MatmulOperand a, int64_t a_batch, MatmulOperand b,
                  int64_t b_batch, float* c, int64_t c_stride, int64_t c_batch);

bool matmul_available();                   // false on a machine with none of the built instruction sets

}  // namespace braze::runtime
