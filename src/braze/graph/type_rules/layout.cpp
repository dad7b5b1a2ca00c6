#include "braze/graph/type_rules/layout.h"

#include <algorithm>
#include <numeric>

namespace braze::graph {
namespace {

using Order = SmallVector<size_t, 8>;

// The dimensions from the innermost one: n-1, ..., 0.
Order reversed_order(size_t rank) {
  Order order;
  for (size_t i = rank; i-- > 0;) order.push_back(i);
  return order;
}

// TensorIterator's insertion sort. compare(a, b) > 0: a comes after b; 0: not known, look further down.
template <class Compare>
void sort_ambiguous(Order& order, Compare compare) {
  for (size_t i = 1; i < order.size(); ++i) {
    size_t moving = i;
    for (size_t other = i; other-- > 0;) {
      const int c = compare(order[other], order[moving]);
      if (c > 0) {
        std::swap(order[other], order[moving]);
        moving = other;
      } else if (c < 0) {
        break;
      }
    }
  }
}

bool has_zero_size(const Call& call, const TensorType& t) {
  return std::ranges::any_of(t.sizes, [&](Expr size) { return call.is_zero(size); });
}

bool is_dense_in_order(const Call& call, const TensorType& t, std::span<const size_t> innermost_first) {
  Expr expected = 1;
  for (const size_t d : innermost_first) {
    if (call.is_one(t.sizes[d])) continue;
    if (!call.same(t.strides[d], expected)) return false;
    expected = expected * t.sizes[d];
  }
  return true;
}

// Channels, width, height, (depth,) batch.
std::span<const size_t> channels_last_order(size_t rank) {
  static constexpr size_t k4[] = {1, 3, 2, 0};
  static constexpr size_t k5[] = {1, 4, 3, 2, 0};
  return rank == 4 ? std::span<const size_t>(k4) : std::span<const size_t>(k5);
}

bool all_contiguous(const Call& call, std::span<const TensorType* const> operands) {
  return std::ranges::all_of(operands, [&](const TensorType* t) { return is_contiguous(call, *t); });
}

// Strides of one operand in the iteration space: 0 where it is broadcast.
Shape iteration_strides(const Call& call, const Shape& shape, const TensorType& t) {
  Shape out(shape.size(), Expr(0));
  const size_t missing = shape.size() - t.sizes.size();
  for (size_t i = 0; i < t.sizes.size(); ++i)
    out[missing + i] = call.is_one(t.sizes[i]) && !call.is_one(shape[missing + i]) ? Expr(0) : t.strides[i];
  return out;
}

}  // namespace

bool is_contiguous(const Call& call, const TensorType& t) {
  Expr expected = 1;
  bool contiguous = true;
  for (size_t i = t.sizes.size(); i-- > 0 && contiguous;) {
    if (t.sizes[i] == Expr(0)) return true;
    if (call.is_one(t.sizes[i])) continue;
    contiguous = call.same(t.strides[i], expected);
    expected = expected * t.sizes[i];
  }
  return contiguous || has_zero_size(call, t);
}

bool is_channels_last_contiguous(const Call& call, const TensorType& t) {
  const size_t rank = t.sizes.size();
  return (rank == 4 || rank == 5) && is_dense_in_order(call, t, channels_last_order(rank));
}

bool is_non_overlapping_and_dense(const Call& call, const TensorType& t) {
  if (is_contiguous(call, t)) return true;
  Order order;
  for (size_t i = 0; i < t.sizes.size(); ++i)
    if (call.less(1, t.sizes[i])) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return call.less(t.strides[a], t.strides[b]); });
  Expr expected = 1;
  for (const size_t d : order) {
    if (!call.same(t.strides[d], expected)) return false;
    expected = expected * t.sizes[d];
  }
  return true;
}

bool has_channels_last_strides(const Call& call, const TensorType& t) {
  const size_t rank = t.sizes.size();
  if (rank != 4 && rank != 5) return false;
  if (call.is_zero(t.strides[1])) return false;
  Expr least = 0;
  for (const size_t d : channels_last_order(rank)) {
    if (call.is_zero(t.sizes[d])) return false;
    if (call.less(t.strides[d], least)) return false;
    // [N, 1, 1, 1] is ambiguous and counts as contiguous.
    if (d == 0 && call.same(least, t.strides[1])) return false;
    least = t.strides[d];
    if (call.less(1, t.sizes[d])) least = least * t.sizes[d];
  }
  return true;
}

