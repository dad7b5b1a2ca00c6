// Ops that only move data: splitting, stacking, shuffling, padding, and views that other views express.
#include <algorithm>
#include <string>

#include "braze/decompose/decompose.h"
#include "braze/decompose/numerics.h"
#include "braze/graph/type_rules.h"

namespace braze::decompose {

using graph::Builder;
using graph::Expr;
using graph::Node;
using graph::OpId;
using graph::Shape;
using graph::Value;

namespace {

// Slices of the given lengths along a dimension; empty results only where nothing uses them.
Replacement pieces(Builder& b, const Node& node, int64_t dim, const Shape& lengths) {
  Value* x = graph::tensor(node, "self");
  if (lengths.size() != node.results.size()) return {};
  Replacement out;
  Expr start = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    Expr end = start + lengths[i];
    out.push_back(b.graph().has_uses(node.result(i)) ? b.slice(x, dim, start, end) : nullptr);
    start = end;
  }
  return out;
}

Shape result_lengths(const Node& node, int64_t dim) {
  Shape lengths;
  for (const Value* result : node.results) lengths.push_back(result->type.sizes[static_cast<size_t>(dim)]);
  return lengths;
}

// One side of a padded dimension: what stands beyond the border of x.
using Border = Value* (*)(Builder& b, Value* x, int64_t dim, Expr amount, bool front);

Value* reflected(Builder& b, Value* x, int64_t dim, Expr amount, bool front) {
  Expr size = x->type.sizes[static_cast<size_t>(dim)];
  Value* inner = front ? b.slice(x, dim, 1, amount + 1) : b.slice(x, dim, size - 1 - amount, size - 1);
  return b(OpId::flip, {inner, graph::ints_argument({dim})});
}

Value* replicated(Builder& b, Value* x, int64_t dim, Expr amount, bool front) {
  Expr size = x->type.sizes[static_cast<size_t>(dim)];
  Value* edge = front ? b.slice(x, dim, 0, 1) : b.slice(x, dim, size - 1, size);
  Shape sizes = x->type.sizes;
  sizes[static_cast<size_t>(dim)] = amount;
  return b.expand(edge, sizes);
}

// padding holds (before, after) pairs from the last dimension on. Negative padding crops.
Replacement pad(Builder& b, const Node& node, Border border) {
  Value* x = graph::tensor(node, "self");
  auto padding = graph::integers(node, "padding");
  if (!padding || padding->size() % 2 != 0 || is_empty(x)) return {};
  for (size_t i = 0; i < padding->size() / 2; ++i) {
    int64_t dim = x->type.dim() - 1 - static_cast<int64_t>(i);
    int64_t before = (*padding)[2 * i], after = (*padding)[2 * i + 1];
    std::vector<Value*> parts;
    if (before > 0) parts.push_back(border(b, x, dim, before, true));
    Expr size = x->type.sizes[static_cast<size_t>(dim)];
    Expr start = std::max<int64_t>(0, -before), end = size - std::max<int64_t>(0, -after);
    parts.push_back(before < 0 || after < 0 ? b.slice(x, dim, start, end) : x);
    if (after > 0) parts.push_back(border(b, x, dim, after, false));
    x = parts.size() == 1 ? parts[0] : b(OpId::cat, {graph::tensors_argument(parts), graph::int_argument(dim)});
  }
  return {copy_of(b, x)};
}

// Zeros around x along a dimension.
Value* with_zeros(Builder& b, Value* x, int64_t dim, Expr before, Expr after) {
  graph::ArgumentList padding(static_cast<size_t>(2 * (x->type.dim() - dim)), graph::int_argument(0));
  padding[padding.size() - 2] = before;
  padding[padding.size() - 1] = after;
  return b(OpId::constant_pad_nd, {x, padding, graph::int_argument(0)});
}

// What stands beyond a border adds to the elements that it was copied from.
using BorderGradient = Value* (*)(Builder& b, Value* beyond, int64_t dim, Expr size, Expr amount, bool front);

Value* reflected_back(Builder& b, Value* beyond, int64_t dim, Expr size, Expr amount, bool front) {
  Value* flipped = b(OpId::flip, {beyond, graph::ints_argument({dim})});
  const Expr rest = size - 1 - amount;
  return front ? with_zeros(b, flipped, dim, 1, rest) : with_zeros(b, flipped, dim, rest, 1);
}

Value* summed_back(Builder& b, Value* beyond, int64_t dim, Expr size, Expr, bool front) {
  Value* sum = b.sum(beyond, {dim}, true);
  return front ? with_zeros(b, sum, dim, 0, size - 1) : with_zeros(b, sum, dim, size - 1, 0);
}

Replacement pad_backward(Builder& b, const Node& node, BorderGradient gradient) {
  Value *g = graph::tensor(node, "grad_output"), *x = graph::tensor(node, "self");
  auto padding = graph::integers(node, "padding");
  if (!padding || padding->size() % 2 != 0 || is_empty(x) || !is_real_float(g)) return {};
  for (int64_t amount : *padding)
    if (amount < 0) return {};
  g = widen(b, g);
  for (size_t i = 0; i < padding->size() / 2; ++i) {
    int64_t dim = x->type.dim() - 1 - static_cast<int64_t>(i);
    int64_t before = (*padding)[2 * i], after = (*padding)[2 * i + 1];
    Expr size = x->type.sizes[static_cast<size_t>(dim)];
    Value* sum = b.slice(g, dim, before, size + before);
    if (before > 0) sum = b.add(sum, gradient(b, b.slice(g, dim, 0, before), dim, size, before, true));
    if (after > 0) sum = b.add(sum, gradient(b, b.slice(g, dim, size + before, size + before + after), dim, size, after, false));
    g = sum;
  }
  return {copy_of(b, b.cast(g, node.result()->type.dtype))};
}

}  // namespace

