// Loads and stores at computed places.
#include <algorithm>

#include "braze/loop/lowering.h"
#include "braze/support/check.h"

namespace braze::loop {
namespace {

const Value* self_of(const Node& node) { return node.arguments.at(0).as<Value*>(); }
DType result_dtype(const Node& node) { return node.result()->type.dtype; }

bool is_index_type(DType dtype) { return dtype == DType::I64 || dtype == DType::I32; }

size_t dim_of(const Node& node, const Value* self) {
  return static_cast<size_t>(graph::wrap_dim(graph::integer(node, "dim").value(), self->type.dim()));
}

// x[i, :, j]: index tensors broadcast to one shape, which stands in place of the indexed dimensions if these are
// neighbours, else in front.
struct AdvancedIndex {
  std::vector<const Value*> tensors;   // one per dimension of self; nullptr: not indexed
  Shape broadcast;
  size_t first = 0;                    // where the broadcast shape stands in the result

  // The element of self that stands at `at` of the result.
  Indices place(Lowering& l, const Value* self, const Indices& at, std::vector<Binding>& bindings) const {
    const auto begin = at.begin() + static_cast<ptrdiff_t>(first);
    const Indices shared(begin, begin + static_cast<ptrdiff_t>(broadcast.size()));
    Indices rest(at.begin(), begin);
    rest.insert(rest.end(), begin + static_cast<ptrdiff_t>(broadcast.size()), at.end());
    Indices out;
    size_t next = 0;
    for (size_t k = 0; k < tensors.size(); ++k) {
      if (tensors[k] == nullptr) {
        out.push_back(rest[next++]);
        continue;
      }
      const Term value = l.operand(Argument(const_cast<Value*>(tensors[k])), shared);
      out.push_back(l.computed_index(value, self->type.sizes[k], true, bindings));
    }
    return out;
  }
};

std::optional<Shape> broadcast_shape(Lowering& l, const std::vector<const Value*>& tensors) {
  Shape out;
  for (const Value* tensor : tensors) {
    if (tensor == nullptr) continue;
    const Shape& sizes = tensor->type.sizes;
    if (sizes.size() > out.size()) out.insert(out.begin(), sizes.size() - out.size(), Expr(1));
    for (size_t k = 0; k < sizes.size(); ++k) {
      Expr& into = out[out.size() - sizes.size() + k];
      if (into == Expr(1)) {
        into = sizes[k];
      } else if (sizes[k] != Expr(1) && !l.env().known(sym::eq(sizes[k], into)).value_or(false)) {
        return std::nullopt;
      }
    }
  }
  return out;
}

std::optional<AdvancedIndex> advanced_index(Lowering& l, const Node& node, const Value* self) {
  AdvancedIndex out;
  out.tensors.resize(self->type.sizes.size());
  const auto& list = node.argument("indices").as<ArgumentList>();
  if (list.size() > out.tensors.size()) return std::nullopt;
  std::vector<size_t> indexed;
  for (size_t k = 0; k < list.size(); ++k) {
    if (list[k].is_none() || list[k].as<Value*>() == nullptr) continue;
    const Value* tensor = list[k].as<Value*>();
    if (!is_index_type(tensor->type.dtype)) return std::nullopt;   // masks: a size that depends on data
    out.tensors[k] = tensor;
    indexed.push_back(k);
  }
  if (indexed.empty()) return std::nullopt;
  const auto shape = broadcast_shape(l, out.tensors);
  if (!shape) return std::nullopt;
  out.broadcast = *shape;
  const bool neighbours = indexed.back() - indexed.front() + 1 == indexed.size();
  out.first = neighbours ? indexed.front() : 0;
  return out;
}

}  // namespace

bool lower_embedding(Lowering& l, const Node& node, ScalarOp) {
  const Value *weight = self_of(node), *indices = node.arguments.at(1).as<Value*>();
  if (!is_index_type(indices->type.dtype)) return false;
  l.pointwise(node, [&](const Indices& at) {
    const auto rank = static_cast<ptrdiff_t>(indices->type.sizes.size());
    std::vector<Binding> bindings;
    const Term row = l.load(indices, Indices(at.begin(), at.begin() + rank));
    Indices place(at.begin() + rank, at.end());
    place.insert(place.begin(), l.computed_index(row, weight->type.sizes[0], false, bindings));
    return l.load(weight, place, bindings);
  });
  return true;
}

bool lower_index_select(Lowering& l, const Node& node, ScalarOp) {
  const Value *self = self_of(node), *index = node.argument("index").as<Value*>();
  if (!is_index_type(index->type.dtype) || self->type.dim() == 0) return false;
  const size_t dim = dim_of(node, self);
  l.pointwise(node, [&](const Indices& at) {
    std::vector<Binding> bindings;
    Indices place = at;
    const Term value = l.load(index, index->type.dim() == 0 ? Indices{} : Indices{at[dim]});
    place[dim] = l.computed_index(value, self->type.sizes[dim], false, bindings);
    return l.load(self, place, bindings);
  });
  return true;
}

bool lower_gather(Lowering& l, const Node& node, ScalarOp) {
  const Value *self = self_of(node), *index = node.argument("index").as<Value*>();
  if (!is_index_type(index->type.dtype) || self->type.dim() == 0 || index->type.dim() != self->type.dim())
    return false;
  const size_t dim = dim_of(node, self);
  l.pointwise(node, [&](const Indices& at) {
    std::vector<Binding> bindings;
    Indices place = at;
    place[dim] = l.computed_index(l.load(index, at), self->type.sizes[dim], false, bindings);
    return l.load(self, place, bindings);
  });
  return true;
}

bool lower_index(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const auto advanced = advanced_index(l, node, self);
  if (!advanced) return false;
  l.pointwise(node, [&](const Indices& at) {
    std::vector<Binding> bindings;
    const Indices place = advanced->place(l, self, at, bindings);
    return l.load(self, place, bindings);
  });
  return true;
}

// Of the row-major positions of self.
bool lower_take(Lowering& l, const Node& node, ScalarOp) {
  const Value *self = self_of(node), *index = node.argument("index").as<Value*>();
  if (!is_index_type(index->type.dtype)) return false;
  l.pointwise(node, [&](const Indices& at) {
    std::vector<Binding> bindings;
    const Expr flat = l.computed_index(l.load(index, at), graph::numel(self->type.sizes), true, bindings);
    return l.load(self, unflatten(flat, self->type.sizes), bindings);
  });
  return true;
}

// ---- Stores

namespace {

struct Update {
  Shape sizes;                                                                       // of the update's own axes
  std::function<Indices(const Indices& at, std::vector<Binding>& bindings)> place;   // in the result
  std::function<Term(const Indices& at)> value;
};

// The initial value, then the updates in order: overwriting it or combined with it.
void scatter(Lowering& l, const Node& node, const Update& update, std::optional<ReduceOp> combine,
             const Lowering::Body& initial) {
  const DType dtype = result_dtype(node);
  l.define(node, [&](Buffer& buffer, const Indices& at) {
    buffer.kind = BufferKind::Scatter;
    buffer.body = initial(at).scalar();
    buffer.update_axes = l.axes(update.sizes, "u");
    const Indices from = l.indices_of(buffer.update_axes);
    buffer.update_at = update.place(from, buffer.update_bindings);
    buffer.update = update.value(from).cast(dtype).scalar();
    buffer.reduce = combine.value_or(ReduceOp::Sum);
    if (dtype == DType::Bool && buffer.reduce == ReduceOp::Sum) buffer.reduce = ReduceOp::Any;
    buffer.accumulate = dtype;
    buffer.accumulate_updates = combine.has_value();
  });
}

// Of a copy of self.
void scatter(Lowering& l, const Node& node, const Update& update, bool accumulate) {
  scatter(l, node, update, accumulate ? std::optional(ReduceOp::Sum) : std::nullopt,
          [&](const Indices& at) { return l.load(self_of(node), at); });
}

}  // namespace

namespace {

// Element `at` of index says where along dim the element of src (or the number) goes.
std::optional<Update> scattered(Lowering& l, const Node& node) {
  const Value *self = self_of(node), *index = node.argument("index").as<Value*>();
  if (self->type.dim() == 0 || index->type.dim() != self->type.dim() || !is_index_type(index->type.dtype))
    return std::nullopt;
  const size_t dim = dim_of(node, self);
  return Update{
      index->type.sizes,
      [&l, self, index, dim](const Indices& at, std::vector<Binding>& bindings) {
        Indices out = at;
        out[dim] = l.computed_index(l.load(index, at), self->type.sizes[dim], false, bindings);
        return out;
      },
      [&l, &node](const Indices& at) {
        if (node.op->argument_index("value") >= 0) return l.number(node, "value", result_dtype(node));
        return l.load(node.argument("src").as<Value*>(), at);
      }};
}

}  // namespace

bool lower_scatter(Lowering& l, const Node& node, ScalarOp op) {
  const auto update = scattered(l, node);
  if (!update) return false;
  scatter(l, node, *update, op == ScalarOp::Add);
  return true;
}

bool lower_scatter_reduce(Lowering& l, const Node& node, ScalarOp) {
  const DType dtype = result_dtype(node);
  if (node.op->argument_index("include_self") >= 0 && !graph::boolean(node, "include_self")) return false;
  const std::string& name = node.argument("reduce").as<std::string>();
  std::optional<ReduceOp> combine;
  if (name == "sum" || name == "add") combine = ReduceOp::Sum;
  if (name == "prod" || name == "multiply") combine = ReduceOp::Prod;
  if (name == "amax") combine = ReduceOp::Max;
  if (name == "amin") combine = ReduceOp::Min;
  const auto update = scattered(l, node);
  if (!combine || !update || dtype == DType::Bool) return false;
  scatter(l, node, *update, combine, [&](const Indices& at) { return l.load(self_of(node), at); });
  return true;
}

bool lower_embedding_backward(Lowering& l, const Node& node, ScalarOp) {
  const Value *grad = self_of(node), *indices = node.arguments.at(1).as<Value*>();
  const DType dtype = result_dtype(node);
  const Argument& padding = node.argument("padding_idx");
  if (graph::boolean(node, "scale_grad_by_freq") || !is_index_type(indices->type.dtype) || !padding.is<Expr>())
    return false;
  const auto row = [&](const Indices& at) { return l.load(indices, Indices(at.begin(), at.end() - 1)); };
  const Update update{grad->type.sizes,
                      [&](const Indices& at, std::vector<Binding>& bindings) {
                        const Expr place = l.computed_index(row(at), node.result()->type.sizes[0], false, bindings);
                        return Indices{place, at.back()};
                      },
                      [&](const Indices& at) {
                        const Term value = l.load(grad, at);
                        if (l.env().known(sym::lt(padding.as<Expr>(), 0)).value_or(false)) return value;
                        return where(row(at).cast(DType::I64) == l.index(padding.as<Expr>()), 0.0, value);
                      }};
  scatter(l, node, update, ReduceOp::Sum, [&](const Indices&) { return l.constant(dtype, 0); });
  return true;
}

// Each gradient goes to the place that the forward pass recorded: a flat index within the image.
bool lower_max_pool2d_backward(Lowering& l, const Node& node, ScalarOp) {
  const Value *grad = self_of(node), *indices = node.argument("indices").as<Value*>();
  const Shape& sizes = node.result()->type.sizes;
  const size_t rank = sizes.size();
  if (rank < 3 || indices->type.dtype != DType::I64) return false;
  const Expr rows = sizes[rank - 2], columns = sizes[rank - 1];
  const Update update{grad->type.sizes,
                      [&](const Indices& at, std::vector<Binding>& bindings) {
                        Indices out = at;
                        const Expr flat = l.computed_index(l.load(indices, at), rows * columns, false, bindings);
                        out[rank - 2] = floor_div(flat, columns);
                        out[rank - 1] = mod(flat, columns);
                        return out;
                      },
                      [&](const Indices& at) { return l.load(grad, at); }};
  scatter(l, node, update, ReduceOp::Sum, [&](const Indices&) { return l.constant(result_dtype(node), 0); });
  return true;
}

namespace {

// x[mask] = number: a choice, not a scatter.
bool masked_put(Lowering& l, const Node& node) {
  const Value *self = self_of(node), *values = node.argument("values").as<Value*>();
  if (graph::boolean(node, "accumulate") || graph::numel(values->type.sizes) != Expr(1)) return false;
  const Value* mask = nullptr;
  size_t first = 0;
  const auto& list = node.argument("indices").as<ArgumentList>();
  for (size_t k = 0; k < list.size(); ++k) {
    if (list[k].is_none() || list[k].as<Value*>() == nullptr) continue;
    if (mask != nullptr) return false;
    mask = list[k].as<Value*>();
    first = k;
  }
  if (mask == nullptr || mask->type.dtype != DType::Bool) return false;
  const size_t rank = mask->type.sizes.size();
  if (first + rank > self->type.sizes.size()) return false;
  l.pointwise(node, [&](const Indices& at) {
    const auto begin = at.begin() + static_cast<ptrdiff_t>(first);
    const Term chosen = l.load(mask, Indices(begin, begin + static_cast<ptrdiff_t>(rank)));
    const Term value = l.load(values, Indices(values->type.sizes.size(), Expr(0)));
    return where(chosen, value.cast(result_dtype(node)), l.load(self, at));
  });
  return true;
}

}  // namespace

bool lower_index_put(Lowering& l, const Node& node, ScalarOp) {
  const Value *self = self_of(node), *values = node.argument("values").as<Value*>();
  if (masked_put(l, node)) return true;
  const auto advanced = advanced_index(l, node, self);
  if (!advanced) return false;
  Shape sizes;
  for (size_t k = 0; k < self->type.sizes.size(); ++k)
    if (advanced->tensors[k] == nullptr) sizes.push_back(self->type.sizes[k]);
  sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(advanced->first), advanced->broadcast.begin(),
               advanced->broadcast.end());
  if (values->type.sizes.size() > sizes.size()) return false;
  const Update update{sizes,
                      [&](const Indices& at, std::vector<Binding>& bindings) {
                        return advanced->place(l, self, at, bindings);
                      },
                      [&](const Indices& at) { return l.operand(node.argument("values"), at); }};
  scatter(l, node, update, graph::boolean(node, "accumulate"));
  return true;
}

