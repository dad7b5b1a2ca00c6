// What values take and what nodes cost, under the example sizes of symbols. Work is counted in bytes moved; arithmetic
// of library calls is converted at a fixed rate.
#pragma once

#include <cstdint>

#include "braze/graph/graph.h"

namespace braze::partition {

enum class Again : uint8_t {   // may a node run a second time?
  View,     // costs nothing
  Cheap,    // moves memory, and may be fused
  Costly,   // library calls, sorting, operators without a row
  Never,    // draws numbers, has effects, or is another library's
};
Again again(const graph::Node& node);
inline bool is_view(const graph::Node& node) { return again(node) == Again::View; }

// The value at the start of the chain of views that ends in `value`: whose memory it is.
const graph::Value* owner(const graph::Value* value);

// Of the memory behind a tensor: a dimension of stride 0 counts once.
int64_t bytes_of(const sym::ShapeEnv& env, const graph::TensorType& type);
// Of one run of the node, operands and results in memory.
int64_t work_of(const sym::ShapeEnv& env, const graph::Node& node);
// Of a Cheap node that is fused with what uses it: arithmetic alone, and a pass over the operands for a reduction.
int64_t fused_work_of(const sym::ShapeEnv& env, const graph::Node& node);

}  // namespace braze::partition
