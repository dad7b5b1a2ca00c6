#include "braze/partition/cost.h"

#include <algorithm>

#include "braze/graph/arguments.h"

namespace braze::partition {

using graph::Node;
using graph::OpId;
using graph::Value;

namespace {

constexpr int64_t kFlopsPerByte = 16;

int64_t elements(const sym::ShapeEnv& env, const graph::TensorType& type) {
  int64_t n = 1;
  for (const graph::Expr size : type.sizes) n *= env.hint(size);
  return n;
}

int64_t result_bytes(const sym::ShapeEnv& env, const Node& node) {
  int64_t bytes = 0;
  for (const Value* result : node.results) bytes += bytes_of(env, result->type);
  return bytes;
}

// 2 * (elements of the result) * (terms of each).
int64_t flops_of(const sym::ShapeEnv& env, const Node& node) {
  const auto terms = [&](const char* name, int64_t from_the_end) -> int64_t {
    const Value* value = graph::tensor(node, name);
    const auto rank = value->type.dim();
    return rank < from_the_end ? 1 : env.hint(value->type.sizes[static_cast<size_t>(rank - from_the_end)]);
  };
  const int64_t each = node.results.empty() ? 0 : elements(env, node.results[0]->type);
  switch (node.op->id) {
    case OpId::mm: case OpId::bmm: case OpId::mv: case OpId::matmul: return 2 * each * terms("self", 1);
    case OpId::linear: return 2 * each * terms("input", 1);
    case OpId::addmm: case OpId::_addmm_activation: return 2 * each * terms("mat1", 1);
    case OpId::baddbmm: return 2 * each * terms("batch1", 1);
    case OpId::convolution: {
      const Value* weight = graph::tensor(node, "weight");
      return 2 * each * elements(env, weight->type) / std::max<int64_t>(env.hint(weight->type.sizes[0]), 1);
    }
    case OpId::_scaled_dot_product_flash_attention_for_cpu: return 4 * each * terms("key", 2);
    default: return 16 * kFlopsPerByte * result_bytes(env, node);
  }
}

bool is_transcendental(OpId id) {
  switch (id) {
    case OpId::exp: case OpId::log: case OpId::tanh: case OpId::sigmoid: case OpId::erf: case OpId::gelu:
    case OpId::silu: case OpId::mish: case OpId::softplus: case OpId::elu: case OpId::sin: case OpId::cos:
    case OpId::pow_Tensor_Tensor: case OpId::pow_Scalar: case OpId::log1p: case OpId::expm1:
      return true;
    default: return false;
  }
}

// Index maps and selections: like arithmetic, they may be fused.
bool moves_elements(OpId id) {
  switch (id) {
    case OpId::cat: case OpId::stack: case OpId::slice_scatter: case OpId::select_scatter: case OpId::constant_pad_nd:
    case OpId::tril: case OpId::triu: case OpId::flip: case OpId::roll: case OpId::repeat: case OpId::index_select:
    case OpId::gather: case OpId::embedding: case OpId::index_Tensor: case OpId::_unsafe_index_Tensor:
    case OpId::diag_embed: case OpId::slice_backward: case OpId::select_backward:
      return true;
    default: return false;
  }
}

}  // namespace

Again again(const Node& node) {
  const graph::Op& op = *node.op;
  if (node.results.empty() || op.has(graph::kRandom) || op.has(graph::kSideEffect)) return Again::Never;
  if (op.has(graph::kView) && !op.has(graph::kMayAlias)) return Again::View;
  if (op.id == OpId::Unknown) return op.name.starts_with("aten.") ? Again::Costly : Again::Never;
  const uint32_t generated = graph::kPointwise | graph::kReduction | graph::kFactory | graph::kPrimitive;
  return op.has(graph::kLibrary) || (op.flags & generated) == 0 ? Again::Costly : Again::Cheap;
}

const Value* owner(const Value* value) {
  while (value->producer != nullptr && is_view(*value->producer)) {
    const Value* operand = nullptr;
    for (const graph::Argument& argument : value->producer->arguments) {
      graph::for_each_value(argument, [&](const Value* v) { operand = v; });
      if (operand != nullptr) break;
    }
    if (operand == nullptr) break;
    value = operand;
  }
  return value;
}

int64_t bytes_of(const sym::ShapeEnv& env, const graph::TensorType& type) {
  if (!type.defined) return 0;
  int64_t bytes = size_of(type.dtype);
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    const bool repeated = type.is_strided && type.strides[d] == graph::Expr(0);
    if (!repeated) bytes *= env.hint(type.sizes[d]);
  }
  return bytes;
}

int64_t work_of(const sym::ShapeEnv& env, const Node& node) {
  switch (again(node)) {
    case Again::View: return 0;
    case Again::Costly: return flops_of(env, node) / kFlopsPerByte;
    case Again::Cheap: case Again::Never: break;
  }
  int64_t bytes = result_bytes(env, node);
  for (const graph::Argument& argument : node.arguments)
    graph::for_each_value(argument, [&](const Value* value) { bytes += bytes_of(env, value->type); });
  return bytes;
}

int64_t fused_work_of(const sym::ShapeEnv& env, const Node& node) {
  const int64_t bytes = result_bytes(env, node);
  if (node.op->has(graph::kPointwise) || node.op->has(graph::kFactory) || moves_elements(node.op->id))
    return bytes / (is_transcendental(node.op->id) ? 4 : 16);
  // Reductions and what contains one read everything before the first result is there.
  int64_t most = bytes;
  for (const graph::Argument& argument : node.arguments)
    graph::for_each_value(argument, [&](const Value* value) { most = std::max(most, bytes_of(env, value->type)); });
  return most;
}

}  // namespace braze::partition
