// Backward operators for which libtorch has no derivative: eager computes them otherwise where its backward pass is
// differentiated. Here they are written with operators that have one.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "braze/graph/graph.h"

namespace braze::runtime {

// operands: the defined tensors among the node's arguments, in order. Gives one tensor per result of the node.
using DifferentiableForm = std::vector<at::Tensor> (*)(const graph::Node& node, std::span<const at::Tensor> operands);

// nullptr: the operator itself can be differentiated, or nothing can.
DifferentiableForm differentiable_form(const graph::Op& op);

}  // namespace braze::runtime
