// Runs a scheduled Program: one flat list of kernel launches, ATen calls and copies over planned memory.
#pragma once

#include <memory>
#include <vector>

#include "braze/jit/jit.h"
#include "braze/runtime/graph_program.h"
#include "braze/runtime/inputs.h"
#include "braze/schedule/program.h"

namespace braze::runtime {

// kernels[i] is the machine code of program.kernels[i]. The graph is read only here, not kept. tune: measure the ways to
// make each library call when its shapes first come.
std::shared_ptr<GraphProgram> make_program_executor(const schedule::Program& program,
                                                  std::vector<jit::LoadedKernel> kernels, const graph::Graph& graph,
                                                  const GraphContext& context, bool tune = false);

// Codes that kernels leave in the error cell (the pointer after their last parameter).
enum class KernelError : int64_t { None = 0, IndexOutOfRange = 1, DivisionByZero = 2 };

}  // namespace braze::runtime
