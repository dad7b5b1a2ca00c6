// Operators that take a Python number, with a tensor in its place (x.addcdiv_(a, b, value=t)). Graphs have no such
// operands; the operator is written with tensors instead.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/SymFloat.h>

#include <functional>
#include <string>

namespace braze::trace {

// A tensor without dimensions for the number; an undefined one if it is known.
using NumberTensor = std::function<at::Tensor(const c10::SymFloat&)>;

bool has_form_with_tensors(const std::string& name);   // "aten::add.Tensor"
// Replaces the arguments on the stack by the result. Throws Abort where the form does not fit.
void call_with_tensors(const c10::OperatorHandle& op, torch::jit::Stack* stack, const NumberTensor& tensor_of);

}  // namespace braze::trace
