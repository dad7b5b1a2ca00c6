#include "braze/runtime/cpu/isa.h"

namespace braze::runtime::cpu {
namespace {

const Isa* choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return &kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &kAvx2;
#endif
  return nullptr;
}

}  // namespace

const Isa* isa() {
  static const Isa* chosen = choose();
  return chosen;
}

}  // namespace braze::runtime::cpu
