#include "braze/runtime/cpu/isa.h"

namespace braze::runtime::cpu {
namespace {

const Isa* choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) {
    static Isa with_bfloat = kAvx512;
    if (__builtin_cpu_supports("avx512bf16")) with_bfloat.bfloat = kBfloatPairs;
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
