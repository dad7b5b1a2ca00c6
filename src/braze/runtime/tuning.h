// mode="max-autotune": of several ways to make one call the fastest, measured when its shapes first come and kept, for the
// process and on disk, for each machine and number of threads.
#pragma once

#include <functional>
#include <span>
#include <string>

namespace braze::runtime {

struct Way {
  std::string name;
  std::function<void()> run;   // makes the call; may be run several times
};

// The number of the fastest way for `key`, which names the call and its shapes. What was tried is logged
// (BRAZE_LOGS=schedule).
size_t fastest_way(const std::string& key, std::span<const Way> ways);

}  // namespace braze::runtime
