// Traces a function of tensors that is written in C++, as a call of a program would be.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braze/support/executable.h"
#include "braze/support/result.h"

namespace braze::trace {

using TensorFunction = std::function<std::vector<at::Tensor>(std::span<const at::Tensor>)>;

struct Retraced {
  std::shared_ptr<Executable> executable;
  std::vector<size_t> inputs;   // the examples that it takes, in its order
};

// For tensors like the examples, distinct ones: dtype, sizes, strides and requires_grad. With the GIL.
Result<Retraced> trace_function(std::span<const at::Tensor> examples, const std::string& backend, const TensorFunction& function);

}  // namespace braze::trace
