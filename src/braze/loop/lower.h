// Lowering where some nodes get no kernel.
#pragma once

#include <string>
#include <unordered_set>

#include "braze/loop/loop_ir.h"

namespace braze::loop {

// lower(), with the nodes of `opaque` as Extern calls. A node whose rule breaks becomes one too.
Result<LoopProgram> lower(const graph::Graph& graph, std::unordered_set<const graph::Node*> opaque);

// The node as buffers name it among their origins: "%12 = aten.relu".
std::string origin_of(const graph::Node& node);

}  // namespace braze::loop
