// OperatorCall: one call into ATen, resolved once: the operator's handle and a stack of arguments in which only tensors
// and symbolic sizes are filled in per call.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <span>
#include <vector>

#include "braze/graph/graph.h"

namespace braze::runtime {

// Objects that the IR names by slot (generators): kept by the graph's owner.
using ObjectOf = std::function<c10::IValue(int32_t slot)>;
// The slot in the per-call size values that holds an expression's value.
using SizeSlot = std::function<int(graph::Expr)>;

class OperatorCall {
 public:
  enum class Form : uint8_t { Functional, Out };   // Out: the overload that writes into a given result
  // Throws InternalError if torch has no such operator.
  OperatorCall(const graph::Node& node, const SizeSlot& size_slot, const ObjectOf& object_of,
               Form form = Form::Functional);

  // tensors: the node's defined tensors in order of appearance. Fills one entry per tensor result of the node
  // (lists flattened; undefined results stay undefined). Throws what the operator throws. Runs below autograd.
  void run(std::span<const at::Tensor> tensors, const int64_t* sizes, std::vector<at::Tensor>& results) const;

  // Form::Out: writes the one result into `out`, which has the result's sizes, strides and dtype.
  void run_into(std::span<const at::Tensor> tensors, const int64_t* sizes, at::Tensor& out) const;

 private:
  std::vector<c10::IValue> filled(std::span<const at::Tensor> tensors, const int64_t* sizes) const;
  c10::IValue make(const graph::Argument& argument, const c10::Type& type, const SizeSlot& size_slot,
                   const ObjectOf& object_of);

  c10::OperatorHandle handle_;
  std::vector<c10::IValue> stack_;                       // constants in place
  struct Fill {                                          // what one argument needs per call
    enum class Kind : uint8_t { Tensor, TensorList, OptionalTensorList, Size, Number, SizeList } kind;
    int32_t argument;
    std::vector<int32_t> items;                          // tensor numbers (-1: undefined) or size slots (~constant index)
    std::vector<int64_t> constants;                      // SizeList: items[i] < 0 reads constants[~items[i]]
  };
  std::vector<Fill> fills_;
  int32_t next_tensor_ = 0;
  bool keeps_workspace_ = false;                         // for the backward pass: the kernel asks the grad mode
};

}  // namespace braze::runtime
