// Ops that only move elements: joining, padding, mirroring, writing into a part.
#include <algorithm>

#include "braze/loop/lowering.h"
#include "braze/support/check.h"

namespace braze::loop {
namespace {

const Value* self_of(const Node& node) { return node.arguments.at(0).as<Value*>(); }
DType result_dtype(const Node& node) { return node.result()->type.dtype; }

size_t dim_of(const Node& node, std::string_view name, int64_t rank) {
  return static_cast<size_t>(graph::wrap_dim(graph::integer(node, name).value(), rank));
}

struct Source {
  Expr extent;
  std::function<Term(const Indices& at, Expr along)> body;   // `along` replaces at[dim]
};

// Pieces are built over an index of their own range, so that views of a source simplify, and then shifted.
void join(Lowering& l, const Node& node, size_t dim, const std::vector<Source>& sources) {
  const DType dtype = result_dtype(node);
  l.define(node, [&](Buffer& buffer, const Indices& at) {
    buffer.kind = BufferKind::Cat;
    buffer.cat_axis = static_cast<int32_t>(dim);
    Expr begin = 0;
    for (const Source& source : sources) {
      const bool single = source.extent == Expr(1);
      const Expr own = single ? Expr(0) : l.context().fresh_index("p", source.extent);
      const Scalar* body = source.body(at, own).cast(dtype).scalar();
      if (!single) {
        const std::pair<Expr, Expr> shift[] = {{own, at[dim] - begin}};
        body = l.scalars().rewrite(body, shift);
      }
      buffer.pieces.push_back({begin, source.extent, body});
      begin = begin + source.extent;
    }
    if (buffer.pieces.size() == 1) {
      buffer.kind = BufferKind::Pointwise;
      buffer.cat_axis = -1;
      buffer.body = buffer.pieces[0].body;
      buffer.pieces.clear();
    }
  });
}

}  // namespace

bool lower_cat(Lowering& l, const Node& node, ScalarOp) {
  const size_t dim = dim_of(node, "dim", node.result()->type.dim());
  std::vector<Source> sources;
  for (const Value* tensor : graph::tensors(node, "tensors")) {
    const Shape& sizes = tensor->type.sizes;
    // An empty vector joins with anything.
    if (sizes.size() == 1 && sizes[0] == Expr(0) && node.result()->type.dim() != 1) continue;
    if (sizes[dim] == Expr(0)) continue;
    sources.push_back({sizes[dim], [&l, tensor, dim](const Indices& at, Expr along) {
                         Indices place = at;
                         place[dim] = along;
                         return l.load(tensor, place);
                       }});
  }
  if (sources.empty()) return false;
  join(l, node, dim, sources);
  return true;
}

bool lower_stack(Lowering& l, const Node& node, ScalarOp) {
  const size_t dim = dim_of(node, "dim", node.result()->type.dim());
  std::vector<Source> sources;
  for (const Value* tensor : graph::tensors(node, "tensors")) {
    sources.push_back({Expr(1), [&l, tensor, dim](const Indices& at, Expr) {
                         Indices place = at;
                         place.erase(place.begin() + static_cast<ptrdiff_t>(dim));
                         return l.load(tensor, place);
                       }});
  }
  join(l, node, dim, sources);
  return true;
}

bool lower_constant_pad(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const Shape pad = graph::expressions(node, "pad");
  const DType dtype = result_dtype(node);
  if (!graph::number(node, "value")) return false;
  l.pointwise(node, [&](const Indices& at) {
    Indices place = at;
    Term inside = l.constant_int(DType::Bool, 1);
    for (size_t k = 0; k < pad.size() / 2; ++k) {
      const size_t dim = at.size() - 1 - k;
      place[dim] = at[dim] - pad[2 * k];
      if (pad[2 * k] != Expr(0)) inside = inside & l.less_equal(0, place[dim]);
      if (pad[2 * k + 1] != Expr(0)) inside = inside & l.less(place[dim], self->type.sizes[dim]);
    }
    return l.load_masked(self, place, inside, l.number(node, "value", dtype));
  });
  return true;
}

bool lower_flip(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const auto dims = graph::integers(node, "dims");
  if (!dims) return false;
  l.pointwise(node, [&](const Indices& at) {
    Indices place = at;
    for (const int64_t given : *dims) {
      const auto dim = static_cast<size_t>(graph::wrap_dim(given, self->type.dim()));
      if (dim < place.size()) place[dim] = self->type.sizes[dim] - 1 - at[dim];
    }
    return l.load(self, place);
  });
  return true;
}

bool lower_roll(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const Shape shifts = graph::expressions(node, "shifts");
  const auto dims = graph::integers(node, "dims");
  const Shape& sizes = self->type.sizes;
  if (!dims || sizes.empty() || std::ranges::find(sizes, Expr(0)) != sizes.end()) return false;
  if (dims->empty() ? shifts.size() != 1 : shifts.size() != dims->size()) return false;
  l.pointwise(node, [&](const Indices& at) {
    if (dims->empty())
      return l.load(self, unflatten(mod(flatten(at, sizes) - shifts[0], graph::numel(sizes)), sizes));
    Indices place = at;
    for (size_t k = 0; k < dims->size(); ++k) {
      const auto dim = static_cast<size_t>(graph::wrap_dim((*dims)[k], self->type.dim()));
      place[dim] = mod(place[dim] - shifts[k], sizes[dim]);
    }
    return l.load(self, place);
  });
  return true;
}

bool lower_repeat(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const Shape& sizes = self->type.sizes;
  const Shape& to = node.result()->type.sizes;
  l.pointwise(node, [&](const Indices& at) {
    Indices place(at.end() - static_cast<ptrdiff_t>(sizes.size()), at.end());
    for (size_t k = 0; k < sizes.size(); ++k) {
      if (sizes[k] == to[to.size() - sizes.size() + k]) continue;
      place[k] = sizes[k] == Expr(0) || sizes[k] == Expr(1) ? Expr(0) : mod(place[k], sizes[k]);
    }
    return l.load(self, place);
  });
  return true;
}

bool lower_triangle(Lowering& l, const Node& node, ScalarOp op) {
  const Value* self = self_of(node);
  const Argument& given = node.argument("diagonal");
  if (!given.is<Expr>()) return false;
  const Expr diagonal = given.as<Expr>();
  l.pointwise(node, [&](const Indices& at) {
    const Expr row = at[at.size() - 2], column = at[at.size() - 1];
    const Term kept = op == ScalarOp::Ge ? l.less_equal(row + diagonal, column) : l.less_equal(column, row + diagonal);
    const Term value = l.load(self, at);
    return where(kept, value, 0.0);
  });
  return true;
}

// ---- A part overwritten

namespace {

// src at `place` where the mask is true, else self.
void overwrite(Lowering& l, const Node& node, const std::function<std::pair<Term, Indices>(const Indices&)>& part) {
  const Value *self = self_of(node), *src = node.argument("src").as<Value*>();
  l.pointwise(node, [&](const Indices& at) {
    const auto [mask, place] = part(at);
    const Term zero = l.constant_int(src->type.dtype, 0);
    return where(mask, l.load_masked(src, place, mask, zero).cast(result_dtype(node)), l.load(self, at));
  });
}

}  // namespace

bool lower_slice_scatter(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const size_t dim = dim_of(node, "dim", self->type.dim());
  const Argument &start_given = node.argument("start"), &end_given = node.argument("end");
  const auto step = graph::integer(node, "step");
  if (!step) return false;
  const Expr size = self->type.sizes[dim];
  const Expr start = start_given.is_none() ? Expr(0) : sym::min(l.from_front(start_given.as<Expr>(), size), size);
  const Expr end = end_given.is_none() ? size : sym::min(l.from_front(end_given.as<Expr>(), size), size);
  overwrite(l, node, [&](const Indices& at) {
    Term inside = l.less_equal(start, at[dim]) & l.less(at[dim], end);
    Indices place = at;
    place[dim] = floor_div(at[dim] - start, Expr(*step));
    if (*step != 1) inside = inside & l.equal(mod(at[dim] - start, Expr(*step)), 0);
    return std::pair(inside, place);
  });
  return true;
}

bool lower_select_scatter(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const size_t dim = dim_of(node, "dim", self->type.dim());
  const Argument& given = node.argument("index");
  if (!given.is<Expr>()) return false;
  const Expr index = l.from_front(given.as<Expr>(), self->type.sizes[dim]);
  overwrite(l, node, [&](const Indices& at) {
    Indices place = at;
    place.erase(place.begin() + static_cast<ptrdiff_t>(dim));
    return std::pair(l.equal(at[dim], index), place);
  });
  return true;
}

namespace {

struct Diagonal {
  size_t a, b;
  int64_t offset;
};

std::optional<Diagonal> diagonal_of(const Node& node, int64_t rank) {
  const auto offset = graph::integer(node, "offset");
  if (!offset) return std::nullopt;
  return Diagonal{dim_of(node, "dim1", rank), dim_of(node, "dim2", rank), *offset};
}

// Where `at` lies on the diagonal: the mask, and the index in a tensor with the diagonal as its last dimension.
std::pair<Term, Indices> on_diagonal(Lowering& l, const Diagonal& d, const Indices& at) {
  Indices place;
  for (size_t k = 0; k < at.size(); ++k)
    if (k != d.a && k != d.b) place.push_back(at[k]);
  place.push_back(d.offset >= 0 ? at[d.a] : at[d.b]);
  return {l.equal(at[d.a] + Expr(d.offset), at[d.b]), place};
}

}  // namespace

bool lower_diagonal_scatter(Lowering& l, const Node& node, ScalarOp) {
  const auto diagonal = diagonal_of(node, self_of(node)->type.dim());
  if (!diagonal) return false;
  overwrite(l, node, [&](const Indices& at) { return on_diagonal(l, *diagonal, at); });
  return true;
}

bool lower_diag_embed(Lowering& l, const Node& node, ScalarOp) {
  const auto diagonal = diagonal_of(node, node.result()->type.dim());
  if (!diagonal) return false;
  l.pointwise(node, [&](const Indices& at) {
    const auto [mask, place] = on_diagonal(l, *diagonal, at);
    return l.load_masked(self_of(node), place, mask, l.constant_int(result_dtype(node), 0));
  });
  return true;
}

}  // namespace braze::loop
