// Reductions and scans. 16-bit floats accumulate in f32, integers in 64 bits; cumulative sums of f32 in double, as
// ATen's CPU kernels do.
#include "braze/loop/lowering.h"

namespace braze::loop {
namespace {

DType result_dtype(const Node& node, size_t k = 0) { return node.result(k)->type.dtype; }

const Value* self_of(const Node& node) { return node.arguments.at(0).as<Value*>(); }

// The dimensions of argument `dim`, which may be missing: all.
std::optional<std::vector<int64_t>> dims_of(const Node& node) {
  const int64_t rank = self_of(node)->type.dim();
  if (rank == 0) return std::vector<int64_t>{};
  if (node.op->argument_index("dim") < 0 || graph::is_none(node, "dim")) return graph::wrap_dims({}, rank);
  const auto dims = graph::integers(node, "dim");
  if (!dims) return std::nullopt;
  return graph::wrap_dims(*dims, rank);
}

DType accumulator_of(DType dtype) {
  if (dtype == DType::Bool) return DType::Bool;
  return is_floating(dtype) ? compute_type(dtype) : DType::I64;
}

Lowering::ReductionSpec spec_of(const Node& node, std::vector<int64_t> dims, ReduceOp op, DType dtype,
                                DType accumulate) {
  return {op, std::move(dims), self_of(node)->type.sizes, dtype, accumulate};
}

Lowering::Body self_as(Lowering& l, const Node& node, DType dtype) {
  return [&l, &node, dtype](const Indices& at) { return l.load(self_of(node), at).cast(dtype); };
}

}  // namespace

bool lower_sum(Lowering& l, const Node& node, ScalarOp) {
  const auto dims = dims_of(node);
  const DType dtype = result_dtype(node);
  if (!dims || dtype == DType::Bool) return false;
  l.reduction(node, spec_of(node, *dims, ReduceOp::Sum, dtype, accumulator_of(dtype)), self_as(l, node, dtype));
  return true;
}

bool lower_prod(Lowering& l, const Node& node, ScalarOp) {
  const auto dims = dims_of(node);
  const DType dtype = result_dtype(node);
  if (!dims || dtype == DType::Bool) return false;
  l.reduction(node, spec_of(node, *dims, ReduceOp::Prod, dtype, accumulator_of(dtype)), self_as(l, node, dtype));
  return true;
}

// A sum in f32 (or double), divided by the count and then rounded.
bool lower_mean(Lowering& l, const Node& node, ScalarOp) {
  const auto dims = dims_of(node);
  const DType dtype = result_dtype(node), inner = compute_type(dtype);
  if (!dims || !is_floating(dtype)) return false;
  if (!l.is_used(node.result())) return true;
  const Shape& sizes = self_of(node)->type.sizes;
  Expr count = 1;
  for (const int64_t dim : *dims) count = count * sizes[static_cast<size_t>(dim)];
  const bool keepdim = node.result()->type.sizes.size() == sizes.size() && !dims->empty();
  const Located sum =
      l.reduced(node, spec_of(node, *dims, ReduceOp::Sum, inner, inner), keepdim, self_as(l, node, inner));
  l.pointwise(node, [&](const Indices& at) { return l.load(sum, at) / l.index(count).cast(inner); });
  return true;
}

bool lower_extremum(Lowering& l, const Node& node, ScalarOp op) {
  const auto dims = dims_of(node);
  if (!dims) return false;
  const DType dtype = result_dtype(node), inner = compute_type(dtype);
  const bool is_max = op == ScalarOp::Maximum;
  const ReduceOp reduce = dtype == DType::Bool ? (is_max ? ReduceOp::Any : ReduceOp::All)
                                               : (is_max ? ReduceOp::Max : ReduceOp::Min);
  l.reduction(node, spec_of(node, *dims, reduce, dtype, inner), self_as(l, node, inner));
  return true;
}

namespace {

void arg_extremum(Lowering& l, const Node& node, std::vector<int64_t> dims, bool is_max, size_t result) {
  const DType dtype = self_of(node)->type.dtype;
  const DType inner = dtype == DType::Bool ? DType::U8 : compute_type(dtype);
  const ReduceOp op = is_max ? ReduceOp::ArgMax : ReduceOp::ArgMin;
  l.reduction(node, spec_of(node, std::move(dims), op, DType::I64, inner), self_as(l, node, inner), result);
}

}  // namespace

bool lower_extremum_with_index(Lowering& l, const Node& node, ScalarOp op) {
  const auto dims = dims_of(node);
  if (!dims) return false;
  lower_extremum(l, node, op);
  arg_extremum(l, node, *dims, op == ScalarOp::Maximum, 1);
  return true;
}

bool lower_arg_extremum(Lowering& l, const Node& node, ScalarOp op) {
  const auto dims = dims_of(node);
  if (!dims) return false;
  arg_extremum(l, node, *dims, op == ScalarOp::Maximum, 0);
  return true;
}

bool lower_any_all(Lowering& l, const Node& node, ScalarOp op) {
  const auto dims = dims_of(node);
  if (!dims) return false;
  const ReduceOp reduce = op == ScalarOp::BitOr ? ReduceOp::Any : ReduceOp::All;
  l.reduction(node, spec_of(node, *dims, reduce, result_dtype(node), DType::Bool),
              [&](const Indices& at) { return truth(l.load(self_of(node), at)); });
  return true;
}

bool lower_scan(Lowering& l, const Node& node, ScalarOp op) {
  const DType dtype = result_dtype(node);
  const Value* self = self_of(node);
  const auto dim = graph::integer(node, "dim");
  if (!dim || dtype == DType::Bool) return false;
  if (self->type.dim() == 0) {
    l.pointwise(node, self_as(l, node, dtype));
    return true;
  }
  const auto axis = static_cast<size_t>(graph::wrap_dim(*dim, self->type.dim()));
  if (self->type.sizes[axis] == Expr(1)) {   // one value: 0 + x or 1 * x
    l.pointwise(node, [&](const Indices& at) {
      const Term x = l.load(self, at).cast(dtype);
      return op == ScalarOp::Add && is_floating(dtype) ? x + 0.0 : x;
    });
    return true;
  }
  const DType accumulate = dtype == DType::F32 ? DType::F64 : accumulator_of(dtype);
  l.define(node, [&](Buffer& buffer, const Indices& at) {
    buffer.kind = BufferKind::Scan;
    buffer.scan_axis = static_cast<int32_t>(axis);
    buffer.reduce = op == ScalarOp::Add ? ReduceOp::Sum : ReduceOp::Prod;
    buffer.accumulate = accumulate;
    buffer.body = l.load(self, at).cast(dtype).cast(accumulate).scalar();
  });
  return true;
}

}  // namespace braze::loop
