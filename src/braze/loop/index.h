// Index arithmetic for lowering and scheduling: addresses, linear forms, and axes that can be merged.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "braze/loop/loop_ir.h"

namespace braze::loop {

using Indices = std::vector<Expr>;
using Substitution = std::vector<std::pair<Expr, Expr>>;

// offset + sum of indices[k] * strides[k].
Expr address(std::span<const Expr> indices, std::span<const Expr> strides, Expr offset = 0);
// The row-major position of `indices` in a tensor of these sizes, and back.
Expr flatten(std::span<const Expr> indices, std::span<const Expr> sizes);
Indices unflatten(Expr flat, std::span<const Expr> sizes);

// The index in a tensor of sizes `from` of the element that stands at `at` after a reshape to sizes `to`.
Indices reshape_index(const sym::ShapeEnv& env, std::span<const Expr> at, std::span<const Expr> to,
                      std::span<const Expr> from);

// Row-major without gaps; dimensions of extent 1 may have any stride.
bool is_row_major(std::span<const Expr> sizes, std::span<const Expr> strides);
// Some order of the dimensions makes it row-major. `order` (may be null) gets the dimensions, outermost first.
bool is_dense(std::span<const Expr> sizes, std::span<const Expr> strides, std::vector<int>* order = nullptr);

// An expression linear in the axes: constant + sum of coefficients[k] * axes[k].symbol. False if it is not.
bool split_linear(Expr e, std::span<const Axis> axes, std::vector<Expr>& coefficients, Expr& constant);

// Neighbouring axes that every address (an expression over the axes) walks as one. In the addresses replace
// `substitution` at once: the innermost symbol of a merged group becomes the new one, the others 0.
struct MergedAxes {
  std::vector<Axis> axes;
  Substitution substitution;
};
MergedAxes merge_axes(sym::Context& context, std::span<const Axis> axes, std::span<const Expr> addresses);

}  // namespace braze::loop
