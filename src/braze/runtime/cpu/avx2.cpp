// Built with AVX2, FMA and F16C flags; called only where the machine has them.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "braze/runtime/cpu/isa.h"

namespace braze::runtime::cpu {
namespace {
constexpr int kLanes = 8, kVectors = 2, kRows = 6, kDotRows = 3, kDotColumns = 3;
#include "braze/runtime/cpu/vectors.inc"
#include "braze/runtime/cpu/products.inc"
#include "braze/runtime/cpu/isa.inc"

struct Binary16 {
  static inline __attribute__((always_inline)) Vector widen(Halves x) {
    return reinterpret_cast<Vector>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(x)));
  }
  static inline __attribute__((always_inline)) Halves narrow(Vector x) {
    return reinterpret_cast<Halves>(_mm256_cvtps_ph(reinterpret_cast<__m256>(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};

template <class Format>
constexpr Products kWidened = {2, 4, 1, 16, 20, &pack<WidenedKind<Format>>, &take_rows<WidenedKind<Format>>,
                               &multiply<WidenedKind<Format>>, &dot<WidenedKind<Format>>, &sum_rows<WidenedKind<Format>>, &finish_narrow<Format>,
                               &widen_row<Format>, &narrow_row<Format>};
}  // namespace

const Isa kAvx2 = {kPanel, kRows, kLanes,
                   {4, 4, 1, 16, 14, &pack<SingleKind>, &take_rows<SingleKind>, &multiply<SingleKind>, &dot<SingleKind>, &sum_rows<SingleKind>,
                    &SingleRows::finish, &SingleRows::to_floats, &SingleRows::from_floats},
                   kWidened<Bfloat>, kWidened<Binary16>, nullptr, &multiply_indirect, &pack_filters, &depthwise_pixel, &transpose,
                   &softmax_row, &scale_row, &exp_row, &softmax_gradient_row};

}  // namespace braze::runtime::cpu
