// Source text to function pointers: in process by clang (libbraze_clang.so, loaded at the first compile), or by a system
// compiler where that library is absent. Object bytes are cached in memory and on disk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braze/schedule/target.h"
#include "braze/support/result.h"

namespace braze::jit {

using KernelFunction = void (*)(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end);

// A loaded kernel; the machine code is unmapped when the last owner goes.
struct LoadedKernel {
  KernelFunction function = nullptr;
  std::shared_ptr<void> code;
};

struct KernelSource {
  std::string key;        // content key of this kernel (codegen::kernel_key)
};

// Makes one translation unit for the kernels numbered in `which`, naming each by `name(i)`.
using EmitUnit = std::function<std::string(std::span<const int32_t> which, std::span<const std::string> names)>;

struct CompileReport {
  int cache_hits_memory = 0, cache_hits_disk = 0, compiled = 0;
  double front_ms = 0, code_ms = 0, load_ms = 0, wall_ms = 0;
  std::vector<int32_t> failed;     // kernels that no code could be made for
};

// Looks each kernel up in the caches, compiles the rest in modules spread over threads, and loads all. The GIL is not
// needed; callers drop it. Unsupported: a kernel failed to compile; the reason names the file with its source.
Result<std::vector<LoadedKernel>> compile(std::span<const KernelSource> kernels, const EmitUnit& emit,
                                          const schedule::Target& target, CompileReport* report = nullptr);

// The folder that holds libbraze_clang.so, set before the first compile (the package's own folder, beside _braze).
// Not set: $BRAZE_CLANG_FOLDER, else the loader's search path.
void set_library_folder(std::string path);
// Opens the compiler's library on another thread, so that it is there when the first kernels come (opening takes 10 ms).
void preload();
// Gives generated code a function that it may call by name (SLEEF from libtorch). libm's are known. Returns false if the
// name is taken. Seen by code that is compiled later, by clang only.
bool define_symbol(const std::string& name, void* address);

// "clang 19.1.7" (library loaded or loadable), "system: c++ (...) 12.2", or "none". $BRAZE_COMPILER=clang|system forces one.
std::string compiler_description();
// $BRAZE_CACHE_DIR, else the user's cache folder; "" if caching on disk is off or impossible (said once).
std::string cache_folder();
void clear_memory_cache();

}  // namespace braze::jit
