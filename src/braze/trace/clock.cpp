#include "braze/trace/clock.h"

#include <utility>

#include "braze/trace/compiler.h"

namespace braze::trace {

namespace {

thread_local double traced_ms = 0;
thread_local int running = 0;

}  // namespace

void TraceClock::start() {
  if (running++ == 0) begin_ = Clock::now();
}

void TraceClock::stop() {
  if (--running == 0) traced_ms += std::chrono::duration<double, std::milli>(Clock::now() - begin_).count();
}

double take_trace_time() { return std::exchange(traced_ms, 0); }

}  // namespace braze::trace
