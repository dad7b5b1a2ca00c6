// compile(): caches first, then modules of several kernels on several threads.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "braze/jit/cache.h"
#include "braze/jit/jit.h"
#include "braze/jit/toolchain.h"
#include "braze/support/check.h"
#include "braze/support/hash.h"
#include "braze/support/log.h"

namespace braze::jit {

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::mutex folder_mutex;
std::string chosen_folder;

// ---- Memory cache: kernels by key, held weakly, and the bytes of the latest objects -------------------------------

struct MemoryCache {
  std::mutex mutex;
  struct Entry {
    KernelFunction function = nullptr;
    std::weak_ptr<void> code;
  };
  std::unordered_map<std::string, Entry> kernels;        // by full key
  std::unordered_map<std::string, std::string> object_of;  // full key -> object name
  std::unordered_map<std::string, std::string> bytes;    // object name -> object
  std::deque<std::string> order;                         // object names, oldest first
  std::unordered_map<std::string, std::weak_ptr<LoadedObject>> objects;
  size_t total = 0;
};
constexpr size_t kMemoryCacheBytes = 16u << 20;

MemoryCache& memory() {
  static auto* cache = new MemoryCache;
  return *cache;
}

void forget(MemoryCache& cache, const std::string& object) {
  auto found = cache.bytes.find(object);
  if (found == cache.bytes.end()) return;
  cache.total -= found->second.size();
  cache.bytes.erase(found);
  std::erase_if(cache.object_of, [&](const auto& entry) { return entry.second == object; });
  std::erase_if(cache.kernels, [](const auto& entry) { return entry.second.code.expired(); });
  std::erase_if(cache.objects, [](const auto& entry) { return entry.second.expired(); });
}

void remember_bytes(const std::string& object, const std::string& bytes, std::span<const std::string> keys) {
  MemoryCache& cache = memory();
  std::lock_guard lock(cache.mutex);
  for (const std::string& key : keys) cache.object_of[key] = object;
  if (!cache.bytes.emplace(object, bytes).second) return;
  cache.total += bytes.size();
  cache.order.push_back(object);
  while (cache.total > kMemoryCacheBytes && cache.order.size() > 1) {
    forget(cache, cache.order.front());
    cache.order.pop_front();
  }
}

// ---- One request ----------------------------------------------------------------------------------------------------

struct Module {
  std::vector<int32_t> which;   // kernel numbers
  std::string text, error;
};

class Request {
 public:
  Request(std::span<const KernelSource> kernels, const EmitUnit& emit, const schedule::Target& target,
          Toolchain& tools, CompileReport& report)
      : emit_(emit), target_(target), tools_(tools), report_(report), loaded_(kernels.size()) {
    const std::string identity = tools.identity(target);
    for (const KernelSource& kernel : kernels) keys_.push_back(content_hash(identity + "\n" + kernel.key));
  }

  Result<std::vector<LoadedKernel>> run() {
    std::vector<int32_t> missing;
    std::map<std::string, int32_t> first;   // equal kernels are looked up once
    for (int32_t i = 0; i < count(); ++i) {
      if (!first.emplace(keys_[index(i)], i).second) continue;
      if (!from_memory(i) && !from_disk(i)) missing.push_back(i);
    }
    if (!missing.empty()) compile_missing(missing);
    if (!failure_.reason.empty()) return failure_;
    for (int32_t i = 0; i < count(); ++i) loaded_[index(i)] = loaded_[index(first[keys_[index(i)]])];
    return std::move(loaded_);
  }

 private:
  static size_t index(int32_t i) { return static_cast<size_t>(i); }
  int32_t count() const { return static_cast<int32_t>(keys_.size()); }
  static std::string symbol_of(const std::string& key) { return "braze_" + key; }

  bool from_memory(int32_t i) {
    const std::string& key = keys_[index(i)];
    std::string object, bytes;
    {
      MemoryCache& cache = memory();
      std::lock_guard lock(cache.mutex);
      if (auto found = cache.kernels.find(key); found != cache.kernels.end()) {
        if (auto code = found->second.code.lock()) {
          loaded_[index(i)] = {found->second.function, std::move(code)};
          ++report_.cache_hits_memory;
          return true;
        }
      }
      auto named = cache.object_of.find(key);
      if (named == cache.object_of.end()) return false;
      auto found = cache.bytes.find(named->second);
      if (found == cache.bytes.end()) return false;
      object = named->second;
      bytes = found->second;
    }
    std::string error;
    if (!load(object, bytes, i, error)) return false;
    ++report_.cache_hits_memory;
    return true;
  }

