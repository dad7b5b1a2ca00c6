// compile() on hand-written text: caches, damage, broken kernels, unloading. Both tool chains, where they exist.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "braze/jit/jit.h"

using namespace braze;
namespace fs = std::filesystem;

namespace {

struct CacheFolder {
  CacheFolder() {
    std::string pattern = (fs::temp_directory_path() / "braze-test-XXXXXX").string();
    path = mkdtemp(pattern.data());
    setenv("BRAZE_CACHE_DIR", path.c_str(), 1);
    jit::clear_memory_cache();
  }
  ~CacheFolder() {
    fs::permissions(path, fs::perms::owner_all);
    fs::remove_all(path);
  }
  fs::path path;
};

std::string add_kernel(const std::string& name, int constant) {
  return "extern \"C\" __attribute__((visibility(\"default\"))) void " + name +
         "(void* const* p, const long* s, long b, long e) { long* x = (long*)p[0]; for (long i = b; i < e; i++) x[i] += " +
         std::to_string(constant) + "; }\n";
}

std::vector<jit::KernelSource> sources(int n) {
  std::vector<jit::KernelSource> result;
  for (int i = 0; i < n; ++i) result.push_back({"add " + std::to_string(i)});
  return result;
}

std::string emit_adds(std::span<const int32_t> which, std::span<const std::string> names) {
  std::string text;
  for (size_t k = 0; k < which.size(); ++k) text += add_kernel(names[k], which[k]);
  return text;
}

void check_adds(const std::vector<jit::LoadedKernel>& kernels) {
  for (size_t i = 0; i < kernels.size(); ++i) {
    int64_t x[3] = {1, 2, 3};
    void* buffers[] = {x};
    kernels[i].function(buffers, nullptr, 1, 3);
    CHECK(x[0] == 1);
    CHECK(x[1] == 2 + static_cast<int64_t>(i));
    CHECK(x[2] == 3 + static_cast<int64_t>(i));
  }
}

void for_each_toolchain(const std::function<void()>& body) {
  for (const char* choice : {"clang", "system"}) {
    setenv("BRAZE_COMPILER", choice, 1);
    if (jit::compiler_description() == "none") continue;
    CAPTURE(choice);
    body();
  }
  unsetenv("BRAZE_COMPILER");
}

}  // namespace

TEST_CASE("kernels are compiled once, then come from memory, then from disk") {
  for_each_toolchain([] {
    CacheFolder folder;
    const auto wanted = sources(20);
    const schedule::Target target;
    for (int round = 0; round < 3; ++round) {
      jit::CompileReport report;
      auto result = jit::compile(wanted, emit_adds, target, &report);
      REQUIRE(result.ok());
      check_adds(*result);
      CHECK(report.compiled == (round == 0 ? 20 : 0));
      CHECK(report.cache_hits_memory == (round == 1 ? 20 : 0));
      CHECK(report.cache_hits_disk == (round == 2 ? 20 : 0));
      if (round == 1) jit::clear_memory_cache();
    }
  });
}

TEST_CASE("equal kernels are compiled once") {
  CacheFolder folder;
  std::vector<jit::KernelSource> wanted(5, jit::KernelSource{"same"});
  jit::CompileReport report;
  auto result = jit::compile(wanted, emit_adds, schedule::Target{}, &report);
  REQUIRE(result.ok());
  CHECK(report.compiled == 1);
  for (const auto& kernel : *result) CHECK((kernel.function == (*result)[0].function));
}

TEST_CASE("a damaged entry is built again") {
  CacheFolder folder;
  const auto wanted = sources(3);
  REQUIRE(jit::compile(wanted, emit_adds, schedule::Target{}).ok());
  int damaged = 0;
  for (const auto& entry : fs::directory_iterator(folder.path / "kernels")) {
    if (entry.path().extension() != ".o") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(200);
    file.put('\x7f').put('\x55').put('\x01');
    ++damaged;
  }
  CHECK(damaged > 0);
  jit::clear_memory_cache();
  jit::CompileReport report;
  auto result = jit::compile(wanted, emit_adds, schedule::Target{}, &report);
  REQUIRE(result.ok());
  CHECK(report.compiled == 3);
  check_adds(*result);
}

TEST_CASE("a truncated entry is built again") {
  CacheFolder folder;
  const auto wanted = sources(2);
  REQUIRE(jit::compile(wanted, emit_adds, schedule::Target{}).ok());
  for (const auto& entry : fs::directory_iterator(folder.path / "kernels")) fs::resize_file(entry.path(), 5);
  jit::clear_memory_cache();
  jit::CompileReport report;
  auto result = jit::compile(wanted, emit_adds, schedule::Target{}, &report);
  REQUIRE(result.ok());
  CHECK(report.compiled == 2);
  check_adds(*result);
}

TEST_CASE("a broken kernel is named with its source, and its neighbours stay in the cache") {
  for_each_toolchain([] {
    CacheFolder folder;
    const auto wanted = sources(9);
    auto emit = [](std::span<const int32_t> which, std::span<const std::string> names) {
      std::string text;
      for (size_t k = 0; k < which.size(); ++k)
        text += which[k] == 4 ? "void " + names[k] + "() { undeclared(); }\n" : add_kernel(names[k], which[k]);
      return text;
    };
    auto result = jit::compile(wanted, emit, schedule::Target{});
    REQUIRE(!result.ok());
    const std::string& reason = result.why().reason;
    const size_t at = reason.find("its source: ");
    REQUIRE(at != std::string::npos);
    const std::string path = reason.substr(at + 12, reason.find('\n') - at - 12);
    CHECK(fs::exists(path));
    jit::clear_memory_cache();
    jit::CompileReport report;
    auto repaired = jit::compile(wanted, emit_adds, schedule::Target{}, &report);
    REQUIRE(repaired.ok());
    CHECK(report.compiled == 1);
    CHECK(report.cache_hits_disk == 8);
  });
}

TEST_CASE("no usable cache folder: kernels are compiled all the same") {
  CacheFolder folder;
  std::ofstream(folder.path / "file") << "not a folder";
  setenv("BRAZE_CACHE_DIR", (folder.path / "file" / "sub").c_str(), 1);
  CHECK(jit::cache_folder().empty());
  auto result = jit::compile(sources(2), emit_adds, schedule::Target{});
  REQUIRE(result.ok());
  check_adds(*result);
}

TEST_CASE("code stays while it is owned and goes afterwards") {
  CacheFolder folder;
  jit::LoadedKernel kept;
  {
    auto result = jit::compile(sources(4), emit_adds, schedule::Target{});
    REQUIRE(result.ok());
    kept = (*result)[2];
  }
  jit::clear_memory_cache();
  int64_t x[1] = {40};
  void* buffers[] = {x};
  kept.function(buffers, nullptr, 0, 1);
  CHECK(x[0] == 42);
  std::weak_ptr<void> code = kept.code;
  kept = {};
  CHECK(code.expired());
}

TEST_CASE("preloading, then compiling, and again") {
  jit::preload();
  jit::preload();
  CacheFolder folder;
  auto result = jit::compile(sources(2), emit_adds, schedule::Target{});
  REQUIRE(result.ok());
  check_adds(*result);
}
