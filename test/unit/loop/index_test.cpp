#include <doctest/doctest.h>

#include "braze/loop/index.h"

namespace braze::loop {

TEST_CASE("addresses and row-major positions") {
  sym::Context context;
  const Expr i = context.index("i", 4), j = context.index("j", 6), s = context.symbol("s", {2, sym::kInf});
  CHECK(address(Indices{i, j}, Shape{6, 1}, 3) == i * Expr(6) + j + Expr(3));
  CHECK(flatten(Indices{i, j}, Shape{4, 6}) == i * Expr(6) + j);
  CHECK(unflatten(i * Expr(6) + j, Shape{4, 6}) == Indices{i, j});
  CHECK(unflatten(j, Shape{1, 6, 1}) == Indices{0, j, 0});
  const Expr k = context.index("k", s), l = context.index("l", 4);
  CHECK(unflatten(l * s + k, Shape{4, s}) == Indices{l, k});
}

TEST_CASE("layouts") {
  sym::Context context;
  const Expr s = context.symbol("s", {2, sym::kInf});
  CHECK(is_row_major(Shape{4, s}, Shape{s, 1}));
  CHECK(is_row_major(Shape{4, 1, s}, Shape{s, 77, 1}));
  CHECK(!is_row_major(Shape{4, s}, Shape{1, 4}));
  std::vector<int> order;
  CHECK(is_dense(Shape{2, 3, 4, 5}, Shape{60, 1, 15, 3}, &order));
  CHECK(order == std::vector<int>{0, 2, 3, 1});
  CHECK(!is_dense(Shape{2, 3}, Shape{4, 1}));
  CHECK(!is_dense(Shape{2, 3}, Shape{0, 1}));
}

TEST_CASE("a reshape is undone group by group") {
  sym::ShapeEnv env;
  sym::Context& context = env.context();
  const Expr b = env.new_size(3, "b"), t = env.new_size(5, "t");
  const Expr i = context.index("i", b), j = context.index("j", t);
  const Expr h = context.index("h", 12), d = context.index("d", 64);
  // [b, t, 768] seen as [b, t, 12, 64]
  CHECK(reshape_index(env, Indices{i, j, h, d}, Shape{b, t, 12, 64}, Shape{b, t, 768}) ==
        Indices{i, j, h * Expr(64) + d});
  // [b, t, 12, 64] seen as [b*t, 768]
  const Expr r = context.index("r", b * t), c = context.index("c", 768);
  CHECK(reshape_index(env, Indices{r, c}, Shape{b * t, 768}, Shape{b, t, 12, 64}) ==
        Indices{floor_div(r, t), mod(r, t), floor_div(c, 64), mod(c, 64)});
  // There and back again.
  const Indices there = reshape_index(env, Indices{i, j, h, d}, Shape{b, t, 12, 64}, Shape{b * t, 768});
  CHECK(reshape_index(env, there, Shape{b * t, 768}, Shape{b, t, 12, 64}) == Indices{i, j, h, d});
  CHECK(reshape_index(env, Indices{}, Shape{}, Shape{1, 1}) == Indices{0, 0});
  CHECK(reshape_index(env, Indices{i}, Shape{b}, Shape{1, b, 1}) == Indices{0, i, 0});
}

TEST_CASE("linear forms") {
  sym::Context context;
  const Axis i{context.index("i", 4), 4}, j{context.index("j", 6), 6};
  const Axis axes[] = {i, j};
  std::vector<Expr> coefficients;
  Expr constant;
  REQUIRE(split_linear(i.symbol * Expr(12) + j.symbol * Expr(2) + Expr(1), axes, coefficients, constant));
  CHECK(coefficients == Indices{12, 2});
  CHECK(constant == Expr(1));
  CHECK(!split_linear(i.symbol * j.symbol, axes, coefficients, constant));
  CHECK(!split_linear(mod(i.symbol, 3), axes, coefficients, constant));
}

TEST_CASE("neighbouring axes merge where every address walks them as one") {
  sym::Context context;
  const Expr s = context.symbol("s", {2, sym::kInf});
  const Axis i{context.index("i", 4), 4}, j{context.index("j", s), s}, k{context.index("k", 8), 8};
  const Axis axes[] = {i, j, k};
  const Expr dense = i.symbol * s * Expr(8) + j.symbol * Expr(8) + k.symbol;
  const MergedAxes all = merge_axes(context, axes, Indices{dense, dense * Expr(2) + Expr(3)});
  REQUIRE(all.axes.size() == 1);
  CHECK(all.axes[0].extent == s * Expr(32));
  CHECK(substitute(dense, all.substitution) == all.axes[0].symbol);
  // The second address leaves a gap between rows of k: only i and j merge.
  const Expr gap = i.symbol * s * Expr(10) + j.symbol * Expr(10) + k.symbol;
  const MergedAxes outer = merge_axes(context, axes, Indices{dense, gap});
  REQUIRE(outer.axes.size() == 2);
  CHECK(outer.axes[0].extent == s * Expr(4));
  CHECK(outer.axes[1].symbol == k.symbol);
  CHECK(substitute(gap, outer.substitution) == outer.axes[0].symbol * Expr(10) + k.symbol);
  // A broadcast along j: nothing merges with it.
  const MergedAxes none = merge_axes(context, axes, Indices{dense, i.symbol * Expr(8) + k.symbol});
  CHECK(none.axes.size() == 3);
  CHECK(none.substitution.empty());
}

}  // namespace braze::loop
