// Views, and functional writes into views.
#include <algorithm>

#include "braze/graph/type_rules/layout.h"
#include "braze/graph/type_rules/promotion.h"
#include "braze/graph/type_rules/rules.h"

namespace braze::graph::rules {
namespace {

// The base of a view: a fresh type that shares its memory, weak no more.
TensorType base_of(const TensorType& t) {
  TensorType out = t;
  out.requires_grad = false;
  return out;
}

// Replaces one -1 by the size that is left; nullopt if that is not possible.
std::optional<Shape> infer_size(const Call& call, Shape wanted, Expr elements) {
  std::optional<size_t> missing;
  Expr known = 1;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == Expr(-1)) {
      if (missing) return std::nullopt;
      missing = i;
    } else {
      if (call.less(wanted[i], 0)) return std::nullopt;
      known = known * wanted[i];
    }
  }
  if (!missing) return call.same(known, elements) ? std::optional(std::move(wanted)) : std::nullopt;
  if (call.is_zero(known) || !call.is_zero(sym::mod(elements, known))) return std::nullopt;
  wanted[*missing] = sym::floor_div(elements, known);
  return wanted;
}

// at::detail::computeStride: strides of `sizes` over the same memory, if there are any. Goes through the chunks of
// dimensions that are contiguous in memory, innermost first.
std::optional<Shape> view_strides(const Call& call, const TensorType& t, const Shape& sizes) {
  if (t.sizes.empty()) return Shape(sizes.size(), Expr(1));
  Shape strides(sizes.size());
  if (call.is_zero(numel(t.sizes))) {
    if (call.same(t.sizes, sizes)) return t.strides;
    for (size_t i = sizes.size(); i-- > 0;)
      strides[i] = i + 1 == sizes.size() ? Expr(1) : sym::max(sizes[i + 1], 1) * strides[i + 1];
    return strides;
  }
  size_t view_d = sizes.size();
  Expr chunk_stride = t.strides.back(), elements = 1, view_elements = 1;
  for (size_t d = t.sizes.size(); d-- > 0;) {
    elements = elements * t.sizes[d];
    const bool chunk_ends =
        d == 0 || (!call.is_one(t.sizes[d - 1]) && !call.same(t.strides[d - 1], elements * chunk_stride));
    if (!chunk_ends) continue;
    while (view_d > 0 && (call.less(view_elements, elements) || call.is_one(sizes[view_d - 1]))) {
      --view_d;
      strides[view_d] = view_elements * chunk_stride;
      view_elements = view_elements * sizes[view_d];
    }
    if (!call.same(view_elements, elements)) return std::nullopt;
    if (d > 0) {
      chunk_stride = t.strides[d - 1];
      elements = view_elements = 1;
    }
  }
  if (view_d != 0) return std::nullopt;
  return strides;
}

// at::has_internal_overlap's certain answer.
bool overlaps(const Call& call, const TensorType& t) {
  if (is_non_overlapping_and_dense(call, t)) return false;
  for (size_t i = 0; i < t.sizes.size(); ++i)
    if (call.is_zero(t.strides[i]) && call.less(1, t.sizes[i])) return true;
  return false;
}

// clone_preserve_strides: strides and offset of t, within a copy of its storage.
TensorType copy_with_storage(const Call& call, const TensorType& t) {
  TensorType out = base_of(t);
  out.wrapped_number = false;
  if (overlaps(call, t)) {
    out.strides = preserved_strides(call, t);
    out.offset = 0;
  }
  return out;
}

Types split_at(const TensorType& self, size_t dim, const Shape& sizes) {
  std::vector<TensorType> out;
  out.reserve(sizes.size());
  Expr start = 0;
  for (const Expr& size : sizes) {
    TensorType part = base_of(self);
    part.sizes[dim] = size;
    part.offset = self.offset + start * self.strides[dim];
    start = start + size;
    out.push_back(std::move(part));
  }
  return out;
}

}  // namespace

