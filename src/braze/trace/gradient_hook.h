// Hooks that a traced program puts on gradients of tensors that it computes (Tensor.register_hook). The engine calls
// ours, and capture interprets the program's, as it does the backward of custom autograd functions.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <memory>

#include "braze/capture/differentiation.h"

namespace braze::trace {

// Shared by the autograd graph, which runs it, and the recorder, which forgets `call` at the end of the trace.
struct GradientHook {
  capture::Backward call;   // takes a gradient, gives another one or None
  bool removed = false;
};

class InterpretedHook final : public torch::autograd::FunctionPreHook {
 public:
  InterpretedHook(std::shared_ptr<const GradientHook> hook, size_t output) : hook_(std::move(hook)), output_(output) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override;

 private:
  std::shared_ptr<const GradientHook> hook_;
  size_t output_;   // of the node
};

}  // namespace braze::trace