int suggested_format(const Call& call, const TensorType& t) {
  if (!has_channels_last_strides(call, t)) return 0;
  return t.sizes.size() == 4 ? 2 : 3;
}

Shape channels_last_strides(const Shape& sizes) {
  Shape strides(sizes.size());
  Expr stride = 1;
  for (const size_t d : channels_last_order(sizes.size())) {
    strides[d] = stride;
    // Only the batch comes last, so that a zero elsewhere is kept as PyTorch does: counted as 1.
    stride = stride * sym::max(sizes[d], 1);
  }
  return strides;
}

Shape strides_of_format(const Shape& sizes, int format) {
  return format == 0 ? contiguous_strides(sizes) : channels_last_strides(sizes);
}

Shape preserved_strides(const Call& call, const TensorType& t) {
  if (is_non_overlapping_and_dense(call, t)) return t.strides;
  const size_t rank = t.sizes.size();
  Order order = reversed_order(rank);
  sort_ambiguous(order, [&](size_t a, size_t b) {
    if (call.is_zero(t.strides[a]) || call.is_zero(t.strides[b])) return 0;
    if (call.less(t.strides[a], t.strides[b])) return -1;
    if (call.less(t.strides[b], t.strides[a])) return 1;
    return call.less(t.sizes[b], t.sizes[a]) ? 1 : 0;
  });
  Shape strides(rank);
  Expr stride = 1;
  for (const size_t d : order) {
    strides[d] = stride;
    if (call.less(1, t.sizes[d])) stride = stride * t.sizes[d];
  }
  return strides;
}

TensorType contiguous_type(DType dtype, Shape sizes, Device device) {
  TensorType t;
  t.dtype = dtype;
  t.strides = contiguous_strides(sizes);
  t.sizes = std::move(sizes);
  t.device = device;
  return t;
}

std::optional<Shape> broadcast(const Call& call, std::span<const TensorType* const> operands) {
  size_t rank = 0;
  for (const TensorType* t : operands) rank = std::max(rank, t->sizes.size());
  Shape shape(rank, Expr(1));
  for (const TensorType* t : operands) {
    const size_t missing = rank - t->sizes.size();
    for (size_t i = 0; i < t->sizes.size(); ++i) {
      Expr& size = shape[missing + i];
      if (size == t->sizes[i] || call.is_one(t->sizes[i])) continue;
      if (!call.is_one(size) && !call.same(size, t->sizes[i])) return std::nullopt;
      size = t->sizes[i];
    }
  }
  return shape;
}

Shape iterator_strides(const Call& call, const Shape& shape, std::span<const TensorType* const> operands) {
  const size_t rank = shape.size();
  if (rank <= 1) return contiguous_strides(shape);
  const bool same_shape =
      std::ranges::all_of(operands, [&](const TensorType* t) { return call.same(t->sizes, shape); });
  if (same_shape && !operands.empty()) {
    if (all_contiguous(call, operands)) return contiguous_strides(shape);
    if (std::ranges::all_of(operands, [&](const TensorType* t) { return is_channels_last_contiguous(call, *t); }) &&
        rank == 4)
      return channels_last_strides(shape);
    const bool equal_and_dense = std::ranges::all_of(operands, [&](const TensorType* t) {
      return call.same(t->strides, operands[0]->strides) && is_non_overlapping_and_dense(call, *t);
    });
    if (equal_and_dense) return operands[0]->strides;
  }
  SmallVector<size_t, 8> order = reversed_order(rank);
  std::vector<Shape> strides;
  strides.reserve(operands.size());
  for (const TensorType* t : operands) strides.push_back(iteration_strides(call, shape, *t));
  sort_ambiguous(order, [&](size_t a, size_t b) {
    for (const Shape& s : strides) {
      if (call.is_zero(s[a]) || call.is_zero(s[b])) continue;
      if (s[a] != s[b]) {
        if (call.less(s[a], s[b])) return -1;
        if (call.less(s[b], s[a])) return 1;
      }
      if (call.less(shape[b], shape[a])) return 1;
    }
    return 0;
  });
  bool is_reversed = true;
  for (size_t i = 0; i < rank; ++i) is_reversed = is_reversed && order[i] == rank - 1 - i;
  if (is_reversed) return contiguous_strides(shape);
  Shape out(rank);
  Expr stride = 1;
  for (const size_t d : order) {
    out[d] = stride;
    stride = stride * shape[d];
  }
  return out;
}

}  // namespace braze::graph
