// How a program's inputs reach it: what the caller passes for each graph input.
#pragma once

#include <ATen/core/Tensor.h>
#include "braze/trace/compiler.h"

namespace braze::runtime {

using trace::GraphContext;
using trace::InputBinding;

// The tensor that stands for graph input `binding`: below autograd.
at::Tensor bind(const InputBinding& binding, const at::Tensor& callers);

}  // namespace braze::runtime
