// Indexing, gathering, scattering, embedding.
#include <algorithm>

#include "braze/graph/type_rules/layout.h"
#include "braze/graph/type_rules/promotion.h"
#include "braze/graph/type_rules/rules.h"

namespace braze::graph::rules {
namespace {

bool is_index_dtype(DType dtype) { return dtype == DType::I64 || dtype == DType::I32; }

using Indices = std::vector<const TensorType*>;  // one per dimension of self; nullptr where nothing stands

// The index tensors, if they are integers and not more than self has dimensions.
std::optional<Indices> indices_of(const Argument& argument, size_t rank) {
  Indices out;
  for (const Argument& item : argument.as<ArgumentList>()) {
    const TensorType* index = Call::tensor_of(item);
    if (index != nullptr && index->dtype != DType::I64 && index->dtype != DType::I32) return std::nullopt;
    out.push_back(index);
  }
  if (out.size() > rank) return std::nullopt;
  out.resize(rank, nullptr);
  return out;
}

}  // namespace

Types index(const Call& call) {
  const TensorType* self = call.tensor(0);
  std::optional<Indices> indices = indices_of(call[1], self->sizes.size());
  if (!indices) return unsupported(call, "indices that are no integers, or too many");
  std::vector<const TensorType*> given;
  for (const TensorType* index : *indices)
    if (index != nullptr) given.push_back(index);
  if (given.empty()) return unsupported(call, "no index");
  const std::optional<Shape> replacement = broadcast(call, given);
  if (!replacement) return unsupported(call, "indices do not broadcast");

  // Indexed dimensions that are not adjacent move to the front, as numpy has it.
  size_t first = indices->size(), last = 0;
  for (size_t i = 0; i < indices->size(); ++i)
    if ((*indices)[i] != nullptr) {
      first = std::min(first, i);
      last = i;
    }
  const bool adjacent = last - first + 1 == given.size();
  const size_t before = adjacent ? first : 0;

  // The source with the indexed dimensions replaced by broadcast ones, which TensorIterator walks with the indices.
  TensorType source = *self;
  source.sizes.clear();
  source.strides.clear();
  const auto keep = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i)
      if ((*indices)[i] == nullptr) {
        source.sizes.push_back(self->sizes[i]);
        source.strides.push_back(self->strides[i]);
      }
  };
  keep(0, adjacent ? first : 0);
  for (const Expr& size : *replacement) {
    source.sizes.push_back(size);
    source.strides.push_back(0);
  }
  keep(before, indices->size());
  const size_t after = source.sizes.size() - before - replacement->size();

  // Out of range for sure: nothing to index, something asked for.
  for (size_t i = 0; i < indices->size(); ++i)
    if ((*indices)[i] != nullptr && call.is_zero(self->sizes[i]) && !call.is_zero(numel(*replacement)))
      return unsupported(call, "index into a dimension of size 0");

  std::vector<TensorType> walked{source};
  for (const TensorType* index : given) {
    TensorType t = *index;
    t.sizes = *replacement;
    t.strides.assign(replacement->size(), Expr(0));
    const size_t missing = replacement->size() - index->sizes.size();
    for (size_t i = 0; i < index->sizes.size(); ++i)
      if (!call.is_one(index->sizes[i]) || call.is_one((*replacement)[missing + i]))
        t.strides[missing + i] = index->strides[i];
    // Dimensions of size 1 around it, with the strides that a view gives them.
    const Expr inner = t.strides.empty() ? Expr(1) : t.strides.back();
    const Expr outer = t.sizes.empty() ? Expr(1) : t.sizes[0] * t.strides[0];
    t.sizes.insert(t.sizes.begin(), before, Expr(1));
    t.strides.insert(t.strides.begin(), before, outer);
    t.sizes.insert(t.sizes.end(), after, Expr(1));
    t.strides.insert(t.strides.end(), after, inner);
    walked.push_back(std::move(t));
  }
  std::vector<const TensorType*> operands;
  for (const TensorType& t : walked) operands.push_back(&t);
  TensorType out = contiguous_type(self->dtype, source.sizes, self->device);
  out.strides = iterator_strides(call, source.sizes, operands);
  return one(std::move(out));
}

