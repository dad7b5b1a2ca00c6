// The guards over tensors together that a trace needed: relations of symbolic sizes, and which inputs share memory.
#pragma once

#include <memory>
#include <vector>

#include "braze/capture/tensor_domain.h"
#include "braze/trace/sym_node.h"

namespace braze::trace {

struct SizeRead {           // symbol == tensors[input].size(dim)
  sym::Expr symbol;
  int32_t input;
  int32_t dim;
};

// Memory relations matter where an input is written: it may share memory with no input but those of its group.
struct MemoryGroup {
  std::vector<int32_t> members;       // share one storage; at least one
  bool written = false;
};

// nullptr if there is nothing to check. `n_inputs`: how many tensors run() gets.
std::shared_ptr<const capture::ShapeCheck> make_shape_check(const EnvPtr& env, std::vector<SizeRead> reads,
                                                            std::vector<MemoryGroup> groups, int32_t n_inputs);

}  // namespace braze::trace