Types view(const Call& call) {
  const TensorType* self = call.tensor(0);
  std::optional<Shape> sizes = infer_size(call, call.exprs(1), numel(self->sizes));
  if (!sizes) return unsupported(call, "sizes do not fit");
  std::optional<Shape> strides = view_strides(call, *self, *sizes);
  if (!strides) return unsupported(call, "no view of this layout");
  TensorType out = base_of(*self);
  out.wrapped_number = false;
  out.sizes = std::move(*sizes);
  out.strides = std::move(*strides);
  return one(std::move(out));
}

Types reshape(const Call& call) {
  const TensorType* self = call.tensor(0);
  std::optional<Shape> sizes = infer_size(call, call.exprs(1), numel(self->sizes));
  if (!sizes) return unsupported(call, "sizes do not fit");
  std::optional<Shape> strides = view_strides(call, *self, *sizes);
  if (!strides) return one(contiguous_type(self->dtype, std::move(*sizes), self->device));
  TensorType out = base_of(*self);
  out.sizes = std::move(*sizes);
  out.strides = std::move(*strides);
  return one(std::move(out));
}

Types reshape_alias(const Call& call) {
  TensorType out = base_of(*call.tensor(0));
  out.sizes = call.exprs(1);
  out.strides = call.exprs(2);
  return one(std::move(out));
}

Types view_dtype(const Call& call) {
  const TensorType* self = call.tensor(0);
  const DType dtype = call.dtype(1).value_or(self->dtype);
  const int64_t from = size_of(self->dtype), to = size_of(dtype);
  TensorType out = base_of(*self);
  out.dtype = dtype;
  if (from == to) return one(std::move(out));
  if (self->sizes.empty() || !call.is_one(self->strides.back())) return unsupported(call, "last dimension has gaps");
  const size_t last = self->sizes.size() - 1;
  if (from > to) {
    const Expr ratio = from / to;
    for (Expr& stride : out.strides) stride = stride * ratio;
    out.offset = out.offset * ratio;
    out.sizes[last] = out.sizes[last] * ratio;
    out.strides[last] = 1;
    return one(std::move(out));
  }
  const Expr ratio = to / from;
  const auto divisible = [&](Expr e) { return call.is_zero(sym::mod(e, ratio)); };
  if (!divisible(self->sizes[last]) || !divisible(self->offset)) return unsupported(call, "sizes do not fit");
  for (size_t i = 0; i < last; ++i) {
    if (!divisible(self->strides[i])) return unsupported(call, "strides do not fit");
    out.strides[i] = sym::floor_div(self->strides[i], ratio);
  }
  out.sizes[last] = sym::floor_div(self->sizes[last], ratio);
  out.offset = sym::floor_div(self->offset, ratio);
  return one(std::move(out));
}

Types transpose(const Call& call) {
  TensorType out = base_of(*call.tensor(0));
  const size_t rank = out.sizes.size();
  if (call.op.id == OpId::t) {
    if (rank > 2) return unsupported(call, "more than two dimensions");
    if (rank == 2) {
      std::swap(out.sizes[0], out.sizes[1]);
      std::swap(out.strides[0], out.strides[1]);
    }
    return one(std::move(out));
  }
  const auto a = wrap_dim(call.integer(1), rank), b = wrap_dim(call.integer(2), rank);
  if (!a || !b) return unsupported(call, "dimension out of range");
  if (rank > 0) {
    std::swap(out.sizes[*a], out.sizes[*b]);
    std::swap(out.strides[*a], out.strides[*b]);
  }
  return one(std::move(out));
}

Types permute(const Call& call) {
  const TensorType* self = call.tensor(0);
  const Dims dims = call.integers(1);
  const size_t rank = self->sizes.size();
  if (dims.size() != rank) return unsupported(call, "wrong number of dimensions");
  TensorType out = base_of(*self);
  std::vector<bool> seen(rank);
  for (size_t i = 0; i < rank; ++i) {
    const auto d = wrap_dim(dims[i], rank);
    if (!d || seen[*d]) return unsupported(call, "no permutation");
    seen[*d] = true;
    out.sizes[i] = self->sizes[*d];
    out.strides[i] = self->strides[*d];
  }
  return one(std::move(out));
}

