// Operators that take a Scalar, recorded with a tensor in its place: of a Scalar, a graph can hold only the value.
#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "braze/trace/abort.h"
#include "braze/trace/number_operands.h"
#include "braze/trace/recorder.h"
#include "braze/trace/sym_node.h"

namespace braze::trace {
namespace {

using c10::IValue;
using torch::jit::Stack;

// The Scalar at this place becomes a tensor, nothing else changes.
struct Row {
  std::string_view name, other;
  size_t scalar;
};
constexpr std::array<Row, 16> kRows = {{
    {"aten::mul.Scalar", "mul.Tensor", 1},
    {"aten::div.Scalar", "div.Tensor", 1},
    {"aten::div.Scalar_mode", "div.Tensor_mode", 1},
    {"aten::add.Scalar", "add.Tensor", 1},
    {"aten::sub.Scalar", "sub.Tensor", 1},
    {"aten::eq.Scalar", "eq.Tensor", 1},
    {"aten::ne.Scalar", "ne.Tensor", 1},
    {"aten::lt.Scalar", "lt.Tensor", 1},
    {"aten::le.Scalar", "le.Tensor", 1},
    {"aten::gt.Scalar", "gt.Tensor", 1},
    {"aten::ge.Scalar", "ge.Tensor", 1},
    {"aten::pow.Tensor_Scalar", "pow.Tensor_Tensor", 1},
    {"aten::pow.Scalar", "pow.Tensor_Tensor", 0},
    {"aten::remainder.Scalar", "remainder.Tensor", 1},
    {"aten::masked_fill.Scalar", "masked_fill.Tensor", 2},
    {"aten::fill.Scalar", "fill.Tensor", 1},
}};

c10::OperatorHandle find(std::string_view name) {
  const size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      ("aten::" + std::string(name.substr(0, dot))).c_str(),
      dot == std::string_view::npos ? "" : std::string(name.substr(dot + 1)).c_str());
}

}  // namespace

bool Recorder::record_with_tensors(const c10::OperatorHandle& op, Stack* stack) {
  const size_t n = op.schema().arguments().size();
  std::vector<IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(n), stack->end());
  const auto is_changing = [&](const IValue& value) {
    const auto id = value.isSymFloat() ? to_float_id(value.toSymFloat()) : std::nullopt;
    return id && env_->is_in_f32(*id);
  };
  if (std::ranges::none_of(arguments, is_changing)) return false;

  const auto weak = [&](const IValue& value) {
    at::Tensor tensor = is_changing(value) ? tensor_for(float_input(*to_float_id(value.toSymFloat())))
                                           : c10::scalar_to_tensor(value.toScalar());
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
  };
  const auto call = [&](std::string_view name, std::vector<IValue> inputs) {
    Stack own(std::make_move_iterator(inputs.begin()), std::make_move_iterator(inputs.end()));
    record(find(name), &own);
    return own.at(0).toTensor();
  };
  const auto finish = [&](at::Tensor result) {
    torch::jit::drop(*stack, n);
    stack->emplace_back(std::move(result));
    return true;
  };
  const std::string name = c10::toString(op.operator_name());
  if (const auto row = std::ranges::find(kRows, std::string_view(name), &Row::name);
      row != kRows.end() && is_changing(arguments[row->scalar])) {
    arguments[row->scalar] = weak(arguments[row->scalar]);
    return finish(call(row->other, arguments));
  }
  if (name == "aten::full" || name == "aten::full_like" || name == "aten::new_full") {
    const size_t scalar = name == "aten::new_full" ? 2 : 1;
    const IValue value = std::exchange(arguments[scalar], IValue(0.0));
    return finish(call("fill.Tensor", {call(name.substr(6), arguments), weak(value)}));
  }
  if (!has_form_with_tensors(name)) return false;
  IValue* const on_stack = &*(stack->end() - static_cast<std::ptrdiff_t>(n));
  for (size_t i = 0; i < n; ++i)
    if (is_changing(arguments[i])) on_stack[i] = number_in(tensor_for(float_input(*to_float_id(arguments[i].toSymFloat())))).toSymFloat();
  call_with_tensors(op, stack);
  return true;
}

}  // namespace braze::trace
