// The C interface of libbraze_clang.so: text to object bytes, object bytes to callable code. Plain C types only: the
// library has its own C++ runtime and hidden symbols, so that nothing of its LLVM meets another LLVM in the process.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

struct BrazeClangTimes {
  double front_ms, optimize_ms, code_ms;
};

// Once per process, before all else. Returns 0, or 1 if the host can't be compiled for.
typedef int BrazeClangInit(void);
// "19.1.7"; part of cache keys, with braze_clang_flags().
typedef const char* BrazeClangVersion(void);
// The front end's arguments and the pass list, as one text.
typedef const char* BrazeClangFlags(void);
// LLVM's name of this machine's CPU.
typedef const char* BrazeClangHostCpu(void);

// Compiles `text` for `cpu` ("native": this machine; "": any x86-64). The result is freed by braze_clang_free; its error is "" on success.
// Callable from several threads at once.
typedef struct BrazeClangObject BrazeClangObject;
typedef BrazeClangObject* BrazeClangCompile(const char* text, const char* cpu, struct BrazeClangTimes* times);
typedef const char* BrazeClangError(const BrazeClangObject*);
typedef const char* BrazeClangBytes(const BrazeClangObject*, size_t* size);
typedef void BrazeClangFree(BrazeClangObject*);

// Makes `name` known to all code that is loaded later (libm functions, SLEEF).
typedef int BrazeClangDefine(const char* name, void* address);

// Links an object into memory. Returns null and sets *error (to be freed with braze_clang_free_text) on failure.
typedef struct BrazeClangCode BrazeClangCode;
typedef BrazeClangCode* BrazeClangLoad(const char* bytes, size_t size, char** error);
typedef void* BrazeClangSymbol(BrazeClangCode*, const char* name);
typedef void BrazeClangUnload(BrazeClangCode*);
typedef void BrazeClangFreeText(char*);

}  // extern "C"

// name of the exported function, its type, its field in the loader's table
#define BRAZE_CLANG_FUNCTIONS(X)                    \
  X(braze_clang_init, BrazeClangInit)               \
  X(braze_clang_version, BrazeClangVersion)         \
  X(braze_clang_flags, BrazeClangFlags)             \
  X(braze_clang_host_cpu, BrazeClangHostCpu)        \
  X(braze_clang_compile, BrazeClangCompile)         \
  X(braze_clang_error, BrazeClangError)             \
  X(braze_clang_bytes, BrazeClangBytes)             \
  X(braze_clang_free, BrazeClangFree)               \
  X(braze_clang_define, BrazeClangDefine)           \
  X(braze_clang_load, BrazeClangLoad)               \
  X(braze_clang_symbol, BrazeClangSymbol)           \
  X(braze_clang_unload, BrazeClangUnload)           \
  X(braze_clang_free_text, BrazeClangFreeText)
