// The guards over inputs together that a trace needed: relations of symbolic sizes and numbers, and which inputs share
// memory.
#pragma once

#include <memory>
#include <vector>

#include "braze/capture/tensor_domain.h"
#include "braze/trace/call_numbers.h"

namespace braze::trace {

// Memory relations matter where an input is written: it may share memory with no input but those of its group.
struct MemoryGroup {
  std::vector<int32_t> members;       // share one storage; at least one
  bool written = false;
};

// nullptr if there is nothing to check. `n_tensors`: how many of run()'s inputs are tensors; these come first.
std::shared_ptr<const capture::ShapeCheck> make_shape_check(const EnvPtr& env, NumberReads reads,
                                                            std::vector<MemoryGroup> groups, int32_t n_tensors);

}  // namespace braze::trace
