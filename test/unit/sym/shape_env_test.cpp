#include "braze/sym/shape_env.h"

#include <doctest/doctest.h>

#include "braze/sym/size_program.h"

using namespace braze::sym;

TEST_CASE("decisions by structure record no guard, by hints one") {
  ShapeEnv env;
  const Expr a = env.new_size(8, "x.size(0)"), b = env.new_size(8, "y.size(0)");
  CHECK_FALSE(env.guard(eq(a, 1)));
  CHECK(env.guard(ne(a * b, 0)));
  CHECK(env.guards().empty());
  CHECK(env.guard(eq(a, b)));
  REQUIRE_EQ(env.guards().size(), 1);
  CHECK(env.guard(eq(b, a)));
  CHECK_EQ(env.guards().size(), 1);
  CHECK_EQ(env.simplify(b * 4), a * 4);
  CHECK_EQ(env.known(eq(a * 2, b * 2)), true);
  CHECK_EQ(env.name_of(b), "y.size(0)");
}

TEST_CASE("bounds that were guarded decide later questions") {
  ShapeEnv env;
  const Expr a = env.new_size(8, "a");
  CHECK(env.guard(lt(a, 100)));
  CHECK_EQ(env.known(lt(a, 200)), true);
  CHECK_FALSE(env.guard(lt(a, 5)));
  CHECK_EQ(env.known(ge(a, 4)), true);
  CHECK_EQ(env.guards().size(), 2);
}

TEST_CASE("specialize fixes the value") {
  ShapeEnv env;
  const Expr a = env.new_size(8, "a");
  CHECK_EQ(env.specialize(a * 2 + 1), 17);
  CHECK_EQ(env.simplify(a), Expr(8));
  CHECK_EQ(env.guards().size(), 1);
  CHECK_EQ(env.specialize(a), 8);
  CHECK_EQ(env.guards().size(), 1);
}

TEST_CASE("equations are solved for the youngest symbol") {
  ShapeEnv env;
  const Expr a = env.new_size(4, "a"), b = env.new_size(9, "b");
  CHECK(env.guard(eq(b, 2 * a + 1)));
  CHECK_EQ(env.simplify(b), 2 * a + 1);
}

TEST_CASE("a size program computes all its expressions in one run") {
  Context context;
  const Expr a = context.symbol("a", {2, kInf}), b = context.symbol("b", {2, kInf});
  const Expr inputs[] = {a, b};
  SizeProgram program(inputs);
  const std::vector<Expr> exprs{
      a * b * 4 + 3, floor_div(a, b), mod(a + 1, b), max(a, b), Expr(17), lt(a, b), logical_or(eq(a, b), lt(b, 5)), a};
  std::vector<int> slots;
  for (const Expr& e : exprs) slots.push_back(program.add(e));
  CHECK_EQ(program.add(exprs[0]), slots[0]);
  for (const int64_t x : {2, 7, 40})
    for (const int64_t y : {2, 5, 40}) {
      std::vector<int64_t> values(static_cast<size_t>(program.slots()));
      values[0] = x;
      values[1] = y;
      program.run(values.data());
      for (size_t i = 0; i < exprs.size(); ++i)
        CHECK_EQ(values[static_cast<size_t>(slots[i])], evaluate(exprs[i], [&](Expr s) { return s == a ? x : y; }));
    }
}
