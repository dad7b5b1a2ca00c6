#include "braze/loop/index.h"

#include <algorithm>
#include <numeric>

#include "braze/support/check.h"

namespace braze::loop {

Expr address(std::span<const Expr> indices, std::span<const Expr> strides, Expr offset) {
  CHECK(indices.size() == strides.size());
  Expr sum = offset;
  for (size_t k = 0; k < indices.size(); ++k) sum = sum + indices[k] * strides[k];
  return sum;
}

Expr flatten(std::span<const Expr> indices, std::span<const Expr> sizes) {
  const Shape strides = graph::contiguous_strides(Shape(sizes.begin(), sizes.end()));
  return address(indices, strides);
}

Indices unflatten(Expr flat, std::span<const Expr> sizes) {
  Indices out(sizes.size(), Expr(0));
  for (size_t k = sizes.size(); k-- > 0;) {
    if (sizes[k] == Expr(1)) continue;
    const bool outermost = std::all_of(sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(k),
                                       [](Expr size) { return size == Expr(1); });
    out[k] = outermost ? flat : mod(flat, sizes[k]);
    if (!outermost) flat = floor_div(flat, sizes[k]);
  }
  return out;
}

Indices reshape_index(const sym::ShapeEnv& env, std::span<const Expr> at, std::span<const Expr> to,
                      std::span<const Expr> from) {
  Indices out(from.size(), Expr(0));
  const auto is_zero = [](Expr e) { return e == Expr(0); };
  if (std::ranges::any_of(from, is_zero) || std::ranges::any_of(to, is_zero)) return out;
  // Groups of neighbouring dimensions with equal products on both sides; dimensions of extent 1 belong to none.
  std::vector<size_t> old_dims, new_dims;
  for (size_t k = 0; k < from.size(); ++k)
    if (from[k] != Expr(1)) old_dims.push_back(k);
  for (size_t k = 0; k < to.size(); ++k)
    if (to[k] != Expr(1)) new_dims.push_back(k);
  size_t i = 0, j = 0;
  while (i < old_dims.size()) {
    const size_t first_old = i, first_new = j;
    if (j == new_dims.size()) break;   // what is left has a product of 1
    Expr old_product = from[old_dims[i++]], new_product = to[new_dims[j++]];
    while (old_product != new_product && !env.known(sym::eq(old_product, new_product)).value_or(false)) {
      if (i == old_dims.size() && j == new_dims.size()) break;
      const bool grow_old =
          j == new_dims.size() || (i < old_dims.size() && env.hint(old_product) < env.hint(new_product));
      if (grow_old) {
        old_product = old_product * from[old_dims[i++]];
      } else {
        new_product = new_product * to[new_dims[j++]];
      }
    }
    if (i == old_dims.size())   // what is left has a product of 1
      j = new_dims.size();
    Indices group_at, group_to, group_from;
    for (size_t k = first_new; k < j; ++k) {
      group_at.push_back(at[new_dims[k]]);
      group_to.push_back(to[new_dims[k]]);
    }
    for (size_t k = first_old; k < i; ++k) group_from.push_back(from[old_dims[k]]);
    const Indices group = unflatten(flatten(group_at, group_to), group_from);
    for (size_t k = first_old; k < i; ++k) out[old_dims[k]] = group[k - first_old];
  }
  return out;
}

bool is_row_major(std::span<const Expr> sizes, std::span<const Expr> strides) {
  Expr expected = 1;
  for (size_t k = sizes.size(); k-- > 0;) {
    if (sizes[k] == Expr(1)) continue;
    if (strides[k] != expected) return false;
    expected = expected * sizes[k];
  }
  return true;
}

bool is_dense(std::span<const Expr> sizes, std::span<const Expr> strides, std::vector<int>* order) {
  std::vector<int> found;   // innermost first
  std::vector<int> left(sizes.size());
  std::iota(left.begin(), left.end(), 0);
  Expr expected = 1;
  std::vector<int> ones;
  std::erase_if(left, [&](int k) {
    if (sizes[static_cast<size_t>(k)] != Expr(1)) return false;
    ones.push_back(k);
    return true;
  });
  while (!left.empty()) {
    const auto next =
        std::find_if(left.begin(), left.end(), [&](int k) { return strides[static_cast<size_t>(k)] == expected; });
    if (next == left.end()) return false;
    expected = expected * sizes[static_cast<size_t>(*next)];
    found.push_back(*next);
    left.erase(next);
  }
  if (order != nullptr) {
    *order = std::move(ones);
    order->insert(order->end(), found.rbegin(), found.rend());
  }
  return true;
}

bool split_linear(Expr e, std::span<const Axis> axes, std::vector<Expr>& coefficients, Expr& constant) {
  coefficients.clear();
  Substitution zeros;
  for (const Axis& axis : axes) {
    if (!axis.symbol.is_symbol()) {   // an axis of extent 1 may stand as the constant 0
      coefficients.push_back(0);
      continue;
    }
    const auto c = sym::coefficient(e, axis.symbol);
    if (!c) return false;
    for (const Axis& other : axes)
      if (other.symbol.is_symbol() && sym::depends_on(*c, other.symbol)) return false;
    coefficients.push_back(*c);
    zeros.emplace_back(axis.symbol, 0);
  }
  constant = sym::substitute(e, zeros);
  return true;
}

MergedAxes merge_axes(sym::Context& context, std::span<const Axis> axes, std::span<const Expr> addresses) {
  MergedAxes out;
  std::vector<Expr> current(addresses.begin(), addresses.end());
  std::vector<Axis> done;       // innermost first
  size_t k = axes.size();
  while (k > 0) {
    Axis inner = axes[--k];
    const Expr innermost = inner.symbol;
    std::vector<Expr> zeroed;
    while (k > 0) {
      const Axis& outer = axes[k - 1];
      const bool fits = std::ranges::all_of(current, [&](Expr e) {
        const auto a = sym::coefficient(e, outer.symbol);
        const auto b = sym::coefficient(e, inner.symbol);
        return a && b && *a == *b * inner.extent;
      });
      if (!fits) break;
      const Expr extent = outer.extent * inner.extent;
      const Axis merged{context.fresh_index("m", extent), extent};
      const Substitution step{{outer.symbol, Expr(0)}, {inner.symbol, merged.symbol}};
      for (Expr& e : current) e = sym::substitute(e, step);
      zeroed.push_back(outer.symbol);
      inner = merged;
      --k;
    }
    if (!zeroed.empty()) {
      out.substitution.emplace_back(innermost, inner.symbol);
      for (const Expr& symbol : zeroed) out.substitution.emplace_back(symbol, Expr(0));
    }
    done.push_back(inner);
  }
  out.axes.assign(done.rbegin(), done.rend());
  return out;
}

}  // namespace braze::loop
