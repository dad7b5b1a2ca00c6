// Kernel to source text. One folder per language; no scheduling choice is made here.
#pragma once

#include <span>
#include <string>

#include "braze/schedule/program.h"

namespace braze::codegen {

// A complete translation unit for one or more kernels: the helpers that they reach, then
//   extern "C" void NAME(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end)
// for each. Header-free C++ with vector extensions, for clang and (with the macros it prints) GCC.
// Errors of the data (an index out of range, integer division by zero) are reported by writing a non-zero code to
// ((int64_t*)buffers[n_params])[0]: the runtime passes that extra pointer and raises.
std::string emit_cpp(std::span<const schedule::Kernel* const> kernels, std::span<const std::string> names,
                     const schedule::Target& target);
// The body text of one kernel under a fixed name: equal for equal kernels; the cache key is its hash.
std::string kernel_key(const schedule::Kernel& kernel, const schedule::Target& target);

}  // namespace braze::codegen
