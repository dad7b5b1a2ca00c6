// What computing costs, by tables: nanoseconds on one thread of a vectorised loop. Only ratios matter much.
#pragma once

#include "braze/loop/scalar.h"

namespace braze::schedule {

inline constexpr double kNsPerOp = 0.012;         // a cheap operation on one f32 lane of a full vector
inline constexpr double kNsPerByte = 0.022;       // streamed from or to L2 and beyond
inline constexpr double kNsPerGather = 0.2;       // an element from a computed place, beyond its bytes
inline constexpr double kLaunchNs = 1500;         // fork and join of the threads
inline constexpr double kWorthThreadsNs = 3000;   // a kernel below this runs on the calling thread

// Cost of one operation in units of an addition; loads, constants and indices are 0.
double weight_of(loop::ScalarOp op, DType dtype);
// Sum over the distinct nodes below `value`.
double weight_of(const loop::Scalar* value);

}  // namespace braze::schedule
