// Types of results where graph's native rules have no answer: libtorch's own type functions, run on meta tensors.
// Order: at::meta::* (no dispatch), a C++ Meta kernel, a Python meta function (counted: slow), unsupported.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "braze/graph/graph.h"
#include "braze/trace/operators.h"
#include "braze/trace/recorder.h"

namespace braze::trace {

// The results of the call with meta tensors in place of tensors; throws Abort where no tier has an answer. Symbolic
// sizes among the arguments are specialised: these functions know only numbers.
torch::jit::Stack run_meta(const c10::OperatorHandle& op, OperatorInfo& info, at::ArrayRef<c10::IValue> arguments);

// Sizes as plain numbers, under guards.
c10::SmallVector<int64_t, 6> specialized(c10::SymIntArrayRef values);
c10::IValue specialized(const c10::IValue& value);   // a number or a list of numbers

// While alive, operators run on what they are given: nothing is recorded, autocast or differentiated.
class ExcludeTracing {
 public:
  ExcludeTracing();

 private:
  c10::impl::ExcludeDispatchKeyGuard off_;
};

graph::TensorType type_of(const at::Tensor& tensor, c10::Device device);

void count_native_rule();

}  // namespace braze::trace
