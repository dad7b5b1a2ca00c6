// Built with AVX-512 flags; called only where the machine has them.
#include <cstddef>
#include <cstdint>

#include "braze/runtime/matmul/kernels.h"

namespace braze::runtime::matmul_detail {
namespace {
constexpr int kLanes = 16, kVectors = 4, kRows = 6, kDotRows = 6, kDotColumns = 4;
#include "braze/runtime/matmul/tile.inc"
}  // namespace

const Isa kAvx512 = {kPanel, kRows, &pack, &multiply, &dot};

}  // namespace braze::runtime::matmul_detail
