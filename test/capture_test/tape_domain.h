// A tensor domain for capture's own tests: it needs no torch headers. Operations run for real, on copies of the
// existing tensors, and are noted on a tape; the executable plays the tape back with the same callables.
#pragma once

#include "braze/capture/tensor_domain.h"

namespace braze::capture {

// Knows torch's callables if torch is imported; without torch nothing is a tensor, and sessions are empty.
std::unique_ptr<TensorDomain> make_tape_domain();

}  // namespace braze::capture
