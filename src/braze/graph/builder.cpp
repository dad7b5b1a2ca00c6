#include "braze/graph/builder.h"

#include <algorithm>
#include <numeric>

#include "braze/support/check.h"

namespace braze::graph {

bool known_equal(const sym::ShapeEnv& env, const Shape& a, const Shape& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i]) && !env.known(sym::eq(a[i], b[i])).value_or(false)) return false;
  return true;
}

Node* Builder::node(OpId id, std::vector<Argument> leading) {
  Node* made = graph_.add_typed(op(id), std::move(leading), before_);
  if (before_ != nullptr) {
    made->origin = before_->origin;
    made->tags = before_->tags;
  }
  made_.push_back(made);
  return made;
}

Value* Builder::add(Argument a, Argument b) { return (*this)(OpId::add_Tensor, {std::move(a), std::move(b)}); }
Value* Builder::sub(Argument a, Argument b) { return (*this)(OpId::sub_Tensor, {std::move(a), std::move(b)}); }
Value* Builder::mul(Argument a, Argument b) { return (*this)(OpId::mul_Tensor, {std::move(a), std::move(b)}); }
Value* Builder::div(Argument a, Argument b) { return (*this)(OpId::div_Tensor, {std::move(a), std::move(b)}); }

Value* Builder::cast(Value* x, DType dtype) { return x->type.dtype == dtype ? x : (*this)(OpId::_to_copy, {x, dtype}); }

Value* Builder::view(Value* x, const Shape& sizes) {
  return x->type.sizes == sizes ? x : (*this)(OpId::view, {x, shape_argument(sizes)});
}

Value* Builder::permute(Value* x, const std::vector<int64_t>& dims) {
  return std::is_sorted(dims.begin(), dims.end()) ? x : (*this)(OpId::permute, {x, ints_argument(dims)});
}

Value* Builder::expand(Value* x, const Shape& sizes) {
  return x->type.sizes == sizes ? x : (*this)(OpId::expand, {x, shape_argument(sizes)});
}

Value* Builder::unsqueeze(Value* x, int64_t dim) { return (*this)(OpId::unsqueeze, {x, Expr(dim)}); }

Value* Builder::squeeze(Value* x, const std::vector<int64_t>& dims) {
  return dims.empty() ? x : (*this)(OpId::squeeze_dims, {x, ints_argument(dims)});
}

Value* Builder::slice(Value* x, int64_t dim, Expr start, Expr end, int64_t step) {
  return (*this)(OpId::slice_Tensor, {x, Expr(dim), start, end, Expr(step)});
}

Value* Builder::select(Value* x, int64_t dim, Expr index) { return (*this)(OpId::select_int, {x, Expr(dim), index}); }

Value* Builder::full(const Shape& sizes, Argument value, DType dtype, Device device) {
  return (*this)(OpId::full, {shape_argument(sizes), std::move(value), dtype, None{}, device});
}

Value* Builder::sum(Value* x, const std::vector<int64_t>& dims, bool keepdim) {
  return (*this)(OpId::sum_dim_IntList, {x, ints_argument(dims), keepdim});
}

Value* Builder::mean(Value* x, const std::vector<int64_t>& dims, bool keepdim) {
  return (*this)(OpId::mean_dim, {x, ints_argument(dims), keepdim});
}

Value* Builder::amax(Value* x, const std::vector<int64_t>& dims, bool keepdim) {
  return (*this)(OpId::amax, {x, ints_argument(dims), keepdim});
}

Value* Builder::with_layout(Value* x, const TensorType& type) {
  sym::ShapeEnv& env = *graph_.env;
  CHECK(known_equal(env, x->type.sizes, type.sizes), "with_layout changes sizes");
  if (known_equal(env, x->type.strides, type.strides)) return x;
  // The dimensions from the outermost to the innermost of the wanted layout; a copy in that order is contiguous.
  std::vector<int64_t> order(type.sizes.size());
  std::iota(order.begin(), order.end(), 0);
  auto hint = [&](int64_t d) { return env.hint(type.strides[static_cast<size_t>(d)]); };
  auto is_one = [&](int64_t d) { return type.sizes[static_cast<size_t>(d)] == Expr(1); };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return hint(a) != hint(b) ? hint(a) > hint(b) : !is_one(a) && is_one(b);
  });
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  Value* permuted = permute(x, order);
  Value* dense = (*this)(OpId::clone, {permuted, MemoryFormat{0}});
  Value* result = permute(dense, inverse);
  if (known_equal(env, result->type.strides, type.strides)) return result;
  // Strides of dimensions of size 1 may be any number: as_strided states them.
  for (size_t i = 0; i < type.sizes.size(); ++i)
    if (!(type.sizes[i] == Expr(1)) && !known_equal(env, {result->type.strides[i]}, {type.strides[i]})) return nullptr;
  return (*this)(OpId::as_strided, {result, shape_argument(type.sizes), shape_argument(type.strides), None{}});
}

}  // namespace braze::graph
