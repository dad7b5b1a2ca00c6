// Joining, repeating, reordering and padding.
#include <algorithm>

#include "braze/graph/type_rules/layout.h"
#include "braze/graph/type_rules/promotion.h"
#include "braze/graph/type_rules/rules.h"

namespace braze::graph::rules {
namespace {

std::vector<const TensorType*> list_of(const Argument& argument) {
  std::vector<const TensorType*> out;
  for (const Argument& item : argument.as<ArgumentList>())
    if (const TensorType* t = Call::tensor_of(item)) out.push_back(t);
  return out;
}

// The format that all operands share, else contiguous.
int shared_format(const Call& call, std::span<const TensorType* const> operands) {
  const int format = suggested_format(call, *operands[0]);
  for (const TensorType* t : operands.subspan(1))
    if (suggested_format(call, *t) != format) return 0;
  return format;
}

Types joined(const Call& call, std::span<const TensorType* const> operands, size_t dim) {
  // An empty 1-D tensor joins with anything, for historical reasons.
  const auto is_skipped = [&](const TensorType* t) { return t->sizes.size() == 1 && call.is_zero(t->sizes[0]); };
  const TensorType* shape_of = nullptr;
  for (const TensorType* t : operands)
    if (!is_skipped(t)) {
      shape_of = t;
      break;
    }
  const DType dtype = result_dtype(call, operands);
  if (shape_of == nullptr) return one(contiguous_type(dtype, {0}, operands[0]->device));
  Shape sizes = shape_of->sizes;
  if (dim >= sizes.size()) return unsupported(call, "dimension out of range");
  Expr total = 0;
  for (const TensorType* t : operands) {
    if (is_skipped(t)) continue;
    if (t->sizes.size() != sizes.size()) return unsupported(call, "operands of different rank");
    for (size_t i = 0; i < sizes.size(); ++i)
      if (i != dim && !call.same(t->sizes[i], sizes[i])) return unsupported(call, "sizes differ");
    total = total + t->sizes[dim];
  }
  sizes[dim] = total;
  TensorType out = contiguous_type(dtype, std::move(sizes), shape_of->device);
  if (const int format = shared_format(call, operands); format != 0 && out.sizes.size() == (format == 2 ? 4u : 5u))
    out.strides = strides_of_format(out.sizes, format);
  return one(std::move(out));
}

// The sizes after padding the last dimensions; padding holds (low, high) pairs, the last dimension first.
std::optional<Shape> padded_sizes(const Call& call, const TensorType& self, const Shape& padding) {
  Shape sizes = self.sizes;
  if (padding.size() % 2 != 0 || padding.size() / 2 > sizes.size()) return std::nullopt;
  for (size_t i = 0; i < padding.size() / 2; ++i) {
    Expr& size = sizes[sizes.size() - 1 - i];
    size = size + padding[2 * i] + padding[2 * i + 1];
    if (call.less(size, 0)) return std::nullopt;
  }
  return sizes;
}

}  // namespace

Types cat(const Call& call) {
  const std::vector<const TensorType*> operands = list_of(call[0]);
  if (operands.empty()) return unsupported(call, "no operand");
  size_t rank = 0;
  for (const TensorType* t : operands) {
    if (t->sizes.empty()) return unsupported(call, "0-dim operand");
    if (!(t->sizes.size() == 1 && call.is_zero(t->sizes[0]))) rank = std::max(rank, t->sizes.size());
  }
  const auto dim = wrap_dim(call.integer(1), std::max<size_t>(rank, 1));
  if (!dim) return unsupported(call, "dimension out of range");
  return joined(call, operands, *dim);
}

Types stack(const Call& call) {
  const std::vector<const TensorType*> operands = list_of(call[0]);
  if (operands.empty()) return unsupported(call, "no operand");
  const auto dim = wrap_dim(call.integer(1), operands[0]->sizes.size() + 1);
  if (!dim) return unsupported(call, "dimension out of range");
  for (const TensorType* t : operands)
    if (!call.same(t->sizes, operands[0]->sizes)) return unsupported(call, "sizes differ");
  const Shape& each = operands[0]->sizes;
  const Expr count = static_cast<int64_t>(operands.size());
  const auto place = static_cast<std::ptrdiff_t>(*dim);
  Shape sizes = each;
  sizes.insert(sizes.begin() + place, count);
  TensorType out = contiguous_type(result_dtype(call, operands), std::move(sizes), operands[0]->device);
  // Before an existing dimension it is a cat along that dimension, split afterwards, in the operands' format.
  const int format = shared_format(call, operands);
  if (*dim < each.size() && format != 0) {
    Shape joined_sizes = each;
    joined_sizes[*dim] = count * each[*dim];
    out.strides = strides_of_format(joined_sizes, format);
    out.strides.insert(out.strides.begin() + place, out.strides[*dim] * each[*dim]);
  }
  return one(std::move(out));
}

Types repeat(const Call& call) {
  const TensorType* self = call.tensor(0);
  Shape sizes = call.exprs(1);
  if (sizes.size() < self->sizes.size()) return unsupported(call, "fewer repeats than dimensions");
  const size_t missing = sizes.size() - self->sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (call.less(sizes[i], 0)) return unsupported(call, "negative repeat");
    if (i >= missing) sizes[i] = sizes[i] * self->sizes[i - missing];
  }
  return one(contiguous_type(self->dtype, std::move(sizes), self->device));
}

