// How a program's inputs reach it: what the caller passes for each graph input.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "braze/trace/compiler.h"

struct _object;

namespace braze::runtime {

using trace::GraphContext;
using trace::InputBinding;

// The tensor that stands for graph input `binding`: below autograd.
at::Tensor bind(const InputBinding& binding, const at::Tensor& callers);
// The values of Graph::size_inputs, of which GraphContext::size_callers tells the places. Needs the GIL.
std::vector<int64_t> unpack_sizes(std::span<const int32_t> places, _object* const* inputs);

}  // namespace braze::runtime
