// Python numbers that reach operators in a tensor's place.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "braze/graph/graph.h"

namespace braze::trace {

// The number that a wrapped-number tensor carries, as an immediate; nullopt if it is none of Python's number types.
// torch's argument parser stores symbolic numbers beside a tensor with a placeholder value: these are found too.
std::optional<graph::Argument> python_number(const at::Tensor& wrapped);
bool is_symbolic_number(const at::Tensor& wrapped);

}  // namespace braze::trace