Types unsqueeze(const Call& call) {
  TensorType out = base_of(*call.tensor(0));
  const size_t rank = out.sizes.size();
  const auto d = wrap_dim(call.integer(1), rank + 1);
  if (!d) return unsupported(call, "dimension out of range");
  const Expr stride = *d >= rank ? Expr(1) : out.sizes[*d] * out.strides[*d];
  out.sizes.insert(out.sizes.begin() + static_cast<std::ptrdiff_t>(*d), Expr(1));
  out.strides.insert(out.strides.begin() + static_cast<std::ptrdiff_t>(*d), stride);
  return one(std::move(out));
}

Types squeeze(const Call& call) {
  const TensorType* self = call.tensor(0);
  const size_t rank = self->sizes.size();
  std::vector<bool> candidate(rank, call.op.id == OpId::squeeze);
  if (call.op.id != OpId::squeeze)
    for (const int64_t dim : call.integers(1)) {
      const auto d = wrap_dim(dim, rank);
      if (!d) return unsupported(call, "dimension out of range");
      if (rank > 0) candidate[*d] = true;
    }
  TensorType out = base_of(*self);
  out.sizes.clear();
  out.strides.clear();
  for (size_t i = 0; i < rank; ++i) {
    if (candidate[i] && call.is_one(self->sizes[i])) continue;
    out.sizes.push_back(self->sizes[i]);
    out.strides.push_back(self->strides[i]);
  }
  return one(std::move(out));
}

Types expand(const Call& call) {
  const TensorType* self = call.tensor(0);
  const Shape wanted = call.exprs(1);
  const size_t rank = wanted.size(), have = self->sizes.size();
  if (rank < have) return unsupported(call, "fewer dimensions than the operand");
  TensorType out = base_of(*self);
  out.wrapped_number = false;
  out.sizes = wanted;
  out.strides.assign(rank, Expr(0));
  for (size_t i = rank; i-- > 0;) {
    const bool is_new = i < rank - have;
    const Expr size = is_new ? Expr(1) : self->sizes[i - (rank - have)];
    Expr stride;
    if (is_new)
      stride = have == 0 ? Expr(0) : out.sizes[i + 1] * out.strides[i + 1];
    else
      stride = self->strides[i - (rank - have)];
    if (out.sizes[i] == Expr(-1)) {
      if (is_new) return unsupported(call, "-1 for a new dimension");
      out.sizes[i] = size;
    }
    if (!call.same(size, out.sizes[i])) {
      if (!call.is_one(size)) return unsupported(call, "sizes do not broadcast");
      stride = 0;
    }
    out.strides[i] = stride;
  }
  return one(std::move(out));
}

Types slice(const Call& call) {
  TensorType out = base_of(*call.tensor(0));
  const auto d = wrap_dim(call.integer(1), out.sizes.size());
  const int64_t step = call.integer(4);
  if (out.sizes.empty() || !d || step <= 0) return unsupported(call, "dimension or step");
  const Expr size = out.sizes[*d];
  // Negative positions count from the end, then everything is clamped into [0, size].
  const auto clamp = [&](Expr position, Expr low) {
    if (call.less(position, 0)) position = position + size;
    if (call.less(position, low)) return low;
    return call.less(size, position) ? size : position;
  };
  const Expr start = call.is_none(2) ? Expr(0) : clamp(call.expr(2), 0);
  const bool to_end = call.is_none(3) || call.expr(3) == Expr(sym::kInf);
  const Expr end = to_end ? size : clamp(call.expr(3), start);
  out.offset = out.offset + start * out.strides[*d];
  out.sizes[*d] = sym::floor_div(end - start + (step - 1), step);
  out.strides[*d] = out.strides[*d] * Expr(step);
  return one(std::move(out));
}

