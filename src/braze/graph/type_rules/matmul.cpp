// Matrix products and fused attention.
#include "braze/graph/type_rules/layout.h"
#include "braze/graph/type_rules/promotion.h"
#include "braze/graph/type_rules/rules.h"

namespace braze::graph::rules {
namespace {

bool is_matrix(const TensorType* t) { return t != nullptr && t->sizes.size() == 2; }
bool is_batch(const TensorType* t) { return t != nullptr && t->sizes.size() == 3; }

// beta * self + product: self must broadcast to the product's sizes.
bool can_add(const Call& call, const TensorType& self, const Shape& sizes) {
  if (self.sizes.size() > sizes.size()) return false;
  const size_t missing = sizes.size() - self.sizes.size();
  for (size_t i = 0; i < self.sizes.size(); ++i)
    if (!call.is_one(self.sizes[i]) && !call.same(self.sizes[i], sizes[missing + i])) return false;
  return true;
}

}  // namespace

Types mm(const Call& call) {
  const TensorType *a = call.tensor(0), *b = call.tensor(1);
  if (!is_matrix(a) || !is_matrix(b) || a->dtype != b->dtype || a->dtype == DType::Bool ||
      !call.same(a->sizes[1], b->sizes[0]))
    return unsupported(call, "operands");
  return one(contiguous_type(a->dtype, {a->sizes[0], b->sizes[1]}, a->device));
}

Types addmm(const Call& call) {
  const TensorType *self = call.tensor(0), *a = call.tensor(1), *b = call.tensor(2);
  if (self == nullptr || !is_matrix(a) || !is_matrix(b) || a->dtype != b->dtype || self->dtype != a->dtype ||
      a->dtype == DType::Bool || !call.same(a->sizes[1], b->sizes[0]))
    return unsupported(call, "operands");
  Shape sizes{a->sizes[0], b->sizes[1]};
  if (!can_add(call, *self, sizes)) return unsupported(call, "sizes do not broadcast");
  return one(contiguous_type(a->dtype, std::move(sizes), a->device));
}

Types bmm(const Call& call) {
  const TensorType *a = call.tensor(0), *b = call.tensor(1);
  if (!is_batch(a) || !is_batch(b) || a->dtype != b->dtype || a->dtype == DType::Bool ||
      !call.same(a->sizes[0], b->sizes[0]) || !call.same(a->sizes[2], b->sizes[1]))
    return unsupported(call, "operands");
  return one(contiguous_type(a->dtype, {a->sizes[0], a->sizes[1], b->sizes[2]}, a->device));
}

Types baddbmm(const Call& call) {
  const TensorType *self = call.tensor(0), *a = call.tensor(1), *b = call.tensor(2);
  if (self == nullptr || !is_batch(a) || !is_batch(b) || a->dtype != b->dtype || self->dtype != a->dtype ||
      a->dtype == DType::Bool || !call.same(a->sizes[0], b->sizes[0]) || !call.same(a->sizes[2], b->sizes[1]))
    return unsupported(call, "operands");
  Shape sizes{a->sizes[0], a->sizes[1], b->sizes[2]};
  if (call.op.id == OpId::addbmm) sizes.erase(sizes.begin());
  if (!can_add(call, *self, sizes)) return unsupported(call, "sizes do not broadcast");
  return one(contiguous_type(a->dtype, std::move(sizes), a->device));
}

Types mv(const Call& call) {
  const bool adds = call.op.id == OpId::addmv;
  const TensorType *self = adds ? call.tensor(0) : nullptr, *a = call.tensor(adds ? 1 : 0),
                   *x = call.tensor(adds ? 2 : 1);
  if (!is_matrix(a) || x == nullptr || x->sizes.size() != 1 || a->dtype != x->dtype || a->dtype == DType::Bool ||
      !call.same(a->sizes[1], x->sizes[0]))
    return unsupported(call, "operands");
  Shape sizes{a->sizes[0]};
  if (adds && (self == nullptr || self->dtype != a->dtype || !can_add(call, *self, sizes)))
    return unsupported(call, "operands");
  return one(contiguous_type(a->dtype, std::move(sizes), a->device));
}

Types dot(const Call& call) {
  const TensorType *a = call.tensor(0), *b = call.tensor(1);
  if (a->sizes.size() != 1 || b->sizes.size() != 1 || a->dtype != b->dtype || a->dtype == DType::Bool ||
      !call.same(a->sizes[0], b->sizes[0]))
    return unsupported(call, "operands");
  return one(contiguous_type(a->dtype, {}, a->device));
}

Types addr(const Call& call) {
  const TensorType *self = call.tensor(0), *a = call.tensor(1), *b = call.tensor(2);
  if (a->sizes.size() != 1 || b->sizes.size() != 1) return unsupported(call, "operands");
  Shape sizes{a->sizes[0], b->sizes[0]};
  if (!can_add(call, *self, sizes)) return unsupported(call, "sizes do not broadcast");
  const TensorType* all[] = {self, a, b};
  const DType dtype = result_dtype(call, all);
  for (const TensorType* t : all)
    if (t->dtype != dtype) return unsupported(call, "operands of different types");
  TensorType broadcast_self = *self, column = *a;
  column.sizes.push_back(1);
  column.strides.push_back(a->sizes.empty() ? Expr(1) : Expr(1));
  const TensorType* operands[] = {&broadcast_self, &column, b};
  TensorType out = contiguous_type(dtype, sizes, self->device);
  out.strides = iterator_strides(call, sizes, operands);
  return one(std::move(out));
}

Types linear(const Call& call) {
  const TensorType *input = call.tensor(0), *weight = call.tensor(1), *bias = call.tensor(2);
  if (input == nullptr || !is_matrix(weight) || input->sizes.empty() || input->dtype != weight->dtype ||
      !call.same(input->sizes.back(), weight->sizes[1]))
    return unsupported(call, "operands");
  Shape sizes = input->sizes;
  sizes.back() = weight->sizes[0];
  if (bias != nullptr && (bias->dtype != input->dtype || !can_add(call, *bias, {weight->sizes[0]})))
    return unsupported(call, "bias");
  return one(contiguous_type(input->dtype, std::move(sizes), input->device));
}

// The output is laid out as the query; the log of the sums stands in memory as [batch, length, heads].
Types flash_attention(const Call& call) {
  const TensorType *query = call.tensor(0), *key = call.tensor(1), *value = call.tensor(2), *mask = call.tensor(5);
  for (const TensorType* t : {query, key, value})
    if (t->sizes.size() != 4 || t->dtype != query->dtype || !is_floating(t->dtype))
      return unsupported(call, "operands");
  if (mask != nullptr && mask->dtype != query->dtype && mask->dtype != DType::F32) return unsupported(call, "mask");
  const Expr batch = query->sizes[0], heads = query->sizes[1], length = query->sizes[2], size = value->sizes[3];
  const auto swapped = [](TensorType t) {
    std::swap(t.sizes[1], t.sizes[2]);
    std::swap(t.strides[1], t.strides[2]);
    return t;
  };
  std::vector<TensorType> out;
  // The output is empty_like(query).
  if (!call.same(query->sizes[3], size) || !call.same(query->sizes[3], key->sizes[3]))
    return unsupported(call, "heads of different widths");
  TensorType output = contiguous_type(query->dtype, query->sizes, query->device);
  output.strides = preserved_strides(call, *query);
  out.push_back(std::move(output));
  const DType accumulated = query->dtype == DType::F64 ? DType::F64 : DType::F32;
  out.push_back(swapped(contiguous_type(accumulated, {batch, length, heads}, query->device)));
  return out;
}

Types flash_attention_backward(const Call& call) {
  std::vector<TensorType> out;
  for (const size_t i : {1u, 2u, 3u}) {
    const TensorType* t = call.tensor(i);
    if (t->sizes.size() != 4) return unsupported(call, "operands");
    TensorType grad = contiguous_type(t->dtype, {t->sizes[0], t->sizes[2], t->sizes[1], t->sizes[3]}, t->device);
    std::swap(grad.sizes[1], grad.sizes[2]);
    std::swap(grad.strides[1], grad.strides[2]);
    out.push_back(std::move(grad));
  }
  return out;
}

Types cdist(const Call& call) {
  const TensorType *a = call.tensor(0), *b = call.tensor(1);
  if (a->sizes.size() < 2 || b->sizes.size() < 2 || a->dtype != b->dtype) return unsupported(call, "operands");
  TensorType left = *a, right = *b;
  left.sizes.resize(a->sizes.size() - 2);
  right.sizes.resize(b->sizes.size() - 2);
  const TensorType* batches[] = {&left, &right};
  std::optional<Shape> sizes = broadcast(call, batches);
  if (!sizes) return unsupported(call, "sizes do not broadcast");
  sizes->push_back(a->sizes[a->sizes.size() - 2]);
  sizes->push_back(b->sizes[b->sizes.size() - 2]);
  return one(contiguous_type(a->dtype, std::move(*sizes), a->device));
}

}  // namespace braze::graph::rules
