// The guard of one tensor: Python type, key set, dtype, device, sizes, strides and requires_grad in one struct compare.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "braze/capture/tensor_domain.h"

namespace braze::trace {

struct TensorGuardOptions {
  std::vector<bool> dynamic;           // per dimension; empty: none. Dynamic sizes are at least 2.
  bool exact_storage = false;          // offset and storage size too (the input is seen as its whole storage)
  bool no_hooks = false;               // none of autograd's hooks: a backward pass of the trace ends at it
};

// Dynamic dimensions need a dense layout: then strides are checked against the order of dimensions, not by value.
capture::TensorOperand tensor_operand(PyObject* object, const TensorGuardOptions& options);

// Dimensions from the innermost outwards if the tensor is dense in some order of dimensions, else empty.
std::vector<int> dense_order(at::IntArrayRef sizes, at::IntArrayRef strides);

// Whether autograd calls somebody when the tensor, a leaf, gets its gradient.
bool has_hooks(const at::Tensor& tensor);

}  // namespace braze::trace