  bool from_disk(int32_t i) {
    const std::string& key = keys_[index(i)];
    const auto object = read_entry(key + ".k");
    if (!object) return false;
    const auto bytes = read_entry(*object + ".o");
    std::string error;
    if (!bytes || !load(*object, *bytes, i, error)) return false;
    remember_bytes(*object, *bytes, std::span(&key, 1));
    ++report_.cache_hits_disk;
    return true;
  }

  // Links the object, unless it is linked already, and takes kernel i from it.
  bool load(const std::string& object, const std::string& bytes, int32_t i, std::string& error) {
    const auto start = Clock::now();
    MemoryCache& cache = memory();
    std::shared_ptr<LoadedObject> code;
    {
      std::lock_guard lock(cache.mutex);
      if (auto found = cache.objects.find(object); found != cache.objects.end()) code = found->second.lock();
    }
    if (code == nullptr) code = tools_.load(bytes, error);
    if (code == nullptr) return false;
    const std::string& key = keys_[index(i)];
    const auto function = reinterpret_cast<KernelFunction>(code->symbol(symbol_of(key)));
    if (function == nullptr) {
      error = "the object lacks " + symbol_of(key);
      return false;
    }
    std::lock_guard lock(cache.mutex);
    cache.objects[object] = code;
    cache.kernels[key] = {function, code};
    loaded_[index(i)] = {function, std::move(code)};
    report_.load_ms += ms_since(start);
    return true;
  }

  std::vector<std::string> names_of(std::span<const int32_t> which) const {
    std::vector<std::string> names;
    for (int32_t i : which) names.push_back(symbol_of(keys_[index(i)]));
    return names;
  }

  // At least 8 kernels a module where there are many; as many modules as threads where there are few (a kernel costs
  // 3-8 ms, a module 2). A compiler outside the process gets few large modules.
  std::vector<Module> split(const std::vector<int32_t>& missing, size_t threads) const {
    const size_t n = missing.size();
    const size_t least = tools_.in_process() ? 3 : 12;
    size_t modules = std::max<size_t>(1, std::min(threads, n / least));
    if (n / 8 > modules) modules = n / 8;
    std::vector<Module> result(modules);
    for (size_t k = 0; k < n; ++k) result[k % modules].which.push_back(missing[k]);
    return result;
  }

  void compile_missing(const std::vector<int32_t>& missing) {
    const size_t threads = std::max(1u, std::min(std::thread::hardware_concurrency(), 16u));
    std::vector<Module> modules = split(missing, threads);
    // The emitter may build index expressions, which one thread alone may do: texts are made first.
    for (Module& module : modules) emit(module);
    if (log_enabled(Topic::kOutputCode))
      for (const Module& module : modules) log(Topic::kOutputCode, module.text);
    std::atomic<size_t> next{0};
    auto work = [&] {
      for (size_t m; (m = next++) < modules.size();) compile_module(modules[m]);
    };
    std::vector<std::thread> workers;
    for (size_t t = 1; t < std::min(threads, modules.size()); ++t) workers.emplace_back(work);
    work();
    for (std::thread& worker : workers) worker.join();
    for (const Module& module : modules)
      if (!module.error.empty()) isolate(module);
  }

  void emit(Module& module) const {
    try {
      module.text = emit_(module.which, names_of(module.which));
    } catch (const InternalError& error) {
      module.error = error.what();
    }
  }

  void compile_module(Module& module) {
    if (!module.error.empty()) return;
    CompiledObject object = tools_.compile(module.text, target_);
    std::vector<std::string> keys;
    for (int32_t i : module.which) keys.push_back(keys_[index(i)]);
    const std::string name = object.error.empty() ? content_hash(object.bytes) : std::string();
    if (object.error.empty()) {
      write_entry(name + ".o", object.bytes);
      for (const std::string& key : keys) write_entry(key + ".k", name);
      remember_bytes(name, object.bytes, keys);
    }
    std::lock_guard lock(mutex_);
    report_.front_ms += object.front_ms;
    report_.code_ms += object.code_ms;
    for (size_t k = 0; k < module.which.size() && object.error.empty(); ++k)
      if (!load(name, object.bytes, module.which[k], object.error)) break;
    if (object.error.empty()) report_.compiled += static_cast<int>(module.which.size());
    module.error = object.error;
  }