Types index_put(const Call& call) {
  const TensorType *self = call.tensor(0), *values = call.tensor(2);
  if (values == nullptr || values->dtype != self->dtype) return unsupported(call, "values of another type");
  for (const Argument& item : call[1].as<ArgumentList>())
    if (const TensorType* index = Call::tensor_of(item);
        index != nullptr && !is_index_dtype(index->dtype) && index->dtype != DType::Bool && index->dtype != DType::U8)
      return unsupported(call, "index type");
  TensorType out = contiguous_type(self->dtype, self->sizes, self->device);
  out.strides = preserved_strides(call, *self);
  return one(std::move(out));
}

Types index_select(const Call& call) {
  const TensorType *self = call.tensor(0), *index = call.tensor(2);
  const auto d = wrap_dim(call.integer(1), self->sizes.size());
  if (!d || index->sizes.size() > 1 || !is_index_dtype(index->dtype)) return unsupported(call, "dimension or index");
  TensorType out = contiguous_type(self->dtype, self->sizes, self->device);
  if (!out.sizes.empty()) {
    out.sizes[*d] = numel(index->sizes);
    out.strides = contiguous_strides(out.sizes);
  } else if (!call.is_one(numel(index->sizes))) {
    return unsupported(call, "index of a 0-dim tensor");
  }
  return one(std::move(out));
}

Types clone_of_self(const Call& call) {
  const TensorType* self = call.tensor(0);
  if (const int dim = call.op.argument_index("dim"); dim >= 0)
    if (!wrap_dim(call.integer(static_cast<size_t>(dim)), self->sizes.size())) return unsupported(call, "dimension");
  if (const int i = call.op.argument_index("index"); i >= 0)
    if (const TensorType* index = call.tensor(static_cast<size_t>(i));
        index != nullptr && !is_index_dtype(index->dtype))
      return unsupported(call, "index type");
  for (const std::string_view name : {"src", "source"})
    if (const int i = call.op.argument_index(name); i >= 0)
      if (const TensorType* source = call.tensor(static_cast<size_t>(i));
          source != nullptr && source->dtype != self->dtype)
        return unsupported(call, "source of another type");
  TensorType out = contiguous_type(self->dtype, self->sizes, self->device);
  const OpId id = call.op.id;
  if (id == OpId::index_fill_int_Scalar || id == OpId::index_fill_int_Tensor || id == OpId::put)
    out.strides = preserved_strides(call, *self);
  return one(std::move(out));
}

Types masked_scatter(const Call& call) {
  const TensorType *self = call.tensor(0), *mask = call.tensor(1), *source = call.tensor(2);
  if (mask->dtype != DType::Bool || self->dtype != source->dtype) return unsupported(call, "element types");
  const TensorType* operands[] = {mask, self};
  std::optional<Shape> shape = broadcast(call, operands);
  if (!shape) return unsupported(call, "sizes do not broadcast");
  return one(contiguous_type(self->dtype, std::move(*shape), self->device));
}

Types gather(const Call& call) {
  const TensorType *self = call.tensor(0), *index = call.tensor(2);
  const auto d = wrap_dim(call.integer(1), self->sizes.size());
  if (!d || !is_index_dtype(index->dtype)) return unsupported(call, "dimension or index");
  const bool is_empty = call.is_zero(numel(index->sizes));
  const size_t rank = std::max<size_t>(self->sizes.size(), 1), index_rank = std::max<size_t>(index->sizes.size(), 1);
  if (!is_empty && rank != index_rank) return unsupported(call, "index of another rank");
  if (!is_empty && !self->sizes.empty() && !index->sizes.empty())
    for (size_t i = 0; i < rank; ++i)
      if (i != *d && call.less(self->sizes[i], index->sizes[i])) return unsupported(call, "index is larger");
  return one(contiguous_type(self->dtype, index->sizes, self->device));
}

