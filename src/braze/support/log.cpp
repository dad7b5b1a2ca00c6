#include "braze/support/log.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <unordered_set>

namespace braze {
namespace {

constexpr auto kNames = std::to_array<std::string_view>({
#define TOPIC(name, text, about) text,
#include "braze/support/topics.def"
#undef TOPIC
});

std::string parse(std::string_view words, unsigned& mask) {
  while (!words.empty()) {
    const size_t comma = words.find(',');
    const std::string_view word = words.substr(0, comma);
    words = comma == std::string_view::npos ? std::string_view{} : words.substr(comma + 1);
    if (word.empty()) continue;
    size_t i = 0;
    while (i < kNames.size() && kNames[i] != word) ++i;
    if (i == kNames.size()) return std::string(word);
    mask |= 1u << i;
  }
  return {};
}

unsigned& enabled_mask() {
  static unsigned mask = [] {
    unsigned from_environment = 0;
    if (const char* words = std::getenv("BRAZE_LOGS")) {
      if (std::string bad = parse(words, from_environment); !bad.empty())
        std::fprintf(stderr, "braze: BRAZE_LOGS names no topic \"%s\"\n", bad.c_str());
    }
    return from_environment;
  }();
  return mask;
}

std::mutex warnings_mutex;
std::unordered_set<std::string>& seen_warnings() {
  static auto* seen = new std::unordered_set<std::string>;
  return *seen;
}

}  // namespace

bool log_enabled(Topic topic) { return (enabled_mask() >> static_cast<unsigned>(topic)) & 1u; }

void log(Topic topic, std::string_view text) {
  const std::string_view name = kNames[static_cast<size_t>(topic)];
  std::string out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    out.append("[braze ").append(name).append("] ").append(line).append("\n");
  }
  std::fputs(out.c_str(), stderr);
}

std::string set_log_topics(std::string_view words) {
  unsigned mask = 0;
  std::string bad = parse(words, mask);
  if (bad.empty()) enabled_mask() = mask;
  return bad;
}

void warn_once(std::string_view text) {
  std::lock_guard lock(warnings_mutex);
  if (seen_warnings().emplace(text).second)
    std::fprintf(stderr, "braze: %.*s\n", static_cast<int>(text.size()), text.data());
}

void reset_warnings() {
  std::lock_guard lock(warnings_mutex);
  seen_warnings().clear();
}

}  // namespace braze