  // A module failed: each of its kernels alone, so that the one at fault is named and the others are kept.
  void isolate(const Module& failed) {
    for (int32_t i : failed.which) {
      Module single;
      if (failed.which.size() == 1) {
        single = failed;
      } else {
        single.which = {i};
        emit(single);
        compile_module(single);
      }
      if (single.error.empty()) continue;
      report_.failed.push_back(i);
      if (!failure_.reason.empty()) continue;
      const std::string path = keep_source(single.text);
      failure_.reason = "a generated kernel failed to compile (" + tools_.description() + "); its source: " +
                        (path.empty() ? "could not be saved" : path) + "\n" + single.error.substr(0, 2000);
    }
  }

  const EmitUnit& emit_;
  const schedule::Target& target_;
  Toolchain& tools_;
  CompileReport& report_;
  std::vector<std::string> keys_;
  std::vector<LoadedKernel> loaded_;
  std::mutex mutex_;        // report_ and loaded_ while modules are compiled
  Unsupported failure_;
};

}  // namespace

void set_library_folder(std::string path) {
  std::lock_guard lock(folder_mutex);
  chosen_folder = std::move(path);
}

std::string library_folder() {
  std::lock_guard lock(folder_mutex);
  if (!chosen_folder.empty()) return chosen_folder;
  const char* folder = std::getenv("BRAZE_CLANG_FOLDER");
  return folder == nullptr ? "" : folder;
}

namespace {

// The thread that preload() started, until it is joined: by the first use of the compiler, and before a fork, since a
// child would find the loader's locks taken.
std::mutex preload_mutex;
std::thread* preloading = nullptr;

void finish_preload() {
  std::lock_guard lock(preload_mutex);
  if (preloading == nullptr || preloading->get_id() == std::this_thread::get_id()) return;
  preloading->join();
  delete preloading;
  preloading = nullptr;
}

Toolchain* choose_toolchain() {
  const char* forced = std::getenv("BRAZE_COMPILER");
  const std::string choice = forced == nullptr ? "" : forced;
  if (choice != "system") {
    std::string why;
    if (Toolchain* clang = clang_toolchain(why)) return clang;
    if (choice == "clang") return nullptr;
    warn_once("libbraze_clang.so can't be used (" + why + "): kernels are compiled by a system compiler");
  }
  return system_toolchain();
}

}  // namespace

void preload() {
  static bool started = false;
  std::lock_guard lock(preload_mutex);
  if (started) return;
  started = true;
  pthread_atfork(finish_preload, nullptr, nullptr);
  preloading = new std::thread([] {
    Toolchain* tools = choose_toolchain();
    if (tools == nullptr || !tools->in_process()) return;
    schedule::Target here;
    here.cpu = "native";
    tools->compile("extern \"C\" void warm_up() {}", here);
  });
}

Toolchain* toolchain() {
  finish_preload();
  return choose_toolchain();
}

std::string compiler_description() {
  Toolchain* tools = toolchain();
  return tools == nullptr ? "none" : tools->description();
}

bool define_symbol(const std::string& name, void* address) {
  finish_preload();
  std::string why;
  Toolchain* clang = clang_toolchain(why);
  return clang != nullptr && clang->define(name, address);
}

void clear_memory_cache() {
  MemoryCache& cache = memory();
  std::lock_guard lock(cache.mutex);
  cache.kernels.clear();
  cache.object_of.clear();
  cache.bytes.clear();
  cache.order.clear();
  cache.objects.clear();
  cache.total = 0;
}

Result<std::vector<LoadedKernel>> compile(std::span<const KernelSource> kernels, const EmitUnit& emit,
                                          const schedule::Target& target, CompileReport* report) {
  CompileReport own;
  CompileReport& counted = report == nullptr ? own : *report;
  const auto start = Clock::now();
  if (kernels.empty()) return std::vector<LoadedKernel>{};
  Toolchain* tools = toolchain();
  if (tools == nullptr)
    return Unsupported{"no compiler for generated kernels: libbraze_clang.so can't be loaded and no system C++ compiler "
                       "was found",
                       "install g++ or clang++, or a package of braze with libbraze_clang.so"};
  auto result = Request(kernels, emit, target, *tools, counted).run();
  counted.wall_ms += ms_since(start);
  if (log_enabled(Topic::kPerf))
    log(Topic::kPerf, "jit: " + std::to_string(counted.compiled) + " compiled, " +
                          std::to_string(counted.cache_hits_memory) + " from memory, " +
                          std::to_string(counted.cache_hits_disk) + " from disk, " +
                          std::to_string(counted.wall_ms) + " ms");
  return result;
}

}  // namespace braze::jit
