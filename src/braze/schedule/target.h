// Target: all that scheduling and code generation know about a machine. Made in one file per target.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "braze/support/dtype.h"

namespace braze::schedule {

struct Target {
  enum class Language : uint8_t { Cpp, CudaCpp, Triton };
  std::string name;                 // "x86-64-avx512"
  Language language = Language::Cpp;
  std::string cpu;                  // for the compiler: "native", "znver5", "skylake-avx512"; "" : generic
  int vector_bytes = 32;            // 64: AVX-512, 32: AVX2, 16: NEON and SSE
  int vector_registers = 16;
  bool has_fma = true;
  bool has_bf16_dot = false;        // vdpbf16ps
  bool has_f16_convert = true;      // F16C
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 32 << 20;   // L1 and L2 per core
  int threads = 1;                  // torch's intra-op threads
  std::vector<DType> kernel_dtypes; // what generated kernels may load, store and compute
  bool supports(DType dtype) const {
    for (DType d : kernel_dtypes) if (d == dtype) return true;
    return false;
  }
};

// This machine. Fields may be overwritten afterwards (tests of other widths, cross compilation).
Target cpu_target(int threads);

}  // namespace braze::schedule
