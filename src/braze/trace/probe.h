// Types of results that no type function knows: the operator's own kernel is run on tensors of the traced types, filled
// with numbers of our own. Only for kernels of libtorch, which read nothing but their arguments and change nothing.
#pragma once

#include <ATen/core/stack.h>

#include "braze/trace/operators.h"

namespace braze::trace {

bool can_probe(const c10::OperatorHandle& op);

// The results, real tensors on the CPU. The kernel runs on two fillings; where `dynamic` is false, types that differ
// between them are refused. Throws Abort where the kernel takes neither. Symbolic sizes are specialised.
torch::jit::Stack run_probe(const c10::OperatorHandle& op, const OperatorInfo& info,
                            at::ArrayRef<c10::IValue> arguments, bool dynamic);

}  // namespace braze::trace
