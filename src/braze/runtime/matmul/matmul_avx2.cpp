// Built with AVX2 and FMA flags; called only where the machine has them.
#include <cstddef>
#include <cstdint>

#include "braze/runtime/matmul/kernels.h"

namespace braze::runtime::matmul_detail {
namespace {
constexpr int kLanes = 8, kVectors = 2, kRows = 6, kDotRows = 3, kDotColumns = 3;
#include "braze/runtime/matmul/tile.inc"
}  // namespace

const Isa kAvx2 = {kPanel, kRows, &pack, &multiply, &dot};

}  // namespace braze::runtime::matmul_detail
