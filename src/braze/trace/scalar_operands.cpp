// Operators that take a Scalar, recorded with a tensor in its place: of a Scalar, a graph can hold only the value. And
// where such numbers come from.
#include <ATen/ScalarOps.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "braze/graph/foreach.h"
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

at::Tensor Recorder::call(std::string_view name, std::vector<IValue> arguments) {
  const c10::OperatorHandle op = find(name);
  const auto& declared = op.schema().arguments();
  while (arguments.size() < declared.size()) arguments.push_back(declared[arguments.size()].default_value().value());
  Stack own(std::make_move_iterator(arguments.begin()), std::make_move_iterator(arguments.end()));
  record(op, &own);
  return own.at(0).toTensor();
}

at::Tensor Recorder::number_tensor(FloatId id) {
  at::Tensor tensor = env_->is_constant(id) ? c10::scalar_to_tensor(env_->hint_of(id)) : tensor_for(float_input(id));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

// In double precision, as Python computes.
graph::Value* Recorder::graph_number(FloatId id) {
  const FloatNode node = env_->floats()[static_cast<size_t>(id)];
  if (node.op == FloatOp::InGraph) return graph_numbers_[static_cast<size_t>(node.a)];
  if (const auto known = computed_numbers_.find(id); known != computed_numbers_.end()) return known->second;
  const auto operand = [&](FloatId o) { return env_->is_in_graph(o) ? tensor_for(graph_number(o)) : number_tensor(o); };
  const auto compute = [&]() -> at::Tensor {
    switch (node.op) {
      case FloatOp::Add: return call("add.Tensor", {operand(node.a), operand(node.b)});
      case FloatOp::Subtract: return call("sub.Tensor", {operand(node.a), operand(node.b)});
      case FloatOp::Multiply: return call("mul.Tensor", {operand(node.a), operand(node.b)});
      case FloatOp::Divide: return call("div.Tensor", {operand(node.a), operand(node.b)});
      case FloatOp::Negate: return call("neg", {operand(node.a)});
      case FloatOp::Maximum: case FloatOp::Minimum: {
        const at::Tensor a = operand(node.a), b = operand(node.b);
        const at::Tensor second = call(node.op == FloatOp::Maximum ? "gt.Tensor" : "lt.Tensor", {b, a});
        return call("where.self", {second, b, a});
      }
      case FloatOp::Constant: case FloatOp::Input: case FloatOp::Element: case FloatOp::InGraph: case FloatOp::Integer:
      case FloatOp::Power: case FloatOp::Single: case FloatOp::Exact: case FloatOp::SquareRoot: case FloatOp::Exponential:
      case FloatOp::Logarithm: case FloatOp::Sine: case FloatOp::Cosine: break;
    }
    unsupported("a number in a tensor in " + env_->describe(id));
  };
  return computed_numbers_[id] = traced(compute())->value();
}

FloatId Recorder::number_in(const at::Tensor& tensor) {
  if (const auto id = host_numbers_.of(*traced(tensor)->value())) return *id;
  // Its own node, whatever the type: the value is of now, and tracked by nobody.
  const at::AutoDispatchSkipFunctionalize below;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  graph_numbers_.push_back(traced(tensor.reshape({}).to(c10::kDouble))->value());
  return env_->in_graph(static_cast<int32_t>(graph_numbers_.size()) - 1);
}

// A Scalar of the call that changes.
bool Recorder::is_changing(const IValue& value) {
  if (value.isList()) {
    if (value.isIntList() || value.isDoubleList() || value.isBoolList() || value.isTensorList()) return false;
    const auto items = value.toListRef();
    return std::any_of(items.begin(), items.end(), [&](const IValue& item) { return is_changing(item); });
  }
  const auto id = value.isSymFloat() ? to_float_id(value.toSymFloat()) : std::nullopt;
  return id && env_->is_in_f32(*id);
}

namespace {

size_t length_of_lists(at::ArrayRef<IValue> arguments) {
  for (const IValue& argument : arguments)
    if (argument.isTensorList()) return argument.toListRef().size();
  return 0;
}

}  // namespace

bool Recorder::record_each(const OperatorInfo& info, Stack* stack) {
  const graph::Op* each = graph::each_op(info.op);
  const bool scalars_in_tensor = info.treatment == Treatment::ScalarsInTensor;
  if (scalars_in_tensor) each = graph::op(info.op->name == "aten._foreach_addcdiv.Tensor" ? graph::OpId::addcdiv : graph::OpId::addcmul);
  if (each == nullptr) return false;
  const std::vector<IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(info.arguments.size()), stack->end());
  if (!scalars_in_tensor && std::ranges::none_of(arguments, [&](const IValue& v) { return is_changing(v); })) return false;
  const size_t n = length_of_lists(arguments);
  for (const IValue& argument : arguments)
    if (argument.isList() && argument.toListRef().size() != n) unsupported(info.op->name + " of lists that differ in length");
  const at::Tensor scalars = scalars_in_tensor ? arguments.back().toTensor() : at::Tensor();
  if (scalars_in_tensor && (scalars.dim() != 1 || scalars.size(0) != static_cast<int64_t>(n)))
    unsupported(info.op->name + " with scalars of another number");
  c10::List<at::Tensor> results;
  for (size_t i = 0; i < n; ++i) {
    std::vector<IValue> own;
    for (const IValue& argument : arguments) own.push_back(argument.isList() ? argument.toListRef()[i] : argument);
    if (scalars_in_tensor) {
      const at::Tensor scalar = call("select.int", {scalars, int64_t{0}, static_cast<int64_t>(i)});
      own.back() = to_symfloat(number_in(scalar), env_);
    }
    results.push_back(call(each->name.substr(5), std::move(own)));
  }
  torch::jit::drop(*stack, arguments.size());
  stack->emplace_back(std::move(results));
  return true;
}

bool Recorder::record_with_tensors(const c10::OperatorHandle& op, Stack* stack) {
  const size_t n = op.schema().arguments().size();
  std::vector<IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(n), stack->end());
  if (std::ranges::none_of(arguments, [&](const IValue& v) { return is_changing(v); })) return false;

  const auto weak = [&](const IValue& value) {
    if (is_changing(value)) return number_tensor(*to_float_id(value.toSymFloat()));
    at::Tensor tensor = c10::scalar_to_tensor(value.toScalar());
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
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
  if (name == "aten::full" || name == "aten::full_like" || name == "aten::new_full" || name == "aten::scalar_tensor") {
    const size_t scalar = name == "aten::new_full" ? 2 : name == "aten::scalar_tensor" ? 0 : 1;
    const IValue value = std::exchange(arguments[scalar], IValue(0.0));
    return finish(call("fill.Tensor", {call(name.substr(6), arguments), weak(value)}));
  }
  if (!has_form_with_tensors(name)) return record_each(operator_info(op), stack);
  call_with_tensors(op, stack, [&](const c10::SymFloat& value) {
    const auto id = to_float_id(value);
    return id ? number_tensor(*id) : at::Tensor();
  });
  return true;
}

}  // namespace braze::trace
