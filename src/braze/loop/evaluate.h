// Reference evaluation of a loop program, one element at a time: the yardstick for lowering, scheduling and code
// generation in tests. Slow, and independent of all of them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "braze/loop/arithmetic.h"
#include "braze/loop/loop_ir.h"

namespace braze::loop {

// A tensor's elements in row-major order of its logical indices, whatever its layout.
struct HostTensor {
  DType dtype = DType::F32;
  std::vector<int64_t> sizes;
  std::vector<Number> data;
};

// Runs a call of the program; one tensor per result of the node.
using RunExtern = std::function<std::vector<HostTensor>(const ExternCall& call, std::span<const HostTensor> operands)>;

struct Evaluation {
  std::vector<HostTensor> outputs;      // undefined ones have no sizes and no data
  std::vector<HostTensor> mutations;    // new contents, in the order of LoopProgram::mutations
};

// `sizes` are the values of program.env->symbols(). An index out of range throws std::out_of_range, integer division
// by zero std::domain_error.
Evaluation evaluate(const LoopProgram& program, std::span<const int64_t> sizes, std::span<const HostTensor> inputs,
                    const RunExtern& run_extern = {});

}  // namespace braze::loop
