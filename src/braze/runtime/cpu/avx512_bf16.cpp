// Built with AVX-512 and bf16 flags; called only where the machine has them. vdpbf16ps adds the products of two pairs to a
// single-precision sum; it takes subnormal operands for zero, as every library that uses it.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "braze/runtime/cpu/isa.h"

namespace braze::runtime::cpu {
namespace {
constexpr int kLanes = 16, kVectors = 4, kRows = 6, kDotRows = 6, kDotColumns = 4;
#include "braze/runtime/cpu/vectors.inc"
#include "braze/runtime/cpu/products.inc"

struct PairKind {
  using A = uint16_t;
  using B = uint16_t;
  static constexpr int64_t kPerLane = 2;
  static inline __attribute__((always_inline)) Vector broadcast(const uint16_t* a) {
    uint32_t pair;
    __builtin_memcpy(&pair, a, sizeof pair);
    return reinterpret_cast<Vector>(Bits{} + pair);
  }
  static inline __attribute__((always_inline)) Vector along_k(const uint16_t* b) {
    Vector v;
    __builtin_memcpy(&v, b, sizeof v);
    return v;
  }
  static inline __attribute__((always_inline)) Vector a_along_k(const uint16_t* a) { return along_k(a); }
  static inline __attribute__((always_inline)) Vector across(const uint16_t* b, int64_t row_stride) {
    const Bits first = __builtin_convertvector(load_halves(b), Bits), second = __builtin_convertvector(load_halves(b + row_stride), Bits);
    return reinterpret_cast<Vector>(first | second << 16);
  }
  static inline __attribute__((always_inline)) Vector add(Vector sum, Vector x, Vector y) {
    return reinterpret_cast<Vector>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), (__m512bh)x, (__m512bh)y));
  }
  static void put(float* row, int64_t column, int64_t which, uint16_t value) {
    __builtin_memcpy(reinterpret_cast<char*>(row + column) + which * 2, &value, sizeof value);
  }
  static inline __attribute__((always_inline)) Vector a_lanes(const uint16_t* a) {
    return reinterpret_cast<Vector>(__builtin_convertvector(load_halves(a), Bits));
  }
  static inline __attribute__((always_inline)) void put_a(uint16_t* out, Vector x) {
    store_halves(out, __builtin_convertvector(reinterpret_cast<Bits>(x), Halves));
  }
  static uint16_t to_a(uint16_t x) { return x; }
};

// The machine's rounding, to nearest even; results below the normal range become zero, as they do in oneDNN.
struct MachineBfloat {
  static inline __attribute__((always_inline)) Halves narrow(Vector x) {
    return (Halves)_mm512_cvtneps_pbh(reinterpret_cast<__m512>(x));
  }
};

}  // namespace

const Products kBfloatPairs = {2, 2, 2, 32, 28, &pack<PairKind>, &take_rows<PairKind>, &multiply<PairKind>, &dot<PairKind>, &sum_rows<PairKind>,
                               &finish_narrow<MachineBfloat>, &widen_row<Bfloat>, &narrow_row<MachineBfloat>};

}  // namespace braze::runtime::cpu