Types take(const Call& call) {
  const TensorType *self = call.tensor(0), *index = call.tensor(1);
  if (index->dtype != DType::I64) return unsupported(call, "index type");
  if (call.is_zero(numel(self->sizes)) && !call.is_zero(numel(index->sizes))) return unsupported(call, "empty operand");
  return one(contiguous_type(self->dtype, index->sizes, self->device));
}

Types embedding(const Call& call) {
  const TensorType *weight = call.tensor(0), *indices = call.tensor(1);
  if (weight->sizes.size() != 2 || !is_index_dtype(indices->dtype)) return unsupported(call, "operands");
  Shape sizes = indices->sizes;
  sizes.push_back(weight->sizes[1]);
  return one(contiguous_type(weight->dtype, std::move(sizes), weight->device));
}

Types embedding_dense_backward(const Call& call) {
  const TensorType* grad = call.tensor(0);
  if (grad->sizes.empty()) return unsupported(call, "operand");
  return one(contiguous_type(grad->dtype, {call.expr(2), grad->sizes.back()}, grad->device));
}

// weight, indices, offsets, scale_grad_by_freq, mode (0 sum, 1 mean, 2 max), sparse, per_sample_weights,
// include_last_offset, padding_idx -> output, offset2bag, bag_size, max_indices. The CPU kernel leaves offset2bag empty
// where it adds whole rows, and shapes bag_size and max_indices by what the backward pass will read.
Types embedding_bag(const Call& call) {
  const TensorType *weight = call.tensor(0), *indices = call.tensor(1), *offsets = call.tensor(2), *scale = call.tensor(6);
  if (weight->device.kind != Device::Kind::Cpu) return unsupported(call, "device");
  if (weight->sizes.size() != 2 || indices->sizes.size() != 1 || offsets->sizes.size() != 1) return unsupported(call, "operands");
  if (!is_index_dtype(indices->dtype) || !is_index_dtype(offsets->dtype)) return unsupported(call, "index type");
  const int64_t mode = call.integer(4);
  const bool last = call.boolean(7), forward_only = call.op.id == OpId::_embedding_bag_forward_only;
  const Expr bags = last ? call.simplify(offsets->sizes[0] - 1) : offsets->sizes[0];
  const bool adds_rows = weight->dtype == DType::F32 || weight->dtype == DType::BF16 || weight->dtype == DType::F16;
  const bool whole_rows = mode == 0 && adds_rows && call.is_one(weight->strides[1]) && call.integer(8) < 0 &&
                          (scale == nullptr || call.is_one(scale->strides[0]));
  const DType index = indices->dtype == DType::I64 || offsets->dtype == DType::I64 ? DType::I64 : DType::I32;
  const Expr sized = forward_only && mode == 0 ? offsets->sizes[0] : bags;
  const auto of = [&](DType dtype, Shape sizes) { return contiguous_type(dtype, std::move(sizes), weight->device); };
  return std::vector<TensorType>{of(weight->dtype, {bags, weight->sizes[1]}), of(index, {whole_rows ? Expr(0) : indices->sizes[0]}),
                                 of(index, {sized}), of(index, mode == 2 ? Shape{bags, weight->sizes[1]} : Shape{sized})};
}

Types searchsorted(const Call& call) {
  const bool bucketize = call.op.id == OpId::bucketize_Tensor;
  const TensorType *values = call.tensor(bucketize ? 0 : 1), *boundaries = call.tensor(bucketize ? 1 : 0);
  if (values == nullptr || boundaries == nullptr || values->dtype != boundaries->dtype)
    return unsupported(call, "element types");
  return one(contiguous_type(call.boolean(2) ? DType::I32 : DType::I64, values->sizes, values->device));
}

}  // namespace braze::graph::rules