Types select(const Call& call) {
  TensorType out = base_of(*call.tensor(0));
  const auto d = wrap_dim(call.integer(1), out.sizes.size());
  if (out.sizes.empty() || !d) return unsupported(call, "dimension out of range");
  Expr index = call.expr(2);
  const Expr size = out.sizes[*d];
  if (call.less(index, -size) || !call.less(index, size)) return unsupported(call, "index out of range");
  if (call.less(index, 0)) index = index + size;
  out.offset = out.offset + index * out.strides[*d];
  out.sizes.erase(out.sizes.begin() + static_cast<std::ptrdiff_t>(*d));
  out.strides.erase(out.strides.begin() + static_cast<std::ptrdiff_t>(*d));
  return one(std::move(out));
}

Types alias(const Call& call) { return one(base_of(*call.tensor(0))); }

Types as_strided(const Call& call) {
  TensorType out = base_of(*call.tensor(0));
  out.wrapped_number = false;
  out.sizes = call.exprs(1);
  out.strides = call.exprs(2);
  if (out.sizes.size() != out.strides.size()) return unsupported(call, "sizes and strides differ in number");
  if (!call.is_none(3)) out.offset = call.expr(3);
  return one(std::move(out));
}

Types unfold(const Call& call) {
  TensorType out = base_of(*call.tensor(0));
  const size_t rank = out.sizes.size();
  const auto d = wrap_dim(call.integer(1), rank);
  const Expr size = call.expr(2), step = call.expr(3);
  if (!d || call.less(step, 1) || call.less(size, 0)) return unsupported(call, "dimension, size or step");
  const Expr whole = rank == 0 ? Expr(1) : out.sizes[*d], stride = rank == 0 ? Expr(1) : out.strides[*d];
  if (call.less(whole, size)) return unsupported(call, "size is larger than the dimension");
  if (rank > 0) {
    out.sizes[*d] = sym::floor_div(whole - size, step) + 1;
    out.strides[*d] = stride * step;
  }
  out.sizes.push_back(size);
  out.strides.push_back(stride);
  return one(std::move(out));
}

namespace {

// diagonal(self, offset, dim1, dim2) from argument `first`.
std::optional<TensorType> diagonal_of(const Call& call, const TensorType& self, size_t first) {
  TensorType out = base_of(self);
  const auto a = wrap_dim(call.integer(first + 1), out.sizes.size()),
             b = wrap_dim(call.integer(first + 2), out.sizes.size());
  if (!a || !b || *a == *b || out.sizes.size() < 2) return std::nullopt;
  const int64_t offset = call.integer(first);
  Expr rows = out.sizes[*a], columns = out.sizes[*b];
  const Expr length =
      offset >= 0 ? sym::max(sym::min(rows, columns - offset), 0) : sym::max(sym::min(rows + offset, columns), 0);
  if (!call.is_zero(length))
    out.offset =
        offset >= 0 ? out.offset + Expr(offset) * out.strides[*b] : out.offset - Expr(offset) * out.strides[*a];
  const Expr stride = out.strides[*a] + out.strides[*b];
  for (const size_t d : {std::max(*a, *b), std::min(*a, *b)}) {
    out.sizes.erase(out.sizes.begin() + static_cast<std::ptrdiff_t>(d));
    out.strides.erase(out.strides.begin() + static_cast<std::ptrdiff_t>(d));
  }
  out.sizes.push_back(length);
  out.strides.push_back(stride);
  return out;
}

}  // namespace

Types diagonal(const Call& call) {
  std::optional<TensorType> out = diagonal_of(call, *call.tensor(0), 1);
  if (!out) return unsupported(call, "dimensions");
  return one(std::move(*out));
}

