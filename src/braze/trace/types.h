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

// The argument with `map` applied to its defined tensors and sizes specialised. What names a device or a generator is
// left to the caller.
template <class Map>
c10::IValue map_argument(const c10::IValue& value, ArgumentKind kind, const Map& map) {
  switch (kind) {
    case ArgumentKind::Tensor:
      return value.isTensor() && value.toTensor().defined() ? c10::IValue(map(value.toTensor())) : value;
    case ArgumentKind::TensorList: {
      if (!value.isList()) return value;
      c10::List<at::Tensor> out;
      for (const c10::IValue& item : value.toListRef())
        out.push_back(item.toTensor().defined() ? map(item.toTensor()) : at::Tensor());
      return out;
    }
    case ArgumentKind::OptionalTensorList: {
      if (!value.isList()) return value;
      c10::List<std::optional<at::Tensor>> out;
      for (const c10::IValue& item : value.toListRef())
        out.push_back(item.isTensor() && item.toTensor().defined() ? std::optional(map(item.toTensor())) : std::nullopt);
      return out;
    }
    case ArgumentKind::Int:
    case ArgumentKind::Scalar:
    case ArgumentKind::IntList: return specialized(value);
    case ArgumentKind::Device:
    case ArgumentKind::Generator:
    case ArgumentKind::Float:
    case ArgumentKind::FloatList:
    case ArgumentKind::Bool:
    case ArgumentKind::BoolList:
    case ArgumentKind::ScalarList:
    case ArgumentKind::String:
    case ArgumentKind::StringList:
    case ArgumentKind::DType:
    case ArgumentKind::Layout:
    case ArgumentKind::MemoryFormat:
    case ArgumentKind::Other: break;
  }
  return value;
}

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
