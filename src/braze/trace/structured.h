// at::meta functions of structured operators, callable with boxed arguments and without the dispatcher.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace braze::trace {

// nullptr if the operator has no row in structured.def.
const c10::KernelFunction* structured_function(const c10::OperatorHandle& op);

}  // namespace braze::trace
