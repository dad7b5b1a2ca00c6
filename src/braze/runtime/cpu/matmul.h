// Matrix products on the CPU with single-precision sums, built ahead for each instruction set.
//
//   C[M, N] = A[M, K] * B[K, N] (+ bias[N])
//
// All of one element type; bf16 is multiplied in pairs where the machine does so faster, else 16-bit elements are
// made single-precision on the way. The sums are rounded once, with the bias added.
// Three forms, none of which keeps a copy of B between calls (a copy could go stale unnoticed: writes through
// `param.data` change no version counter):
//   dot      B has contiguous columns (a weight [N, K]) and M is small: tiles of 6 rows x 4 columns along K
//   sums     B has contiguous rows and M is at most 8: rows of B times numbers of A are added up in L1
//   packed   panels of 64 columns, packed into thread-local memory; tiles of 6 x 64
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "braze/runtime/cpu/element.h"

namespace braze::runtime {

struct MatmulOperand {
  const void* data;
  int64_t row_stride, column_stride;       // in elements
};

enum class MatmulForm : uint8_t { Dot, Sums, Packed };

// What the model takes for a product, and why: "packed, since 128 rows are more than 27".
struct MatmulChoice {
  MatmulForm form;
  std::string reason;
};
MatmulChoice choose_matmul(Element element, int64_t m, int64_t k, const MatmulOperand& b);
bool has_form(MatmulForm form, const MatmulOperand& b);    // whether the strides of B allow it

// A and B have any strides; C is row-major with `c_stride`. bias: contiguous, or nullptr. Runs on torch's pool when the
// product is worth it. `form`: instead of the model's choice.
void matmul(Element element, int64_t m, int64_t n, int64_t k, MatmulOperand a, MatmulOperand b, void* c, int64_t c_stride,
            const void* bias = nullptr, std::optional<MatmulForm> form = std::nullopt);

// `batches` products, each operand `..._batch` elements behind the one before.
void matmul_batch(Element element, int64_t batches, int64_t m, int64_t n, int64_t k, MatmulOperand a, int64_t a_batch,
                  MatmulOperand b, int64_t b_batch, void* c, int64_t c_stride, int64_t c_batch,
                  std::optional<MatmulForm> form = std::nullopt);

bool matmul_available();                   // false on a machine with none of the built instruction sets

}  // namespace braze::runtime
