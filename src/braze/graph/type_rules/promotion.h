// torch.result_type over tensors, 0-dim tensors and Python numbers.
#pragma once

#include <span>

#include "braze/graph/type_rules/call.h"

namespace braze::graph {

// The 0-dim weak tensor that a number stands for; nullptr if the argument is no number.
const TensorType* number_type(const Argument& argument);

// DType::Other if there is no common type; infer_types() refuses such results.
DType result_dtype(const Call& call, std::span<const TensorType* const> operands);
DType default_complex(DType default_dtype);
DType real_of(DType dtype);       // the type of a complex number's parts; others themselves
DType complex_of(DType dtype);

}  // namespace braze::graph
