// Views: index maps, without a buffer of their own.
#include <algorithm>

#include "braze/loop/arithmetic.h"
#include "braze/loop/lowering.h"
#include "braze/support/check.h"

namespace braze::loop {
namespace {

const Value* self_of(const Node& node) {
  const Value* self = node.arguments.at(0).as<Value*>();
  CHECK(self != nullptr);
  return self;
}

size_t dim_of(const Node& node, std::string_view name, int64_t rank) {
  return static_cast<size_t>(graph::wrap_dim(graph::integer(node, name).value(), rank));
}

Indices replaced(const Indices& at, size_t dim, Expr e) {
  Indices out = at;
  out[dim] = e;
  return out;
}

}  // namespace

bool lower_alias(Lowering& l, const Node& node, ScalarOp) {
  l.alias(node, l.located(self_of(node)));
  return true;
}

bool lower_view(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const Shape& to = node.result()->type.sizes;
  l.view(node, self, [&](const Indices& at) { return reshape_index(l.env(), at, to, self->type.sizes); });
  return true;
}

bool lower_expand(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const Shape& from = self->type.sizes;
  l.view(node, self, [&](const Indices& at) {
    Indices out(at.end() - static_cast<ptrdiff_t>(from.size()), at.end());
    for (size_t k = 0; k < from.size(); ++k)
      if (l.is_one(from[k])) out[k] = 0;
    return out;
  });
  return true;
}

bool lower_permute(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const auto dims = graph::integers(node, "dims").value();
  l.view(node, self, [&](const Indices& at) {
    Indices out(at.size());
    for (size_t k = 0; k < at.size(); ++k)
      out[static_cast<size_t>(graph::wrap_dim(dims[k], static_cast<int64_t>(at.size())))] = at[k];
    return out;
  });
  return true;
}

bool lower_transpose(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  if (self->type.dim() == 0) return lower_alias(l, node, ScalarOp::Constant);
  const size_t a = dim_of(node, "dim0", self->type.dim()), b = dim_of(node, "dim1", self->type.dim());
  l.view(node, self, [&](const Indices& at) {
    Indices out = at;
    std::swap(out[a], out[b]);
    return out;
  });
  return true;
}

bool lower_t(Lowering& l, const Node& node, ScalarOp) {
  l.view(node, self_of(node), [](const Indices& at) { return Indices(at.rbegin(), at.rend()); });
  return true;
}

bool lower_slice(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const size_t dim = dim_of(node, "dim", self->type.dim());
  const Argument& given = node.argument("start");
  const auto step = graph::integer(node, "step");
  if (!step || !(given.is_none() || given.is<Expr>())) return false;
  const Expr start = given.is_none() ? Expr(0) : l.from_front(given.as<Expr>(), self->type.sizes[dim]);
  l.view(node, self, [&](const Indices& at) { return replaced(at, dim, start + at[dim] * Expr(*step)); });
  return true;
}

bool lower_select(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const size_t dim = dim_of(node, "dim", self->type.dim());
  const Argument& given = node.argument("index");
  if (!given.is<Expr>()) return false;
  const Expr index = l.from_front(given.as<Expr>(), self->type.sizes[dim]);
  l.view(node, self, [&](const Indices& at) {
    Indices out = at;
    out.insert(out.begin() + static_cast<ptrdiff_t>(dim), index);
    return out;
  });
  return true;
}

bool lower_unsqueeze(Lowering& l, const Node& node, ScalarOp) {
  const size_t dim = dim_of(node, "dim", node.result()->type.dim());
  l.view(node, self_of(node), [&](const Indices& at) {
    Indices out = at;
    out.erase(out.begin() + static_cast<ptrdiff_t>(dim));
    return out;
  });
  return true;
}

// The kept dimensions follow from the types: those of extent 1 that the result lacks were removed.
bool lower_squeeze(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const int64_t rank = self->type.dim();
  std::vector<bool> removed(static_cast<size_t>(rank));
  if (node.op->argument_index("dim") < 0) {
    removed.assign(removed.size(), true);
  } else {
    const auto dims = graph::integers(node, "dim").value();
    for (const int64_t dim : dims)
      if (rank > 0) removed[static_cast<size_t>(graph::wrap_dim(dim, rank))] = true;
  }
  for (size_t k = 0; k < removed.size(); ++k) removed[k] = removed[k] && self->type.sizes[k] == Expr(1);
  if (rank - std::ranges::count(removed, true) != node.result()->type.dim()) return false;
  l.view(node, self, [&](const Indices& at) {
    Indices out;
    size_t next = 0;
    for (const bool gone : removed) out.push_back(gone ? Expr(0) : at[next++]);
    return out;
  });
  return true;
}

bool lower_unbind(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const size_t dim = dim_of(node, "dim", self->type.dim());
  for (size_t k = 0; k < node.results.size(); ++k) {
    l.view(node, self, [&](const Indices& at) {
      Indices out = at;
      out.insert(out.begin() + static_cast<ptrdiff_t>(dim), Expr(static_cast<int64_t>(k)));
      return out;
    }, k);
  }
  return true;
}

bool lower_split(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const size_t dim = dim_of(node, "dim", self->type.dim());
  Expr start = 0;
  for (size_t k = 0; k < node.results.size(); ++k) {
    l.view(node, self, [&](const Indices& at) { return replaced(at, dim, start + at[dim]); }, k);
    start = start + node.result(k)->type.sizes[dim];
  }
  return true;
}

bool lower_diagonal(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const size_t a = dim_of(node, "dim1", self->type.dim()), b = dim_of(node, "dim2", self->type.dim());
  const auto offset = graph::integer(node, "offset");
  if (!offset) return false;
  l.view(node, self, [&](const Indices& at) {
    Indices out;
    size_t next = 0;
    for (size_t k = 0; k < static_cast<size_t>(self->type.dim()); ++k) {
      if (k == a) out.push_back(at.back() + Expr(std::max<int64_t>(-*offset, 0)));
      else if (k == b) out.push_back(at.back() + Expr(std::max<int64_t>(*offset, 0)));
      else out.push_back(at[next++]);
    }
    return out;
  });
  return true;
}

bool lower_unfold(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const auto step = graph::integer(node, "step");
  if (!step || self->type.dim() == 0) return false;
  const size_t dim = dim_of(node, "dimension", self->type.dim());
  l.view(node, self, [&](const Indices& at) {
    Indices out(at.begin(), at.end() - 1);
    out[dim] = out[dim] * Expr(*step) + at.back();
    return out;
  });
  return true;
}

// The address is split over the buffer's dimensions in the order in which they lie in memory.
bool lower_as_strided(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  if (!l.own_storage(self, node)) return false;
  const int32_t id = l.located(self).buffer;
  const Buffer& base = l.buffer(id);
  const Shape sizes = graph::expressions(node, "size"), strides = graph::expressions(node, "stride");
  const Argument& given = node.argument("storage_offset");
  const Expr offset = (given.is_none() ? self->type.offset : given.as<Expr>()) - base.offset;
  std::vector<int> order;
  if (!is_dense(base.sizes, base.strides, &order)) return false;
  // An input shows only a part of its storage: what lies around it can't be indexed.
  Expr last = offset;
  for (size_t k = 0; k < sizes.size(); ++k) last = last + (sizes[k] - 1) * strides[k];
  const bool inside = l.env().known(sym::ge(offset, 0)).value_or(false) &&
                      l.env().known(sym::lt(last, graph::numel(base.sizes))).value_or(false);
  if (!inside) return false;
  const Indices symbols = l.formals(sizes);
  Shape ordered;
  for (const int k : order) ordered.push_back(base.sizes[static_cast<size_t>(k)]);
  const Indices split = unflatten(address(symbols, strides, offset), ordered);
  Located made{id, sizes, Indices(base.sizes.size(), Expr(0))};
  for (size_t k = 0; k < order.size(); ++k) made.at[static_cast<size_t>(order[k])] = split[k];
  l.pin(id);
  l.alias(node, std::move(made));
  return true;
}

// The same bits under another dtype of the same width.
bool lower_view_dtype(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const DType from = self->type.dtype, to = node.result()->type.dtype;
  if (from == to) return lower_alias(l, node, ScalarOp::Constant);
  if (size_of(from) != size_of(to) || from == DType::Bool || to == DType::Bool) return false;
  l.pointwise(node, [&](const Indices& at) {
    return l.term(l.scalars().apply(ScalarOp::Bitcast, to, {l.load(self, at).scalar()}));
  });
  return true;
}

}  // namespace braze::loop
