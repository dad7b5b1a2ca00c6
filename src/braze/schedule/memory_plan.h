// Memory plan: where each buffer lives. Lifetimes in steps; one arena with reuse; results written over an operand that
// dies in the same step; outputs in memory of their own.
#pragma once

#include "braze/schedule/program.h"
#include "braze/schedule/work.h"

namespace braze::schedule {

inline constexpr int64_t kArenaAlignment = 64;

// Fills buffers, arena_bytes and CallStep::into_planned of a program whose steps are complete.
// block_bytes: see ScheduleOptions.
void plan_memory(const Work& work, Program& program, int64_t block_bytes = 0);

}  // namespace braze::schedule
