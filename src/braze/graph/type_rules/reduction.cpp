// Reductions, scans, sorting, softmax, losses: results are fresh and, but for sort, contiguous.
#include <algorithm>

#include "braze/graph/type_rules/layout.h"
#include "braze/graph/type_rules/promotion.h"
#include "braze/graph/type_rules/rules.h"

namespace braze::graph::rules {
namespace {

std::optional<size_t> index_of(const Call& call, std::string_view name) {
  const int i = call.op.argument_index(name);
  return i < 0 ? std::nullopt : std::optional(static_cast<size_t>(i));
}

// Arguments "dim" and "keepdim" of any reduction; none means all dimensions.
struct Reduced {
  Shape sizes;
  std::vector<bool> removed;
};
std::optional<Reduced> reduce(const Call& call, const TensorType& self) {
  const std::optional<size_t> dim = index_of(call, "dim"), keepdim = index_of(call, "keepdim");
  std::optional<std::vector<bool>> removed = reduced_dims(dim ? call.integers(*dim) : Dims{}, self.sizes.size());
  // Only of any and all, an empty list means no dimension.
  const bool is_any_all = call.op.id == OpId::any_dims || call.op.id == OpId::all_dims;
  if (is_any_all && !call.is_none(*dim) && call.exprs(*dim).empty()) removed->assign(self.sizes.size(), false);
  if (!removed) return std::nullopt;
  Reduced out{{}, *removed};
  const bool keep = keepdim && call.boolean(*keepdim);
  for (size_t i = 0; i < self.sizes.size(); ++i) {
    if (!out.removed[i])
      out.sizes.push_back(self.sizes[i]);
    else if (keep)
      out.sizes.push_back(1);
  }
  return out;
}

// A reduction without a neutral element refuses to remove a dimension of size 0.
bool removes_empty(const Call& call, const TensorType& self, const Reduced& reduced) {
  for (size_t i = 0; i < self.sizes.size(); ++i)
    if (reduced.removed[i] && call.is_zero(self.sizes[i])) return true;
  return false;
}

std::optional<DType> dtype_argument(const Call& call) {
  const std::optional<size_t> i = index_of(call, "dtype");
  return i ? call.dtype(*i) : std::nullopt;
}

DType sum_dtype(const Call& call, DType self) {
  return dtype_argument(call).value_or(is_integral(self, true) ? DType::I64 : self);
}

Types reduced_to(const Call& call, DType dtype, bool needs_elements = false) {
  const TensorType* self = call.tensor(0);
  std::optional<Reduced> reduced = reduce(call, *self);
  if (!reduced) return unsupported(call, "dimensions");
  if (needs_elements && removes_empty(call, *self, *reduced)) return unsupported(call, "reduces no elements");
  return one(contiguous_type(dtype, std::move(reduced->sizes), self->device));
}

TensorType like(const TensorType& self) { return contiguous_type(self.dtype, self.sizes, self.device); }

}  // namespace

Types sum(const Call& call) {
  const DType self = call.tensor(0)->dtype;
  if (call.op.id == OpId::nansum && is_complex(self)) return unsupported(call, "element type");
  return reduced_to(call, sum_dtype(call, self));
}

Types mean(const Call& call) {
  const DType dtype = dtype_argument(call).value_or(call.tensor(0)->dtype);
  if (is_integral(dtype, true)) return unsupported(call, "element type");
  return reduced_to(call, dtype);
}

Types extremum_values(const Call& call) {
  const DType dtype = call.tensor(0)->dtype;
  if (is_complex(dtype)) return unsupported(call, "element type");
  return reduced_to(call, dtype, true);
}

Types extremum_with_index(const Call& call) {
  const TensorType* self = call.tensor(0);
  if (is_complex(self->dtype)) return unsupported(call, "element type");
  if (self->dtype == DType::Bool && call.op.id != OpId::max_dim && call.op.id != OpId::min_dim)
    return unsupported(call, "element type");
  std::optional<Reduced> reduced = reduce(call, *self);
  if (!reduced || removes_empty(call, *self, *reduced)) return unsupported(call, "dimensions");
  if (call.op.id == OpId::kthvalue) {
    const Expr k = call.expr(1);
    const auto dim = wrap_dim(call.integer(2), self->sizes.size());
    const Expr size = self->sizes.empty() ? Expr(1) : self->sizes[*dim];
    if (call.less(k, 1) || call.less(size, k)) return unsupported(call, "k is out of range");
  }
  std::vector<TensorType> out;
  out.push_back(contiguous_type(self->dtype, reduced->sizes, self->device));
  out.push_back(contiguous_type(DType::I64, std::move(reduced->sizes), self->device));
  return out;
}

Types aminmax(const Call& call) {
  Types values = extremum_values(call);
  if (!values.ok()) return values;
  std::vector<TensorType> out = std::move(values).value();
  out.push_back(out[0]);
  return out;
}

Types arg_extremum(const Call& call) {
  if (is_complex(call.tensor(0)->dtype) || call.tensor(0)->dtype == DType::Bool)
    return unsupported(call, "element type");
  return reduced_to(call, DType::I64, true);
}

Types any_all(const Call& call) {
  return reduced_to(call, call.tensor(0)->dtype == DType::U8 ? DType::U8 : DType::Bool);
}

Types variance(const Call& call) {
  const DType dtype = call.tensor(0)->dtype;
  if (is_integral(dtype, true)) return unsupported(call, "element type");
  return reduced_to(call, real_of(dtype));
}

Types variance_mean(const Call& call) {
  Types values = variance(call);
  if (!values.ok()) return values;
  std::vector<TensorType> out = std::move(values).value();
  out.push_back(out[0]);
  out[1].dtype = call.tensor(0)->dtype;
  return out;
}

Types logsumexp(const Call& call) {
  const DType dtype = call.tensor(0)->dtype;
  if (call.exprs(1).empty() && !call.tensor(0)->sizes.empty()) return unsupported(call, "no dimension");
  return reduced_to(call, is_integral(dtype, true) ? call.default_dtype : dtype);
}

Types vector_norm(const Call& call) {
  const DType dtype = dtype_argument(call).value_or(call.tensor(0)->dtype);
  if (is_integral(dtype, true)) return unsupported(call, "element type");
  const std::optional<size_t> order = index_of(call, call.op.id == OpId::linalg_vector_norm ? "ord" : "p");
  const Argument& p = call[*order];
  const double exponent = p.is<double>() ? p.as<double>()
                          : p.is<Expr>() ? static_cast<double>(call.integer(*order))
                                         : 2.0;
  const bool needs_elements = exponent < 0 || exponent > 1e300;
  return reduced_to(call, real_of(dtype), needs_elements);
}

Types count_nonzero(const Call& call) { return reduced_to(call, DType::I64); }

Types full_median(const Call& call) {
  const TensorType* self = call.tensor(0);
  if (is_complex(self->dtype) || self->dtype == DType::Bool) return unsupported(call, "element type");
  return one(contiguous_type(self->dtype, {}, self->device));
}

Types trace(const Call& call) {
  const TensorType* self = call.tensor(0);
  if (self->sizes.size() != 2) return unsupported(call, "operand is no matrix");
  return one(contiguous_type(is_integral(self->dtype, true) ? DType::I64 : self->dtype, {}, self->device));
}

Types cumulative(const Call& call) {
  const TensorType* self = call.tensor(0);
  if (!wrap_dim(call.integer(1), self->sizes.size())) return unsupported(call, "dimension out of range");
  TensorType out = like(*self);
  out.dtype = sum_dtype(call, self->dtype);
  return one(std::move(out));
}

Types logcumsumexp(const Call& call) {
  const TensorType* self = call.tensor(0);
  if (is_integral(self->dtype, true)) return unsupported(call, "element type");
  return cumulative(call);
}

Types cumulative_with_index(const Call& call) {
  const TensorType* self = call.tensor(0);
  if (is_complex(self->dtype)) return unsupported(call, "element type");
  if (!wrap_dim(call.integer(1), self->sizes.size())) return unsupported(call, "dimension out of range");
  std::vector<TensorType> out(2, like(*self));
  out[1].dtype = DType::I64;
  return out;
}

Types sort(const Call& call) {
  const TensorType* self = call.tensor(0);
  const std::optional<size_t> dim = index_of(call, "dim");
  if (is_complex(self->dtype) || !wrap_dim(call.integer(*dim), self->sizes.size())) return unsupported(call, "operand");
  std::vector<TensorType> out(2, like(*self));
  out[0].strides = out[1].strides = preserved_strides(call, *self);
  out[1].dtype = DType::I64;
  return out;
}

Types argsort(const Call& call) {
  Types sorted = sort(call);
  if (!sorted.ok()) return sorted;
  return one((*sorted)[1]);
}

Types topk(const Call& call) {
  const TensorType* self = call.tensor(0);
  const auto dim = wrap_dim(call.integer(2), self->sizes.size());
  if (!dim || is_complex(self->dtype) || self->dtype == DType::Bool) return unsupported(call, "operand");
  const Expr k = call.expr(1), size = self->sizes.empty() ? Expr(1) : self->sizes[*dim];
  if (call.less(k, 0) || call.less(size, k)) return unsupported(call, "k is out of range");
  Shape sizes = self->sizes;
  if (!sizes.empty()) sizes[*dim] = k;
  std::vector<TensorType> out;
  out.push_back(contiguous_type(self->dtype, sizes, self->device));
  out.push_back(contiguous_type(DType::I64, std::move(sizes), self->device));
  return out;
}

Types softmax(const Call& call) {
  const TensorType* self = call.tensor(0);
  TensorType out = like(*self);
  if (const std::optional<DType> dtype = dtype_argument(call))
    out.dtype = *dtype;
  else if (index_of(call, "half_to_float") && call.boolean(2))
    return unsupported(call, "half_to_float");
  if (!is_floating(out.dtype) || !wrap_dim(call.integer(1), self->sizes.size())) return unsupported(call, "operand");
  return one(std::move(out));
}

Types softmax_backward(const Call& call) {
  const TensorType* grad = call.tensor(0);
  TensorType out = like(*grad);
  if (!wrap_dim(call.integer(2), grad->sizes.size())) return unsupported(call, "dimension out of range");
  if (call.dtype(3).value_or(grad->dtype) != grad->dtype) return unsupported(call, "input of another type");
  return one(std::move(out));
}

Types pointwise_loss(const Call& call) {
  const TensorType *self = call.tensor(0), *target = call.tensor(1);
  if (target == nullptr || !is_floating(self->dtype)) return unsupported(call, "operands");
  const TensorType* operands[] = {self, target};
  const std::optional<Shape> shape = broadcast(call, operands);
  if (!shape) return unsupported(call, "sizes do not broadcast");
  const DType dtype = result_dtype(call, operands);
  if (self->dtype != target->dtype) return unsupported(call, "operands of different types");
  const std::optional<size_t> reduction = index_of(call, "reduction");
  const OpId id = call.op.id;
  const bool same_sizes_only = id == OpId::binary_cross_entropy || id == OpId::soft_margin_loss;
  if (same_sizes_only && !call.same(self->sizes, target->sizes)) return unsupported(call, "sizes differ");
  if (call.integer(*reduction) != 0) return one(contiguous_type(dtype, {}, self->device));
  if (id == OpId::binary_cross_entropy_with_logits || id == OpId::soft_margin_loss)
    return unsupported(call, "unreduced");
  TensorType out = contiguous_type(dtype, *shape, self->device);
  if (id == OpId::huber_loss && !call.same(self->sizes, *shape)) return unsupported(call, "broadcast");
  const bool is_like_self = id == OpId::binary_cross_entropy || id == OpId::huber_loss;
  out.strides = is_like_self ? preserved_strides(call, *self) : iterator_strides(call, *shape, operands);
  return one(std::move(out));
}

Types pointwise_loss_backward(const Call& call) {
  const TensorType* self = call.tensor(1);
  TensorType out = like(*self);
  if (call.op.id == OpId::binary_cross_entropy_backward) out.strides = preserved_strides(call, *self);
  return one(std::move(out));
}

Types nll_loss_forward(const Call& call) {
  const TensorType *self = call.tensor(0), *target = call.tensor(1);
  const bool is_image = call.op.id == OpId::nll_loss2d_forward;
  const size_t rank = self->sizes.size();
  if (!is_floating(self->dtype) || (is_image ? rank != 4 : rank != 1 && rank != 2)) return unsupported(call, "operand");
  const bool unreduced = call.integer(3) == 0 && rank >= 2;
  if (target->sizes.size() != (is_image ? 3u : rank - 1) && !(rank == 1 && target->sizes.size() == 1))
    return unsupported(call, "target");
  std::vector<TensorType> out(2, contiguous_type(self->dtype, {}, self->device));
  if (unreduced) out[0] = contiguous_type(self->dtype, target->sizes, self->device);
  return out;
}

Types nll_loss_backward(const Call& call) {
  const TensorType* self = call.tensor(1);
  TensorType out = like(*self);
  // The image kernel makes its result in the operand's layout, and then wants a contiguous one.
  if (call.op.id == OpId::nll_loss2d_backward) {
    out.strides = preserved_strides(call, *self);
    if (!is_contiguous(call, out)) return unsupported(call, "layout");
  }
  return one(std::move(out));
}

}  // namespace braze::graph::rules