Types split(const Call& call) {
  const TensorType* self = call.tensor(0);
  const auto d = wrap_dim(call.integer(2), self->sizes.size());
  if (self->sizes.empty() || !d) return unsupported(call, "dimension out of range");
  const bool by_sizes = call.op.id == OpId::split_with_sizes || call.op.id == OpId::unsafe_split_with_sizes;
  Shape sizes;
  if (by_sizes) {
    sizes = call.exprs(1);
    Expr total = 0;
    for (const Expr& size : sizes) {
      if (call.less(size, 0)) return unsupported(call, "negative size");
      total = total + size;
    }
    if (!call.same(total, self->sizes[*d])) return unsupported(call, "sizes do not sum up");
  } else {
    // The number of parts must be known.
    const Expr part = call.expr(1), whole = self->sizes[*d];
    if (call.less(part, 0)) return unsupported(call, "negative size");
    if (call.is_zero(part)) {
      if (!call.is_zero(whole)) return unsupported(call, "parts of no size");
      sizes.push_back(0);
    } else {
      const int64_t parts = std::max<int64_t>(call.specialize(sym::ceil_div(whole, part)), 1);
      for (int64_t i = 0; i + 1 < parts; ++i) sizes.push_back(part);
      sizes.push_back(whole - part * Expr(parts - 1));
    }
  }
  return split_at(*self, *d, sizes);
}

Types unbind(const Call& call) {
  const TensorType* self = call.tensor(0);
  const auto d = wrap_dim(call.integer(1), self->sizes.size());
  if (self->sizes.empty() || !d) return unsupported(call, "dimension out of range");
  const int64_t n = call.specialize(self->sizes[*d]);
  std::vector<TensorType> out;
  out.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    TensorType part = base_of(*self);
    part.offset = part.offset + Expr(i) * self->strides[*d];
    part.sizes.erase(part.sizes.begin() + static_cast<std::ptrdiff_t>(*d));
    part.strides.erase(part.strides.begin() + static_cast<std::ptrdiff_t>(*d));
    out.push_back(std::move(part));
  }
  return out;
}

Types view_as_real(const Call& call) {
  TensorType out = base_of(*call.tensor(0));
  if (!is_complex(out.dtype)) return unsupported(call, "operand is not complex");
  out.dtype = real_of(out.dtype);
  for (Expr& stride : out.strides) stride = stride * Expr(2);
  out.sizes.push_back(2);
  out.strides.push_back(1);
  out.offset = out.offset * Expr(2);
  return one(std::move(out));
}

Types view_as_complex(const Call& call) {
  TensorType out = base_of(*call.tensor(0));
  if (out.dtype != DType::F16 && out.dtype != DType::F32 && out.dtype != DType::F64)
    return unsupported(call, "element type");
  if (out.sizes.empty() || !call.same(out.sizes.back(), 2) || !call.is_one(out.strides.back()))
    return unsupported(call, "last dimension");
  out.sizes.pop_back();
  out.strides.pop_back();
  for (Expr& stride : out.strides) {
    if (!call.is_zero(sym::mod(stride, 2))) return unsupported(call, "odd stride");
    stride = sym::floor_div(stride, 2);
  }
  if (!call.is_zero(sym::mod(out.offset, 2))) return unsupported(call, "odd offset");
  out.offset = sym::floor_div(out.offset, 2);
  out.dtype = complex_of(out.dtype);
  return one(std::move(out));
}

Types copy(const Call& call) {
  const TensorType *self = call.tensor(0), *source = call.tensor(1);
  if (source != nullptr) {
    const TensorType* both[] = {self, source};
    const std::optional<Shape> shape = broadcast(call, both);
    if (!shape || !call.same(*shape, self->sizes)) return unsupported(call, "sizes do not fit");
  }
  return one(copy_with_storage(call, *self));
}

Types view_scatter(const Call& call) { return one(copy_with_storage(call, *call.tensor(0))); }

Types view_backward(const Call& call) {
  const TensorType* grad = call.tensor(0);
  return one(contiguous_type(grad->dtype, call.exprs(1), grad->device));
}

}  // namespace braze::graph::rules
