#include "braze/trace/structured.h"

#include <ATen/core/boxing/KernelFunction.h>

#include <string>
#include <unordered_map>

namespace braze::trace {

const c10::KernelFunction* structured_function(const c10::OperatorHandle&) { return nullptr; }

}  // namespace braze::trace
