// Python numbers that reach operators in a tensor's place.
#pragma once

#include <ATen/core/Scalar.h>
#include <ATen/core/Tensor.h>

#include <optional>

#include "braze/graph/graph.h"
#include "braze/trace/number_env.h"

namespace braze::trace {

// The number that a wrapped-number tensor carries, as an immediate; nullopt if it is none of Python's number types.
// torch's argument parser stores symbolic numbers beside a tensor with a placeholder value: these are found too.
std::optional<graph::Argument> python_number(const at::Tensor& wrapped);
bool is_symbolic_number(const at::Tensor& wrapped);
// Of a float that changes between calls.
std::optional<FloatId> symbolic_float(const at::Tensor& wrapped);
// A wrapped-number tensor for a number as torch's argument parser makes it.
at::Tensor wrap_number(const at::Scalar& number);

}  // namespace braze::trace
