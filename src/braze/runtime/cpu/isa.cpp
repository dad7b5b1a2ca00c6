#include "braze/runtime/cpu/isa.h"

namespace braze::runtime::cpu {
namespace {

#if defined(__x86_64__)
// Whether vdpbf16ps multiplies more numbers in a time than single-precision instructions do. Intel's cores begin one in two
// cycles and two single-precision multiply-adds in each (measured on Sapphire Rapids: 164 against 300 GFLOP/s), AMD's one
// or two in each. The rule looks at no clock: results must not differ from run to run.
bool multiplies_pairs_fast() { return __builtin_cpu_is("amd"); }
#endif

const Isa* choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) {
    static Isa with_bfloat = kAvx512;
    if (__builtin_cpu_supports("avx512bf16")) {
      static Products pairs = kBfloatPairs;
      if (multiplies_pairs_fast()) with_bfloat.bfloat = pairs;
      else pairs.most_dot_rows = 16;   // with more, packing B in single precision is faster (measured)
      with_bfloat.few_rows_bfloat = &pairs;
    }
    return &with_bfloat;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) return &kAvx2;
#endif
  return nullptr;
}

}  // namespace

const Isa* isa() {
  static const Isa* chosen = choose();
  return chosen;
}

}  // namespace braze::runtime::cpu