Replacement split(Builder& b, const Node& node) {
  if (node.results.empty()) return {};
  int64_t dim = graph::wrap_dim(graph::integer(node, "dim").value_or(0), graph::tensor(node, "self")->type.dim());
  return pieces(b, node, dim, result_lengths(node, dim));
}

Replacement unbind(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  auto dim = graph::integer(node, "dim");
  if (!dim || node.results.empty()) return {};
  Replacement out;
  for (size_t i = 0; i < node.results.size(); ++i)
    out.push_back(b.graph().has_uses(node.result(i)) ? b.select(x, *dim, static_cast<int64_t>(i)) : nullptr);
  return out;
}

Replacement stack(Builder& b, const Node& node) {
  auto dim = graph::integer(node, "dim");
  std::vector<Value*> parts = graph::tensors(node, "tensors");
  if (!dim || parts.empty()) return {};
  int64_t axis = graph::wrap_dim(*dim, parts[0]->type.dim() + 1);
  for (Value*& part : parts) part = b.unsqueeze(part, axis);
  return {b(OpId::cat, {graph::tensors_argument(parts), graph::int_argument(axis)})};
}

// [.., C r r, H, W] to [.., C, H r, W r].
Replacement pixel_shuffle(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  auto factor = graph::integer(node, "upscale_factor");
  int64_t rank = x->type.dim();
  if (!factor || rank < 3 || is_empty(x)) return {};
  const Shape& sizes = x->type.sizes;
  auto n = static_cast<size_t>(rank);
  Shape split(sizes.begin(), sizes.end() - 3);
  split.push_back(sym::floor_div(sizes[n - 3], *factor * *factor));
  split.insert(split.end(), {*factor, *factor, sizes[n - 2], sizes[n - 1]});
  std::vector<int64_t> order;
  for (int64_t d = 0; d < rank - 2; ++d) order.push_back(d);
  for (int64_t d : {rank, rank - 2, rank + 1, rank - 1}) order.push_back(d);
  Value* dense = b(OpId::clone, {b.permute(b.view(x, split), order), graph::MemoryFormat{0}});
  return {b.view(dense, node.result()->type.sizes)};
}

// [.., C, H r, W r] to [.., C r r, H, W].
Replacement pixel_unshuffle(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  auto factor = graph::integer(node, "downscale_factor");
  int64_t rank = x->type.dim();
  if (!factor || rank < 3 || is_empty(x)) return {};
  const Shape& sizes = x->type.sizes;
  auto n = static_cast<size_t>(rank);
  Shape split(sizes.begin(), sizes.end() - 2);
  split.insert(split.end(),
               {sym::floor_div(sizes[n - 2], *factor), *factor, sym::floor_div(sizes[n - 1], *factor), *factor});
  std::vector<int64_t> order;
  for (int64_t d = 0; d < rank - 2; ++d) order.push_back(d);
  for (int64_t d : {rank - 1, rank + 1, rank - 2, rank}) order.push_back(d);
  Value* dense = b(OpId::clone, {b.permute(b.view(x, split), order), graph::MemoryFormat{0}});
  return {b.view(dense, node.result()->type.sizes)};
}

// [N, g k, ..] to [N, k g, ..].
Replacement channel_shuffle(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  auto groups = graph::integer(node, "groups");
  if (!groups || x->type.dim() < 3 || is_empty(x)) return {};
  Shape split = x->type.sizes;
  split[1] = sym::floor_div(split[1], *groups);
  split.insert(split.begin() + 1, *groups);
  std::vector<int64_t> order = graph::wrap_dims({}, static_cast<int64_t>(split.size()));
  std::swap(order[1], order[2]);
  Value* dense = b(OpId::clone, {b.permute(b.view(x, split), order), graph::MemoryFormat{0}});
  return {b.view(dense, x->type.sizes)};
}

