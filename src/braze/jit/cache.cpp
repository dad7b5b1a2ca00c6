#include "braze/jit/cache.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include "braze/jit/jit.h"
#include "braze/support/hash.h"
#include "braze/support/log.h"

namespace braze::jit {

namespace fs = std::filesystem;

namespace {

struct Header {
  char magic[8];
  uint64_t size, check_a, check_b;
};
constexpr char kMagic[8] = {'b', 'r', 'a', 'z', 'e', 'k', '0', '1'};

Header header_of(std::string_view contents) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.size = contents.size();
  header.check_a = hash_bytes(contents, 1);
  header.check_b = hash_bytes(contents, 2);
  return header;
}

std::string wished_folder() {
  auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (std::string folder = variable("BRAZE_CACHE_DIR"); !folder.empty()) return folder;
  if (std::string folder = variable("XDG_CACHE_HOME"); !folder.empty()) return folder + "/braze";
  if (std::string home = variable("HOME"); !home.empty()) return home + "/.cache/braze";
  return {};
}

// The folder of entries, made if need be; "" if it can't be used.
std::string kernel_folder() {
  static std::mutex mutex;
  static std::string wished, usable;
  std::lock_guard lock(mutex);
  const std::string wish = wished_folder();
  if (wish == wished) return usable;
  wished = wish;
  usable.clear();
  if (wish.empty()) return usable;
  std::error_code error;
  fs::create_directories(wish + "/kernels", error);
  if (error || access((wish + "/kernels").c_str(), W_OK | X_OK) != 0) {
    // What stands in a read-only folder can still be read.
    if (access((wish + "/kernels").c_str(), R_OK | X_OK) == 0) usable = wish + "/kernels";
    warn_once("the cache folder " + wish + " can't be written: kernels are compiled again in each process");
    return usable;
  }
  return usable = wish + "/kernels";
}

bool write_whole(const fs::path& path, const std::string& contents) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  out.close();
  return out.good();
}

}  // namespace

std::string cache_folder() {
  const std::string kernels = kernel_folder();
  return kernels.empty() ? kernels : kernels.substr(0, kernels.rfind('/'));
}

std::optional<std::string> read_entry(const std::string& name) {
  const std::string folder = kernel_folder();
  if (folder.empty()) return std::nullopt;
  const std::string path = folder + "/" + name;
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  std::string file = std::move(text).str();
  if (file.size() >= sizeof(Header)) {
    std::string contents = file.substr(sizeof(Header));
    const Header expected = header_of(contents);
    if (std::memcmp(&expected, file.data(), sizeof expected) == 0) return contents;
  }
  std::error_code ignored;
  fs::remove(path, ignored);
  return std::nullopt;
}

void write_entry(const std::string& name, std::string_view contents) {
  const std::string folder = kernel_folder();
  if (folder.empty() || access(folder.c_str(), W_OK) != 0) return;
  static std::atomic<int> count{0};
  const fs::path temporary = folder + "/." + std::to_string(getpid()) + "." + std::to_string(count++);
  const Header header = header_of(contents);
  std::string file(reinterpret_cast<const char*>(&header), sizeof header);
  file += contents;
  std::error_code error;
  if (write_whole(temporary, file)) fs::rename(temporary, folder + "/" + name, error);
  else error = std::make_error_code(std::errc::io_error);
  if (!error) return;
  std::error_code ignored;
  fs::remove(temporary, ignored);
  warn_once("an entry of the cache folder " + folder + " can't be written (full or read-only?): kernels are compiled "
            "again in each process");
}

std::string keep_source(const std::string& text) {
  std::error_code error;
  const std::string name = "braze_failed_" + content_hash(text) + ".cpp";
  const std::string folder = cache_folder();
  if (!folder.empty() && write_whole(folder + "/" + name, text)) return folder + "/" + name;
  const fs::path other = fs::temp_directory_path(error) / name;
  return !error && write_whole(other, text) ? other.string() : std::string();
}

}  // namespace braze::jit
