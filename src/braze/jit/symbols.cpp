#include "braze/jit/symbols.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

namespace braze::jit {

namespace {

template <class F>
void* address(F* function) {
  return reinterpret_cast<void*>(function);
}

struct Scratch {
  void* memory = nullptr;
  int64_t bytes = 0;
  ~Scratch() { std::free(memory); }
};

// clang-format off
#define LIBM_1(name) \
  {#name, address(static_cast<double (*)(double)>(::name))}, {#name "f", address(static_cast<float (*)(float)>(::name##f))}
#define LIBM_2(name) \
  {#name, address(static_cast<double (*)(double, double)>(::name))}, \
  {#name "f", address(static_cast<float (*)(float, float)>(::name##f))}

const NamedFunction kFunctions[] = {
    LIBM_1(exp), LIBM_1(exp2), LIBM_1(expm1), LIBM_1(log), LIBM_1(log2), LIBM_1(log10), LIBM_1(log1p),
    LIBM_1(sin), LIBM_1(cos), LIBM_1(tan), LIBM_1(asin), LIBM_1(acos), LIBM_1(atan),
    LIBM_1(sinh), LIBM_1(cosh), LIBM_1(tanh), LIBM_1(asinh), LIBM_1(acosh), LIBM_1(atanh),
    LIBM_1(erf), LIBM_1(erfc), LIBM_1(floor), LIBM_1(ceil), LIBM_1(trunc), LIBM_1(rint), LIBM_1(roundeven), LIBM_1(sqrt),
    LIBM_2(pow), LIBM_2(atan2), LIBM_2(hypot), LIBM_2(nextafter), LIBM_2(fmod), LIBM_2(remainder),
    {"fma", address(static_cast<double (*)(double, double, double)>(::fma))},
    {"fmaf", address(static_cast<float (*)(float, float, float)>(::fmaf))},
    {"memcpy", address(::memcpy)}, {"memmove", address(::memmove)}, {"memset", address(::memset)},
    {kScratchName, address(thread_scratch)},
};
#undef LIBM_1
#undef LIBM_2
// clang-format on

}  // namespace

std::span<const NamedFunction> known_functions() { return kFunctions; }

void* thread_scratch(int64_t bytes) {
  thread_local Scratch scratch;
  if (scratch.bytes >= bytes) return scratch.memory;
  std::free(scratch.memory);
  scratch.bytes = (bytes + (64 << 10) - 1) / (64 << 10) * (64 << 10);
  scratch.memory = std::aligned_alloc(64, static_cast<size_t>(scratch.bytes));
  if (scratch.memory == nullptr) {
    scratch.bytes = 0;
    throw std::bad_alloc();
  }
  return scratch.memory;
}

}  // namespace braze::jit
