// Ops that do the same to each tensor of a list (torch._foreach_*): which op, and with which arguments.
#pragma once

#include <optional>
#include <vector>

#include "braze/graph/graph.h"

namespace braze::graph {

// The op on one tensor; nullptr if `op` is not of this kind.
const Op* each_op(const Op* op);
// The arguments of that op for tensor number i: item i of each list, the rest as it stands.
std::vector<Argument> each_arguments(const Op* op, const std::vector<Argument>& arguments, size_t i);
// How many tensors the lists hold; nullopt if they do not agree.
std::optional<size_t> each_count(const std::vector<Argument>& arguments);

}  // namespace braze::graph
