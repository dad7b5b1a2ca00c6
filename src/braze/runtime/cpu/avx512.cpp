// Built with AVX-512 flags; called only where the machine has them.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "braze/runtime/cpu/isa.h"

namespace braze::runtime::cpu {
namespace {
constexpr int kLanes = 16, kVectors = 4, kRows = 6, kDotRows = 6, kDotColumns = 4;
#include "braze/runtime/cpu/isa.inc"
}  // namespace

const Isa kAvx512 = {kPanel, kRows, 96, &pack, &multiply, &dot, &multiply_indirect, &pack_filters, &depthwise_pixel, &transpose, &softmax_row, &scale_row,
                      &exp_row, &softmax_gradient_row};

}  // namespace braze::runtime::cpu