bool lower_index_add(Lowering& l, const Node& node, ScalarOp op) {
  const Value *self = self_of(node), *index = node.argument("index").as<Value*>();
  const Value* source = node.argument("source").as<Value*>();
  if (self->type.dim() == 0 || source->type.dim() != self->type.dim() || !is_index_type(index->type.dtype))
    return false;
  const size_t dim = dim_of(node, self);
  const DType dtype = result_dtype(node);
  const Update update{
      source->type.sizes,
      [&](const Indices& at, std::vector<Binding>& bindings) {
        Indices out = at;
        const Term row = l.load(index, index->type.dim() == 0 ? Indices{} : Indices{at[dim]});
        out[dim] = l.computed_index(row, self->type.sizes[dim], false, bindings);
        return out;
      },
      [&](const Indices& at) {
        const Term value = l.load(source, at);
        if (op != ScalarOp::Add || graph::number(node, "alpha") == 1.0) return value;
        return value.cast(compute_type(dtype)) * l.number(node, "alpha", compute_type(dtype));
      }};
  scatter(l, node, update, op == ScalarOp::Add);
  return true;
}

bool lower_index_fill(Lowering& l, const Node& node, ScalarOp) {
  const Value *self = self_of(node), *index = node.argument("index").as<Value*>();
  if (self->type.dim() == 0 || index->type.dim() != 1 || !is_index_type(index->type.dtype)) return false;
  const size_t dim = dim_of(node, self);
  Shape sizes = self->type.sizes;
  sizes[dim] = index->type.sizes[0];
  const Update update{sizes,
                      [&](const Indices& at, std::vector<Binding>& bindings) {
                        Indices out = at;
                        out[dim] = l.computed_index(l.load(index, {at[dim]}), self->type.sizes[dim], true, bindings);
                        return out;
                      },
                      [&](const Indices&) { return l.operand(node.argument("value"), {}, result_dtype(node)); }};
  scatter(l, node, update, false);
  return true;
}

}  // namespace braze::loop
