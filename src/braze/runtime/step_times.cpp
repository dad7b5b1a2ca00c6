#include "braze/runtime/step_times.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "braze/support/log.h"

namespace braze::runtime {

void StepTimes::add(const std::vector<Clock::duration>& steps) {
  const std::lock_guard lock(mutex_);
  if (++calls_ == 1 || calls_ > kReported) return;   // the first touches memory and code for the first time
  for (size_t i = 0; i < steps.size(); ++i) total_[i] += steps[i];
  if (calls_ == kReported) log(Topic::kPerf, table());
}

std::string StepTimes::table() const {
  struct Row { Clock::duration time{}; int64_t steps = 0; };
  std::map<std::string, Row> rows;
  Clock::duration all{};
  for (size_t i = 0; i < labels_.size(); ++i) {
    Row& row = rows[labels_[i]];
    row.time += total_[i];
    ++row.steps;
    all += total_[i];
  }
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.time > b.second.time; });
  const auto ms = [](Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count() / (kReported - 1); };
  char line[96];
  std::snprintf(line, sizeof line, ": %.3f ms a call, by step (ms, times, what)", ms(all));
  std::string out = program_ + line;
  for (const auto& [label, row] : sorted) {
    std::snprintf(line, sizeof line, "\n  %9.3f %5lld  ", ms(row.time), static_cast<long long>(row.steps));
    out += line + label;
  }
  return out;
}

}  // namespace braze::runtime
