// Whether something follows the frames that run: a debugger, a profiler, a coverage tool. Code that is compiled or executed
// by capture gives them no events, so that calls then run natively.
#pragma once

namespace braze::capture {

// Needs the GIL. Sets no error.
bool is_observed();

}  // namespace braze::capture
