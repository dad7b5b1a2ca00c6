// StepTimes: milliseconds by kernel and library call of one program, for BRAZE_LOGS=perf.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace braze::runtime {

class StepTimes {
 public:
  using Clock = std::chrono::steady_clock;

  // One label a step; steps with the same label are added up.
  StepTimes(std::string program, std::vector<std::string> labels) : program_(std::move(program)), labels_(std::move(labels)) {
    total_.resize(labels_.size());
  }
  // The times of one call's steps. Logs the table of the first kReported calls but the first, then no more.
  void add(const std::vector<Clock::duration>& steps);

 private:
  static constexpr int kReported = 10;
  std::string table() const;

  std::string program_;
  std::vector<std::string> labels_;
  std::mutex mutex_;
  std::vector<Clock::duration> total_;
  int calls_ = 0;
};

}  // namespace braze::runtime
