// TraceClock: how long a thread works on traces, apart from the interpreter around them and the compiler behind them.
#pragma once

#include <chrono>

namespace braze::trace {

// Runs while it lives. One inside another adds nothing.
class TraceClock {
 public:
  TraceClock() { start(); }
  ~TraceClock() { stop(); }
  TraceClock(const TraceClock&) = delete;
  TraceClock& operator=(const TraceClock&) = delete;
  // While this lives, the clock stands: for work that counts elsewhere.
  class Pause {
   public:
    explicit Pause(TraceClock& clock) : clock_(clock) { clock_.stop(); }
    ~Pause() { clock_.start(); }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    TraceClock& clock_;
  };

 private:
  using Clock = std::chrono::steady_clock;
  void start();
  void stop();
  Clock::time_point begin_{};
};

}  // namespace braze::trace
