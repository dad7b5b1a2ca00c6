// A compiler that turns text into object bytes and loads them: clang in this process, or a system compiler.
#pragma once

#include <memory>
#include <string>

#include "braze/jit/jit.h"

namespace braze::jit {

// Loaded machine code; unmapped by the destructor.
class LoadedObject {
 public:
  virtual ~LoadedObject() = default;
  virtual void* symbol(const std::string& name) = 0;   // null if there is none
};

struct CompiledObject {
  std::string bytes;
  std::string error;      // not empty: the compiler's message, and no bytes
  double front_ms = 0, code_ms = 0;
};

class Toolchain {
 public:
  virtual ~Toolchain() = default;
  virtual std::string description() const = 0;
  // What object bytes depend on beside the text: compiler, version, flags, CPU.
  virtual std::string identity(const schedule::Target& target) const = 0;
  virtual CompiledObject compile(const std::string& text, const schedule::Target& target) = 0;   // any thread
  virtual std::unique_ptr<LoadedObject> load(const std::string& bytes, std::string& error) = 0;  // any thread
  virtual bool define(const std::string& name, void* address) = 0;
  virtual bool in_process() const = 0;   // a module costs little; else few and large modules are better
};

// Null if libbraze_clang.so can't be loaded; `why` says so.
Toolchain* clang_toolchain(std::string& why);
// Null if no system compiler is found.
Toolchain* system_toolchain();
// The one in use, or null.
Toolchain* toolchain();

std::string library_folder();

}  // namespace braze::jit
