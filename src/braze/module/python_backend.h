// Backends written in Python: the graph becomes a torch.fx.GraphModule (python/braze/_backends.py), which the backend
// turns into a callable.
#pragma once

#include <memory>

#include "braze/support/result.h"
#include "braze/trace/compiler.h"

namespace braze::module {

// Unsupported where the graph holds what a GraphModule of plain sizes can't, or where the backend raised. Needs the GIL.
Result<std::shared_ptr<Executable>> compile_in_python(const graph::Graph& graph, const trace::GraphContext& context);

}  // namespace braze::module
