// How a program's inputs reach it: what the caller passes for each graph input.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "braze/graph/graph.h"

namespace braze::runtime {

struct InputBinding {
  enum class Kind : uint8_t {
    Tensor,       // a Python tensor, as it is
    StorageBase,  // a Python tensor whose whole storage is the graph's 1-D input (aliased or strided inputs)
    Constant,     // a tensor that the program keeps
  };
  Kind kind = Kind::Tensor;
  int32_t caller = -1;      // which of the caller's inputs (Tensor, StorageBase)
  at::Tensor constant;
};

struct ProgramInputs {
  std::vector<InputBinding> bindings;        // one per graph input
  std::vector<c10::IValue> objects;          // graph::Opaque slots (generators)
};

// The tensor that stands for graph input `binding`: below autograd.
at::Tensor bind(const InputBinding& binding, const at::Tensor& callers);

}  // namespace braze::runtime
