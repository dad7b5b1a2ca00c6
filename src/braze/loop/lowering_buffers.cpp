// Buffers that rules define, and their axes.
#include <algorithm>

#include "braze/loop/lowering.h"
#include "braze/support/check.h"
#include "braze/support/hash.h"

namespace braze::loop {

size_t Lowering::AxisKeyHash::operator()(const AxisKey& key) const {
  return mix(mix(hash_bytes(key.prefix), key.position), key.extent.hash());
}

std::vector<Axis> Lowering::axes(const Shape& sizes, std::string_view prefix) {
  std::vector<Axis> out;
  for (size_t k = 0; k < sizes.size(); ++k) {
    const auto [it, is_new] = axis_symbols_.try_emplace({std::string(prefix), k, sizes[k]});
    if (is_new) it->second = context().fresh_index(prefix, sizes[k] == Expr(0) ? Expr(1) : sizes[k]);
    out.push_back({it->second, sizes[k]});
  }
  return out;
}

Indices Lowering::indices_of(std::span<const Axis> axes) const {
  Indices out;
  for (const Axis& axis : axes) out.push_back(axis.extent == Expr(1) ? Expr(0) : axis.symbol);
  return out;
}

int32_t Lowering::new_buffer(BufferKind kind, const TensorType& type, std::string name) {
  const auto id = static_cast<int32_t>(program_.buffers.size());
  Buffer buffer;
  buffer.id = id;
  buffer.name = name.empty() ? "buf" + std::to_string(id) : std::move(name);
  buffer.kind = kind;
  buffer.dtype = type.dtype;
  buffer.device = type.device;
  buffer.sizes = type.sizes;
  buffer.strides = type.strides;
  program_.buffers.push_back(std::move(buffer));
  return id;
}

namespace {

TensorType contiguous_type(const Node& node, DType dtype, const Shape& sizes) {
  TensorType type;
  type.dtype = dtype;
  type.sizes = sizes;
  type.strides = graph::contiguous_strides(sizes);
  type.device = node.results.at(0)->type.device;
  return type;
}

}  // namespace

void Lowering::define(const Node& node, const std::function<void(Buffer&, const Indices&)>& fill, size_t result) {
  const Value* value = node.result(result);
  if (!is_used(value)) return;
  Buffer made;
  made.axes = axes(value->type.sizes);
  const Indices at = indices_of(made.axes);
  fill(made, at);   // may make buffers of its own
  located_[value] = add_buffer(std::move(made), value->type, node, at);
}

Located Lowering::add_buffer(Buffer&& made, const TensorType& type, const Node& node, const Indices& at) {
  const int32_t id = new_buffer(made.kind, type, "");
  Buffer& buffer = program_.buffers[static_cast<size_t>(id)];
  made.id = id;
  made.name = buffer.name;
  made.dtype = buffer.dtype;
  made.device = buffer.device;
  made.sizes = buffer.sizes;
  made.strides = buffer.strides;
  made.origins = {origin_of(node)};
  buffer = std::move(made);
  return {id, type.sizes, at};
}

void Lowering::pointwise(const Node& node, const Body& body, size_t result) {
  const DType dtype = node.result(result)->type.dtype;
  define(node, [&](Buffer& buffer, const Indices& at) { buffer.body = body(at).cast(dtype).scalar(); }, result);
}

Located Lowering::intermediate_buffer(const Node& node, DType dtype, const Shape& sizes,
                                      const std::function<void(Buffer&, const Indices&)>& fill) {
  Buffer made;
  made.axes = axes(sizes);
  const Indices at = indices_of(made.axes);
  fill(made, at);
  return add_buffer(std::move(made), contiguous_type(node, dtype, sizes), node, at);
}

Located Lowering::intermediate(const Node& node, DType dtype, const Shape& sizes, const Body& body) {
  return intermediate_buffer(node, dtype, sizes, [&](Buffer& buffer, const Indices& at) {
    buffer.body = body(at).cast(dtype).scalar();
  });
}

namespace {

// A reduction over extents of 1 is its body.
Term reduced_alone(Lowering& l, ReduceOp op, Term body) {
  switch (op) {
    case ReduceOp::Sum: return is_floating(body.dtype()) ? body + 0.0 : body;
    case ReduceOp::ArgMax: case ReduceOp::ArgMin: return l.constant_int(DType::I64, 0);
    case ReduceOp::Prod: case ReduceOp::Max: case ReduceOp::Min: case ReduceOp::Any: case ReduceOp::All:
    case ReduceOp::Xor:
      return body;
  }
  return body;
}

}  // namespace

Located Lowering::reduced(const Node& node, const ReductionSpec& spec, bool keepdim, const Body& body) {
  const auto is_reduced = [&](size_t k) {
    return std::ranges::find(spec.dims, static_cast<int64_t>(k)) != spec.dims.end();
  };
  Shape kept, gone;
  for (size_t k = 0; k < spec.sizes.size(); ++k) {
    if (is_reduced(k)) gone.push_back(spec.sizes[k]);
    if (!is_reduced(k) || keepdim) kept.push_back(is_reduced(k) ? Expr(1) : spec.sizes[k]);
  }
  const std::vector<Axis> own_axes = axes(kept), reduce_axes = axes(gone, "r");
  const Indices at = indices_of(own_axes), along = indices_of(reduce_axes);
  Indices operand_at;
  size_t next_kept = 0, next_gone = 0;
  for (size_t k = 0; k < spec.sizes.size(); ++k) {
    if (is_reduced(k)) {
      operand_at.push_back(along[next_gone++]);
      if (keepdim) ++next_kept;
    } else {
      operand_at.push_back(at[next_kept++]);
    }
  }
  const Term value = body(operand_at).cast(spec.accumulate);
  const bool degenerate = std::ranges::all_of(gone, [](Expr e) { return e == Expr(1); });
  const int32_t id = new_buffer(degenerate ? BufferKind::Pointwise : BufferKind::Reduction,
                                contiguous_type(node, spec.dtype, kept), "");
  Buffer& made = program_.buffers[static_cast<size_t>(id)];
  made.axes = own_axes;
  made.origins = {origin_of(node)};
  if (degenerate) {
    made.body = reduced_alone(*this, spec.op, value).cast(spec.dtype).scalar();
  } else {
    made.reduce_axes = reduce_axes;
    made.body = value.scalar();
    made.reduce = spec.op;
    made.accumulate = spec.accumulate;
  }
  return {id, kept, at};
}

void Lowering::reduction(const Node& node, const ReductionSpec& spec, const Body& body, size_t result) {
  const Value* value = node.result(result);
  if (!is_used(value)) return;
  const bool keepdim = value->type.sizes.size() == spec.sizes.size() && !spec.dims.empty();
  Located made = reduced(node, spec, keepdim, body);
  Buffer& target = program_.buffers[static_cast<size_t>(made.buffer)];
  CHECK(target.dtype == value->type.dtype);
  CHECK(target.sizes.size() == value->type.sizes.size());
  target.strides = value->type.strides;
  located_[value] = std::move(made);
}

}  // namespace braze::loop
