#include "braze/schedule/target.h"

#include <unistd.h>

#include <algorithm>

namespace braze::schedule {
namespace {

int64_t cache_bytes(int name, int64_t otherwise) {
  const long bytes = sysconf(name);
  return bytes > 0 ? bytes : otherwise;
}

#if defined(__x86_64__)
// The widest feature level that every generated instruction may assume.
void detect(Target& target) {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  target.has_fma = avx2;
  target.has_f16_convert = avx2;   // every CPU with AVX2 has F16C
  target.has_bf16_dot = avx512 && __builtin_cpu_supports("avx512bf16");
  if (avx512) {
    target.name = "x86-64-avx512";
    target.vector_bytes = 64;
    target.vector_registers = 32;
  } else if (avx2) {
    target.name = "x86-64-avx2";
    target.vector_bytes = 32;
    target.vector_registers = 16;
  } else {
    target.name = "x86-64";
    target.vector_bytes = 16;
    target.vector_registers = 16;
  }
}
#else
void detect(Target& target) {
  target.name = "generic";
  target.vector_bytes = 16;
  target.vector_registers = 32;
  target.has_f16_convert = false;
}
#endif

}  // namespace

Target cpu_target(int threads) {
  Target target;
  detect(target);
  target.cpu = "native";
  target.threads = std::max(1, threads);
  target.l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, target.l1_bytes);
  target.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, target.l2_bytes);
  target.l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE, target.l3_bytes);
  target.kernel_dtypes = {DType::Bool, DType::U8,  DType::I8,  DType::I16, DType::I32,
                          DType::I64,  DType::F16, DType::BF16, DType::F32, DType::F64};
  return target;
}

}  // namespace braze::schedule
