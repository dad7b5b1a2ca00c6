// Numbers whose value is in a traced tensor: what a native makes of a tensor of one element that stands where it takes a
// Python number (x.addcdiv_(a, b, value=t)). Graphs have no such operands; the operator is written with tensors instead.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace braze::trace {

// `traced`: one floating-point element. Whoever asks for its value throws Abort.
c10::Scalar number_in(const at::Tensor& traced);
bool has_form_with_tensors(const std::string& name);   // "aten::add.Tensor"
bool has_number_in_tensor(at::ArrayRef<c10::IValue> arguments);
// Replaces the arguments on the stack by the result. Throws Abort for operators without a form with tensors.
void call_with_tensors(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace braze::trace
