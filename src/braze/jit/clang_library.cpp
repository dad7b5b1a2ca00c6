// The clang tool chain: libbraze_clang.so, opened at the first compile and kept until the process ends.
#include <dlfcn.h>

#include <mutex>

#include "braze/jit/clang/clang_api.h"
#include "braze/jit/symbols.h"
#include "braze/jit/toolchain.h"

namespace braze::jit {

namespace {

struct Api {
#define FIELD(name, type) type* name = nullptr;
  BRAZE_CLANG_FUNCTIONS(FIELD)
#undef FIELD
};

class ClangObject final : public LoadedObject {
 public:
  ClangObject(const Api& api, BrazeClangCode* code) : api_(api), code_(code) {}
  ~ClangObject() override { api_.braze_clang_unload(code_); }
  void* symbol(const std::string& name) override { return api_.braze_clang_symbol(code_, name.c_str()); }

 private:
  const Api& api_;
  BrazeClangCode* code_;
};

class ClangToolchain final : public Toolchain {
 public:
  explicit ClangToolchain(const Api& api) : api_(api) {}

  std::string description() const override { return std::string("clang ") + api_.braze_clang_version(); }

  std::string identity(const schedule::Target& target) const override {
    return description() + "\n" + api_.braze_clang_flags() + "\n" +
           (target.cpu == "native" ? api_.braze_clang_host_cpu() : target.cpu);
  }

  CompiledObject compile(const std::string& text, const schedule::Target& target) override {
    BrazeClangTimes times{};
    BrazeClangObject* object = api_.braze_clang_compile(text.c_str(), target.cpu.c_str(), &times);
    CompiledObject result;
    result.error = api_.braze_clang_error(object);
    if (result.error.empty()) {
      size_t size = 0;
      const char* bytes = api_.braze_clang_bytes(object, &size);
      result.bytes.assign(bytes, size);
    }
    api_.braze_clang_free(object);
    result.front_ms = times.front_ms;
    result.code_ms = times.optimize_ms + times.code_ms;
    return result;
  }

  std::unique_ptr<LoadedObject> load(const std::string& bytes, std::string& error) override {
    char* message = nullptr;
    BrazeClangCode* code = api_.braze_clang_load(bytes.data(), bytes.size(), &message);
    if (code != nullptr) return std::make_unique<ClangObject>(api_, code);
    error = message;
    api_.braze_clang_free_text(message);
    return nullptr;
  }

  bool define(const std::string& name, void* address) override {
    return api_.braze_clang_define(name.c_str(), address) == 0;
  }

  bool in_process() const override { return true; }

 private:
  Api api_;
};

// Opens the library and fills `api`; returns the reason on failure.
std::string open_library(Api& api) {
  const std::string folder = library_folder();
  const std::string path = folder.empty() ? "libbraze_clang.so" : folder + "/libbraze_clang.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
#define LOOK_UP(name, type)                                     \
  api.name = reinterpret_cast<type*>(dlsym(library, #name));    \
  if (api.name == nullptr) return path + " lacks " #name;
  BRAZE_CLANG_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
  if (api.braze_clang_init() != 0) return "libbraze_clang.so can't compile for this machine";
  return {};
}

}  // namespace

Toolchain* clang_toolchain(std::string& why) {
  struct State {
    std::mutex mutex;
    ClangToolchain* made = nullptr;
    std::string failure;
    bool tried = false;
  };
  static State& state = *new State;   // never destroyed: kernels and threads may outlive static destructors
  std::lock_guard lock(state.mutex);
  if (!state.tried) {
    state.tried = true;
    Api api;
    state.failure = open_library(api);
    if (state.failure.empty()) {
      state.made = new ClangToolchain(api);
      for (const NamedFunction& function : known_functions()) state.made->define(function.name, function.address);
    }
  }
  why = state.failure;
  return state.made;
}

}  // namespace braze::jit
