// Functions that generated code may call by name: libm's for operations without an inline form, and the thread's scratch.
#pragma once

#include <cstdint>
#include <span>

namespace braze::jit {

struct NamedFunction {
  const char* name;
  void* address;
};

std::span<const NamedFunction> known_functions();

// At least `bytes` of 64-byte aligned memory, kept by the calling thread and reused by its next caller.
void* thread_scratch(int64_t bytes);
// Its name in generated text.
inline constexpr const char* kScratchName = "braze_scratch";

}  // namespace braze::jit
