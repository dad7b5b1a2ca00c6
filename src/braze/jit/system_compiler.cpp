// The fall-back tool chain: a compiler of the system, run as a child process, its shared object loaded by dlopen.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "braze/jit/symbols.h"
#include "braze/jit/toolchain.h"
#include "braze/support/hash.h"

extern char** environ;

namespace braze::jit {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFlags[] = {"-O2", "-std=c++20", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno",
                                  "-fno-trapping-math", "-fno-strict-aliasing", "-fwrapv", "-fno-exceptions",
                                  "-fvisibility=hidden", "-mprefer-vector-width=512", "-w"};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// Runs a program with both outputs in `output_file`; its exit status, or -1.
int run(const std::vector<std::string>& arguments, const std::string& output_file) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// What -march=native means here: the processor's model and features.
const std::string& processor() {
  static const auto& text = *new std::string([] {
    std::ifstream in("/proc/cpuinfo");
    std::string found;
    for (std::string line; std::getline(in, line) && !line.empty();)
      if (line.starts_with("model name") || line.starts_with("flags")) found += line;
    return content_hash(found);
  }());
  return text;
}

// A folder of our own that goes with its contents.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "braze-XXXXXX").string();
    if (error || mkdtemp(pattern.data()) == nullptr) return;
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

class SharedObject final : public LoadedObject {
 public:
  explicit SharedObject(void* handle) : handle_(handle) {}
  ~SharedObject() override { dlclose(handle_); }
  void* symbol(const std::string& name) override { return dlsym(handle_, name.c_str()); }

 private:
  void* handle_;
};

class SystemToolchain final : public Toolchain {
 public:
  SystemToolchain(std::string compiler, std::string version)
      : compiler_(std::move(compiler)), version_(std::move(version)) {}

  std::string description() const override { return "system: " + version_; }

  std::string identity(const schedule::Target& target) const override {
    std::string text = description();
    for (const char* flag : kFlags) text += std::string(" ") + flag;
    const std::string machine = machine_flag(target);
    return text + " " + machine + (machine == "-march=native" ? " " + processor() : "");
  }

  CompiledObject compile(const std::string& text, const schedule::Target& target) override {
    CompiledObject result;
    const auto start = std::chrono::steady_clock::now();
    TemporaryFolder folder;
    if (folder.path().empty()) {
      result.error = "no folder for temporary files";
      return result;
    }
    const std::string source = folder.path() / "kernels.cpp", object = folder.path() / "kernels.so";
    std::ofstream(source) << text;
    std::vector<std::string> arguments = {compiler_};
    for (const char* flag : kFlags) arguments.emplace_back(flag);
    arguments.push_back(machine_flag(target));
    for (const std::string& argument : {source, std::string("-o"), object, std::string("-lm")})
      arguments.push_back(argument);
    const std::string messages = folder.path() / "messages";
    if (run(arguments, messages) == 0) result.bytes = read_file(object);
    if (result.bytes.empty()) {
      result.error = read_file(messages);
      if (result.error.empty()) result.error = compiler_ + " failed without a message";
    }
    result.code_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

  std::unique_ptr<LoadedObject> load(const std::string& bytes, std::string& error) override {
    // A name of its own each time: dlopen gives an older library if it knows the name.
    static std::atomic<int> count{0};
    TemporaryFolder folder;
    const std::string path = folder.path() / ("kernels" + std::to_string(count++) + ".so");
    std::ofstream(path, std::ios::binary) << bytes;
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      error = dlerror();
      return nullptr;
    }
    if (void* scratch = dlsym(handle, kScratchName)) {
      void* function = reinterpret_cast<void*>(thread_scratch);
      std::memcpy(scratch, &function, sizeof function);
    }
    return std::make_unique<SharedObject>(handle);
  }

  bool define(const std::string&, void*) override { return false; }   // the dynamic linker finds what it finds
  bool in_process() const override { return false; }

 private:
  // -march=<cpu> if the compiler knows that CPU, else what it finds on this machine.
  std::string machine_flag(const schedule::Target& target) const {
    if (target.cpu.empty()) return "-march=x86-64";
    if (target.cpu == "native") return "-march=native";
    std::lock_guard lock(mutex_);
    auto found = machine_flags_.find(target.cpu);
    if (found != machine_flags_.end()) return found->second;
    TemporaryFolder folder;
    const std::string flag = "-march=" + target.cpu;
    const bool known = !folder.path().empty() && run({compiler_, flag, "-E", "-x", "c++", "/dev/null"},
                                                     folder.path() / "messages") == 0;
    return machine_flags_[target.cpu] = known ? flag : "-march=native";
  }

  std::string compiler_, version_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::string> machine_flags_;
};

SystemToolchain* find_compiler() {
  TemporaryFolder folder;
  if (folder.path().empty()) return nullptr;
  std::vector<std::string> candidates;
  if (const char* chosen = std::getenv("CXX"); chosen != nullptr && *chosen != 0) candidates.emplace_back(chosen);
  for (const char* name : {"c++", "g++", "clang++"}) candidates.emplace_back(name);
  for (const std::string& name : candidates) {
    const fs::path output = folder.path() / "version";
    if (run({name, "--version"}, output) != 0) continue;
    const std::string text = read_file(output);
    return new SystemToolchain(name, text.substr(0, text.find('\n')));
  }
  return nullptr;
}

}  // namespace

Toolchain* system_toolchain() {
  static SystemToolchain* found = find_compiler();   // never destroyed: kernels may outlive static destructors
  return found;
}

}  // namespace braze::jit