Replacement rot90(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "self");
  auto turns = graph::integer(node, "k");
  auto dims = graph::integers(node, "dims");
  if (!turns || !dims || dims->size() != 2) return {};
  int64_t first = graph::wrap_dim((*dims)[0], x->type.dim()), second = graph::wrap_dim((*dims)[1], x->type.dim());
  auto flip = [&](Value* value, std::vector<int64_t> along) {
    return b(OpId::flip, {value, graph::ints_argument(along)});
  };
  auto swap = [&](Value* value) {
    return b(OpId::transpose_int, {value, graph::int_argument(first), graph::int_argument(second)});
  };
  switch (((*turns % 4) + 4) % 4) {
    case 1:
      return {swap(flip(x, {second}))};
    case 2:
      return {flip(x, {first, second})};
    case 3:
      return {swap(flip(x, {first}))};
    default:
      return {copy_of(b, x)};
  }
}

Replacement reflection_pad(Builder& b, const Node& node) { return pad(b, node, reflected); }
Replacement replication_pad(Builder& b, const Node& node) { return pad(b, node, replicated); }

Replacement reflection_pad_backward(Builder& b, const Node& node) { return pad_backward(b, node, reflected_back); }
Replacement replication_pad_backward(Builder& b, const Node& node) { return pad_backward(b, node, summed_back); }

// Of an image enlarged by whole factors: the sum over the copies of each element.
Replacement upsample_nearest_backward(Builder& b, const Node& node) {
  Value* g = graph::tensor(node, "grad_output");
  if (!is_real_float(g) || is_empty(g)) return {};
  const Shape& small = node.result()->type.sizes;
  Shape split = {small[0], small[1]};
  std::vector<int64_t> copies;
  for (size_t d = 2; d < small.size(); ++d) {
    auto from = small[d].maybe_constant(), to = g->type.sizes[d].maybe_constant();
    if (!from || !to || *from == 0 || *to % *from != 0) return {};
    const int64_t factor = *to / *from;
    // Powers of two are exact in ATen's arithmetic; a scale that the user gave may differ from the sizes' ratio.
    if ((factor & (factor - 1)) != 0) return {};
    for (const char* name : {"scales", "scales_d", "scales_h", "scales_w"})
      if (node.op->argument_index(name) >= 0)
        if (auto scale = graph::number(node, name); scale && *scale != static_cast<double>(factor)) return {};
    split.push_back(small[d]);
    copies.push_back(static_cast<int64_t>(split.size()));
    split.push_back(factor);
  }
  return {b.cast(b.sum(b.view(widen(b, g), split), copies, false), node.result()->type.dtype)};
}

// The gradient of a slice: zeros with the gradient in the slice's place.
Replacement slice_backward(Builder& b, const Node& node) {
  Value* gradient = graph::tensor(node, "grad_output");
  Value* zeros = b.full(graph::expressions(node, "input_sizes"), 0.0, gradient->type.dtype, gradient->type.device);
  return {b(OpId::slice_scatter, {zeros, gradient, node.argument("dim"), node.argument("start"), node.argument("end"),
                                  node.argument("step")})};
}

Replacement select_backward(Builder& b, const Node& node) {
  Value* gradient = graph::tensor(node, "grad_output");
  Value* zeros = b.full(graph::expressions(node, "input_sizes"), 0.0, gradient->type.dtype, gradient->type.device);
  return {b(OpId::select_scatter, {zeros, gradient, node.argument("dim"), node.argument("index")})};
}

// The copying form of a view: the view's values in memory of their own.
Replacement copy_of_view(Builder& b, const Node& node) {
  std::string name = node.op->name;
  size_t at = name.find("_copy");
  const graph::Op* view = graph::find_op(name.erase(at, 5));
  if (view == nullptr || !graph::has_type_rule(view)) return {};
  Replacement out;
  for (Value* part : b.node(view->id, node.arguments)->results)
    out.push_back(b(OpId::clone, {part, graph::MemoryFormat{0}}));
  return out;
}

// Dropout that drops nothing: a copy, and a mask of ones.
Replacement dropout(Builder& b, const Node& node) {
  Value* x = graph::tensor(node, "input");
  if (graph::is_none(node, "train") || graph::boolean(node, "train")) return {};
  Value* mask = nullptr;
  if (b.graph().has_uses(node.result(1)))
    mask = b.full(x->type.sizes, true, node.result(1)->type.dtype, x->type.device);
  return {copy_of(b, x), mask};
}

Replacement dropout_backward(Builder& b, const Node& node) {
  return {b.mul(b.mul(graph::tensor(node, "grad_output"), graph::tensor(node, "mask")), *graph::number(node, "scale"))};
}

}  // namespace braze::decompose
