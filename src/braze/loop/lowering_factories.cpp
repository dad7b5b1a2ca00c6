// Tensors that are made of no other.
#include "braze/loop/lowering.h"

namespace braze::loop {
namespace {

DType result_dtype(const Node& node) { return node.result()->type.dtype; }

bool fill(Lowering& l, const Node& node, double value) {
  l.pointwise(node, [&](const Indices&) { return l.constant(result_dtype(node), value); });
  return true;
}

bool is_real_number(const Argument& argument) {
  return argument.is<Expr>() || argument.is<double>() || argument.is<bool>();
}

}  // namespace

bool lower_full(Lowering& l, const Node& node, ScalarOp) {
  const Argument& value = node.argument("fill_value");
  if (!is_real_number(value)) return false;
  l.pointwise(node, [&](const Indices&) { return l.number(value, result_dtype(node)); });
  return true;
}

bool lower_scalar_tensor(Lowering& l, const Node& node, ScalarOp) {
  const Argument& value = node.argument("s");
  if (!is_real_number(value)) return false;
  l.pointwise(node, [&](const Indices&) { return l.number(value, result_dtype(node)); });
  return true;
}

// Also of empty tensors: their contents are anybody's choice.
bool lower_zeros(Lowering& l, const Node& node, ScalarOp) { return fill(l, node, 0); }
bool lower_ones(Lowering& l, const Node& node, ScalarOp) { return fill(l, node, 1); }

bool lower_arange(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node);
  const auto given = [&](std::string_view name, int64_t otherwise) {
    return node.op->argument_index(name) < 0 ? Argument(Expr(otherwise)) : node.argument(name);
  };
  const Argument start = given("start", 0), step = given("step", 1);
  if (!is_real_number(start) || !is_real_number(step)) return false;
  // Integers are computed as such, the step truncated; floats in double, rounded once.
  const DType inner = is_floating(dtype) ? DType::F64 : DType::I64;
  l.pointwise(node, [&](const Indices& at) {
    if (inner == DType::I64 && start.is<Expr>() && step.is<Expr>())
      return l.index(start.as<Expr>() + at[0] * step.as<Expr>());
    return l.number(start, inner) + l.number(step, inner) * l.index(at[0]).cast(inner);
  });
  return true;
}

bool lower_eye(Lowering& l, const Node& node, ScalarOp) {
  l.pointwise(node, [&](const Indices& at) {
    return where(l.equal(at[0], at[1]), 1.0, l.constant(result_dtype(node), 0));
  });
  return true;
}

// From both ends towards the middle, as ATen does it.
bool lower_linspace(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node);
  const Argument &start = node.argument("start"), &end = node.argument("end");
  const auto steps = graph::integer(node, "steps");
  if (!steps || !is_real_number(start) || !is_real_number(end) || (dtype != DType::F32 && dtype != DType::F64))
    return false;
  l.pointwise(node, [&](const Indices& at) {
    const Term first = l.number(start, dtype), last = l.number(end, dtype);
    if (*steps <= 1) return first;
    const Term step = (last - first) / static_cast<double>(*steps - 1);
    const Term from_start = first + step * l.index(at[0]).cast(dtype);
    const Term from_end = last - step * l.index(Expr(*steps - 1) - at[0]).cast(dtype);
    return where(l.less(at[0], Expr(*steps / 2)), from_start, from_end);
  });
  return true;
}

}  // namespace braze::loop
