#include "braze/runtime/tuning.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <limits>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "braze/jit/cache.h"
#include "braze/runtime/parallel.h"
#include "braze/support/hash.h"
#include "braze/support/log.h"

namespace braze::runtime {
namespace {

// Rounds over all ways; the first touches memory and is not counted. Short calls are run more often.
constexpr int kLeastRounds = 4, kMostRounds = 40;
constexpr double kWantedMs = 40;
constexpr double kBetter = 0.95;   // a way is taken before those that stand before it if it is that much faster

// What the processor calls itself and what it can do.
const std::string& machine() {
  static const std::string text = [] {
    std::string out, line;
    std::ifstream info("/proc/cpuinfo");
    while (std::getline(info, line) && !line.empty())
      if (line.starts_with("model") || line.starts_with("cpu family") || line.starts_with("flags")) out += line + "\n";
    return out;
  }();
  return text;
}

std::string entry_name(const std::string& key) { return "tuned_" + content_hash(machine() + key); }

std::string text_of_ms(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, " %.4f ms", ms);
  return text;
}

std::optional<size_t> numbered(std::span<const Way> ways, const std::string& name) {
  for (size_t i = 0; i < ways.size(); ++i)
    if (ways[i].name == name) return i;
  return std::nullopt;
}

size_t measure(const std::string& key, std::span<const Way> ways) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> least(ways.size(), std::numeric_limits<double>::infinity());
  double spent = 0;
  for (int round = 0; round < kLeastRounds || (round < kMostRounds && spent < kWantedMs); ++round)
    for (size_t i = 0; i < ways.size(); ++i) {
      const Clock::time_point start = Clock::now();
      ways[i].run();
      const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
      spent += ms;
      if (round > 0) least[i] = std::min(least[i], ms);
    }
  size_t best = 0;
  for (size_t i = 1; i < ways.size(); ++i)
    if (least[i] < kBetter * least[best]) best = i;
  if (log_enabled(Topic::kSchedule)) {
    std::string tried;
    for (size_t i = 0; i < ways.size(); ++i) tried += (i == 0 ? "" : ", ") + ways[i].name + text_of_ms(least[i]);
    log(Topic::kSchedule, "tuned " + key + ": " + ways[best].name + " of " + tried);
  }
  return best;
}

}  // namespace

size_t fastest_way(const std::string& key, std::span<const Way> ways) {
  static std::mutex mutex;
  static std::unordered_map<std::string, std::string> known;
  const std::string full = key + " threads " + std::to_string(thread_count());
  {
    const std::lock_guard lock(mutex);
    if (const auto it = known.find(full); it != known.end())
      if (const auto way = numbered(ways, it->second)) return *way;
  }
  const std::string entry = entry_name(full);
  std::optional<size_t> way;
  if (const auto name = jit::read_entry(entry)) way = numbered(ways, *name);
  if (!way) {
    way = measure(full, ways);
    jit::write_entry(entry, ways[*way].name);
  }
  const std::lock_guard lock(mutex);
  known.insert_or_assign(full, ways[*way].name);
  return *way;
}

}  // namespace braze::runtime