Types same_layout_copy(const Call& call) {
  const TensorType* self = call.tensor(0);
  TensorType out = contiguous_type(self->dtype, self->sizes, self->device);
  const size_t dims_argument = call.op.id == OpId::roll ? 2 : 1;
  const Dims dims = call.integers(dims_argument);
  for (const int64_t d : dims)
    if (!wrap_dim(d, self->sizes.size())) return unsupported(call, "dimension out of range");
  if (call.op.id == OpId::roll) {
    if (!dims.empty() && dims.size() != call.exprs(1).size()) return unsupported(call, "shifts and dimensions");
    if (dims.empty() && call.exprs(1).size() != 1) return unsupported(call, "shifts and dimensions");
  }
  const bool preserves = call.op.id == OpId::flip || call.is_zero(numel(self->sizes));
  if (preserves) {
    out.strides = preserved_strides(call, *self);
  } else if (!dims.empty()) {
    // A roll joins two slices.
    if (const int format = suggested_format(call, *self); format != 0)
      out.strides = strides_of_format(out.sizes, format);
  }
  return one(std::move(out));
}

Types triangle(const Call& call) {
  const TensorType* self = call.tensor(0);
  if (self->sizes.size() < 2) return unsupported(call, "fewer than two dimensions");
  return one(contiguous_type(self->dtype, self->sizes, self->device));
}

Types constant_pad(const Call& call) {
  const TensorType* self = call.tensor(0);
  const Shape padding = call.exprs(1);
  std::optional<Shape> sizes = padded_sizes(call, *self, padding);
  if (!sizes) return unsupported(call, "padding");
  TensorType out = contiguous_type(self->dtype, std::move(*sizes), self->device);
  const bool only_cuts = std::ranges::none_of(padding, [&](Expr p) { return call.less(0, p); });
  if (only_cuts) {
    TensorType cut = *self;
    cut.sizes = out.sizes;
    out.strides = preserved_strides(call, cut);
  } else if (const int format = suggested_format(call, *self); format != 0) {
    out.strides = strides_of_format(out.sizes, format);
  }
  return one(std::move(out));
}

Types pad(const Call& call) {
  const TensorType* self = call.tensor(0);
  const Shape padding = call.exprs(1);
  const size_t spatial = padding.size() / 2, rank = self->sizes.size();
  if (rank != spatial + 1 && rank != spatial + 2) return unsupported(call, "rank");
  std::optional<Shape> sizes = padded_sizes(call, *self, padding);
  if (!sizes) return unsupported(call, "padding");
  const OpId id = call.op.id;
  const bool reflects = id == OpId::reflection_pad1d || id == OpId::reflection_pad2d || id == OpId::reflection_pad3d;
  for (size_t i = rank - spatial; i < rank; ++i) {
    if (call.less((*sizes)[i], 1)) return unsupported(call, "padding");
    if (call.is_zero(self->sizes[i])) return unsupported(call, "empty operand");
  }
  if (reflects)
    for (size_t i = 0; i < padding.size(); ++i)
      if (!call.less(padding[i], self->sizes[rank - 1 - i / 2])) return unsupported(call, "padding");
  TensorType out = contiguous_type(self->dtype, std::move(*sizes), self->device);
  if (const int format = suggested_format(call, *self); (format == 2 && spatial == 2) || (format == 3 && spatial == 3))
    out.strides = strides_of_format(out.sizes, format);
  return one(std::move(out));
}

Types pad_backward(const Call& call) {
  const TensorType* self = call.tensor(1);
  TensorType out = contiguous_type(self->dtype, self->sizes, self->device);
  out.strides = strides_of_format(out.sizes, suggested_format(call, *self));
  return one(std::move(out));
}

Types pixel_shuffle(const Call& call) {
  const TensorType* self = call.tensor(0);
  const size_t rank = self->sizes.size();
  const Expr factor = call.expr(1);
  if (rank < 3 || call.less(factor, 1)) return unsupported(call, "rank or factor");
  if (call.is_zero(numel(self->sizes))) return unsupported(call, "empty operand");
  TensorType out = contiguous_type(self->dtype, self->sizes, self->device);
  if (call.op.id == OpId::channel_shuffle) {
    if (!call.is_zero(sym::mod(self->sizes[1], factor))) return unsupported(call, "channels");
    return unsupported(call, "layout");
  }
  Expr &c = out.sizes[rank - 3], &h = out.sizes[rank - 2], &w = out.sizes[rank - 1];
  const auto divisible = [&](Expr size, Expr by) { return call.is_zero(sym::mod(size, by)); };
  if (call.op.id == OpId::pixel_shuffle) {
    if (!divisible(c, factor * factor)) return unsupported(call, "channels");
    c = sym::floor_div(c, factor * factor);
    h = h * factor;
    w = w * factor;
  } else {
    if (!divisible(h, factor) || !divisible(w, factor)) return unsupported(call, "sizes");
    c = c * factor * factor;
    h = sym::floor_div(h, factor);
    w = sym::floor_div(w, factor);
  }
  out.strides = strides_of_format(out.sizes, rank == 4 ? suggested_format(call, *self) : 0);
  return one(std::move(out));
}

Types diag_embed(const Call& call) {
  const TensorType* self = call.tensor(0);
  const size_t rank = self->sizes.size() + 1;
  const int64_t offset = call.integer(1);
  const auto a = wrap_dim(call.integer(2), rank), b = wrap_dim(call.integer(3), rank);
  if (self->sizes.empty() || !a || !b || *a == *b) return unsupported(call, "dimensions");
  Shape sizes = self->sizes;
  const Expr n = sizes.back() + Expr(std::abs(offset));
  sizes.pop_back();
  for (const size_t d : {std::min(*a, *b), std::max(*a, *b)})
    sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(d), n);
  return one(contiguous_type(self->dtype, std::move(sizes), self->device));
}

}  // namespace braze::graph::rules
