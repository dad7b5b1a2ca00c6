// Built with AVX2 and FMA flags; called only where the machine has them.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "braze/runtime/cpu/isa.h"

namespace braze::runtime::cpu {
namespace {
constexpr int kLanes = 8, kVectors = 2, kRows = 6, kDotRows = 3, kDotColumns = 3;
#include "braze/runtime/cpu/isa.inc"
}  // namespace

const Isa kAvx2 = {kPanel, kRows, 16, &pack, &multiply, &dot, &multiply_indirect, &pack_filters, &depthwise_pixel, &transpose, &softmax_row, &scale_row,
                      &exp_row, &softmax_gradient_row};

}  // namespace braze::runtime::cpu
