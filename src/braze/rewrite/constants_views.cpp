// Views of known arrays: other strides over the same data.
#include <algorithm>

#include "braze/graph/arguments.h"
#include "braze/rewrite/constant_arrays.h"

namespace braze::rewrite {

using graph::Node;
using graph::OpId;
using graph::Value;
using Number = Constant::Number;

std::optional<Constant> Constants::view(const Node& node) {
  const Value* result = node.result();
  const Constant* x = argument(node, 0);
  if (x == nullptr || x->dtype != result->type.dtype) return std::nullopt;
  Constant out = *x;
  out.sizes = result->type.sizes;
  auto rank = static_cast<int64_t>(x->sizes.size());
  auto at = [](int64_t i) { return static_cast<size_t>(i); };
  switch (node.op->id) {
    case OpId::alias:
    case OpId::detach:
    case OpId::lift:
    case OpId::lift_fresh:
      return out;
    case OpId::view:
    case OpId::_unsafe_view:
    case OpId::reshape: {
      if (x->is_uniform()) {
        out.strides.assign(out.sizes.size(), 0);
        return out;
      }
      std::vector<int64_t> extents, new_extents;
      size_t total = 1;
      for (sym::Expr size : x->sizes) {
        if (!size.is_constant()) return std::nullopt;
        extents.push_back(size.constant());
        total *= static_cast<size_t>(size.constant());
        if (total > limit_) return std::nullopt;
      }
      for (sym::Expr size : out.sizes) new_extents.push_back(size.constant());
      std::vector<Number> data;
      for_each_index(extents, [&](const std::vector<int64_t>& index) {
        data.push_back(x->at(index));
        return true;
      });
      return dense(x->dtype, out.sizes, new_extents, std::move(data));
    }
    case OpId::t:
      if (rank == 2) std::swap(out.strides[0], out.strides[1]);
      return out;
    case OpId::transpose_int: {
      auto a = graph::integer(node, "dim0"), b = graph::integer(node, "dim1");
      if (!a || !b) return std::nullopt;
      if (rank > 0) std::swap(out.strides[at(graph::wrap_dim(*a, rank))], out.strides[at(graph::wrap_dim(*b, rank))]);
      return out;
    }
    case OpId::permute: {
      auto dims = graph::integers(node, "dims");
      if (!dims) return std::nullopt;
      for (size_t i = 0; i < dims->size(); ++i) out.strides[i] = x->strides[at(graph::wrap_dim((*dims)[i], rank))];
      return out;
    }
    case OpId::unsqueeze: {
      auto dim = graph::integer(node, "dim");
      if (!dim) return std::nullopt;
      out.strides.insert(out.strides.begin() + graph::wrap_dim(*dim, rank + 1), 0);
      return out;
    }
    case OpId::squeeze:
    case OpId::squeeze_dim:
    case OpId::squeeze_dims: {
      // What is left are the other dimensions, in order: dropped ones have size 1.
      std::vector<bool> drop(at(rank), node.op->id == OpId::squeeze);
      if (node.op->id != OpId::squeeze) {
        auto dims = graph::integers(node, "dim");
        if (!dims) return std::nullopt;
        for (int64_t dim : *dims)
          if (rank > 0) drop[at(graph::wrap_dim(dim, rank))] = true;
      }
      out.strides.clear();
      for (int64_t i = 0; i < rank; ++i)
        if (!(drop[at(i)] && x->sizes[at(i)] == sym::Expr(1))) out.strides.push_back(x->strides[at(i)]);
      if (out.strides.size() != out.sizes.size()) return std::nullopt;
      return out;
    }
    case OpId::expand: {
      out.strides.assign(out.sizes.size(), 0);
      size_t skip = out.sizes.size() - x->sizes.size();
      for (size_t i = 0; i < x->sizes.size(); ++i) out.strides[skip + i] = x->strides[i];
      return out;
    }
    case OpId::slice_Tensor: {
      auto dim = graph::integer(node, "dim");
      if (!dim) return std::nullopt;
      size_t d = at(graph::wrap_dim(*dim, rank));
      if (x->strides[d] == 0) return out;
      int64_t size = x->sizes[d].constant();
      auto step = graph::integer(node, "step");
      int64_t start = graph::is_none(node, "start") ? 0 : graph::integer(node, "start").value_or(-size - 1);
      if (!step || start < -size) return std::nullopt;
      if (start < 0) start += size;
      start = std::min(start, size);
      out.offset += start * out.strides[d];
      out.strides[d] *= *step;
      return out;
    }
    case OpId::select_int: {
      auto dim = graph::integer(node, "dim"), index = graph::integer(node, "index");
      if (!dim || rank == 0) return std::nullopt;
      size_t d = at(graph::wrap_dim(*dim, rank));
      if (x->strides[d] != 0) {
        if (!index) return std::nullopt;
        out.offset += (*index < 0 ? *index + x->sizes[d].constant() : *index) * x->strides[d];
      }
      out.strides.erase(out.strides.begin() + static_cast<int64_t>(d));
      return out;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace braze::rewrite
