#include "braze/sym/expr.h"

#include <doctest/doctest.h>

#include <array>
#include <random>
#include <stdexcept>

#include "braze/support/check.h"

using namespace braze::sym;

namespace {

struct Symbols {
  Context context;
  Expr i = context.symbol("i", {0, 15});
  Expr j = context.symbol("j", {0, 7});
  Expr x = context.symbol("x", {});
  Expr y = context.symbol("y", {});
  Expr s0 = context.symbol("s0", {2, kInf});
  Expr s1 = context.symbol("s1", {2, kInf});
};

}  // namespace

TEST_CASE("constants fold without a context") {
  CHECK_EQ(Expr(3) + Expr(4), Expr(7));
  CHECK_EQ(Expr(3) - Expr(4), Expr(-1));
  CHECK_EQ(floor_div(-7, 2), Expr(-4));
  CHECK_EQ(mod(-7, 2), Expr(1));
  CHECK_EQ(mod(7, -2), Expr(-1));
  CHECK_EQ(ceil_div(7, 2), Expr(4));
  CHECK_EQ(min(3, 4), Expr(3));
  CHECK_EQ(eq(3, 3), Expr(1));
  CHECK_THROWS_AS(Expr(kInf) + Expr(1), braze::InternalError);
}

TEST_CASE_FIXTURE(Symbols, "sums and products have one form") {
  CHECK_EQ(x + y, y + x);
  CHECK_EQ(x * y * 3 + x, x + 3 * (y * x));
  CHECK_EQ((x + 1) * (x - 1), x * x - 1);
  CHECK_EQ((s0 + s0) - s0, s0);
  CHECK_EQ(s1 * 8 * s0, s0 * (s1 * 8));
  CHECK_EQ(x - x, Expr(0));
  CHECK_EQ((x + y) * 2 - y * 2, x * 2);
}

TEST_CASE_FIXTURE(Symbols, "quotients and remainders use ranges") {
  CHECK_EQ(floor_div(8 * i + j, 8), i);
  CHECK_EQ(mod(8 * i + j, 8), j);
  CHECK_EQ(floor_div(i, 16), Expr(0));
  CHECK_EQ(mod(i, 16), i);
  CHECK_EQ(8 * floor_div(x, 8) + mod(x, 8), x);
  CHECK_EQ(floor_div(floor_div(x, 4), 2), floor_div(x, 8));
  CHECK_EQ(mod(x * 8, 8), Expr(0));
  CHECK_EQ(mod(mod(x, 32), 8), mod(x, 8));
  CHECK_EQ(floor_div(mod(x, 32), 8), mod(floor_div(x, 8), 4));
  CHECK_EQ(floor_div(4 * x + 2, 8), floor_div(x, 2));
  CHECK_EQ(mod(16 * x + 8 * y + j, 16), 8 * mod(y, 2) + j);
  CHECK_EQ(4 * mod(floor_div(x, 4), 2) + mod(x, 4), mod(x, 8));
  // Mixed radix: flattening after splitting gives the flat index back.
  CHECK_EQ(12 * floor_div(x, 12) + 4 * mod(floor_div(x, 4), 3) + mod(x, 4), x);
  CHECK_EQ(floor_div(x + 9, 8), floor_div(x + 1, 8) + 1);
}

TEST_CASE_FIXTURE(Symbols, "quotients by symbolic sizes") {
  CHECK_EQ(floor_div(s0 * s1, s1), s0);
  CHECK_EQ(floor_div(64 * s0 * s1 + 64 * s1, 64 * s0 + 64), s1);
  CHECK_EQ(mod(s0 * s1, s0), Expr(0));
  const Expr row = context.index("row", s0), column = context.index("column", s1);
  CHECK_EQ(floor_div(row * s1 + column, s1), row);
  CHECK_EQ(mod(row * s1 + column, s1), column);
  CHECK_EQ(floor_div(row * s1 + column, s0 * s1), Expr(0));
  CHECK_EQ(s1 * floor_div(x, s1) + mod(x, s1), x);
  CHECK_EQ(floor_div(s0 * 12, s0 * 4), Expr(3));
  CHECK_EQ(lt(row, s0), Expr(1));
}

TEST_CASE_FIXTURE(Symbols, "predicates are decided by ranges or put in one form") {
  CHECK_EQ(eq(s0, 0), Expr(0));
  CHECK_EQ(eq(s0, 1), Expr(0));
  CHECK_EQ(ne(s0 * s1, 0), Expr(1));
  CHECK_EQ(lt(i, 16), Expr(1));
  CHECK_EQ(eq(s0 * s1, s0 * 4), eq(s1, 4));
  CHECK_EQ(eq(2 * x, 3), Expr(0));
  CHECK_EQ(lt(x, y), logical_not(le(y, x)));
  CHECK_EQ(le(2 * x, 7), le(x, 3));
  CHECK_EQ(logical_and(eq(x, 3), ne(x, 3)), Expr(0));
  CHECK_EQ(logical_or(eq(x, 3), ne(x, 3)), Expr(1));
  CHECK_EQ(min(x, x + 3), x);
  CHECK_EQ(max(s0, 1), s0);
  CHECK_FALSE(try_decide(eq(s0, s1)).has_value());
}

TEST_CASE_FIXTURE(Symbols, "coefficient of a symbol") {
  CHECK_EQ(*coefficient(x * s0 + 3 * x + y, x), s0 + 3);
  CHECK_EQ(*coefficient(y, x), Expr(0));
  CHECK_FALSE(coefficient(x * x, x).has_value());
  CHECK_FALSE(coefficient(floor_div(x, 2), x).has_value());
}

TEST_CASE_FIXTURE(Symbols, "text is Python and reads back") {
  const auto lookup = [&](std::string_view name) { return context.symbol(name, {}); };
  CHECK_EQ(to_string(4 * s0 + i), "i + s0*4");
  CHECK_EQ(to_string(floor_div(s0 + 1, 2)), "(s0 + 1) // 2");
  CHECK_EQ(to_string(x - 3), "x - 3");
  CHECK_EQ(to_string(-x), "-x");
  CHECK_EQ(parse("s0*4 + i", lookup), 4 * s0 + i);
  CHECK_EQ(parse("-(x - 3)*2", lookup), 6 - 2 * x);
  CHECK_EQ(parse("x < 3 and not y == 2", lookup), logical_and(lt(x, 3), ne(y, 2)));
  CHECK_EQ(parse("-9223372036854775808", lookup), Expr(std::numeric_limits<int64_t>::min()));
  CHECK_THROWS_AS(parse("x +", lookup), std::invalid_argument);
  CHECK_THROWS_AS(parse("x // 0", lookup), std::invalid_argument);
  CHECK_THROWS_AS(parse("(x", lookup), std::invalid_argument);
}

TEST_CASE("random expressions keep their values, text and order of building does not matter") {
  std::mt19937 random(20240817);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 1500; ++round) {
    Context context, other;
    struct Bound {
      const char* name;
      Range range;
    };
    const std::array<Bound, 5> bounds{
        {{"a", {0, 7}}, {"b", {0, 11}}, {"c", {-5, 9}}, {"n", {2, kInf}}, {"m", {1, 30}}}};
    std::vector<Expr> symbols;
    for (const Bound& bound : bounds) symbols.push_back(context.symbol(bound.name, bound.range));
    for (size_t i = bounds.size(); i-- > 0;) other.symbol(bounds[i].name, bounds[i].range);
    std::vector<std::array<int64_t, 5>> points;
    for (int p = 0; p < 12; ++p) {
      std::array<int64_t, 5> point{};
      for (size_t i = 0; i < 5; ++i) {
        const Range r = bounds[i].range;
        const int64_t high = r.high == kInf ? 40 : r.high;
        point[i] = r.low + pick(static_cast<int>(high - r.low + 1));
      }
      points.push_back(point);
    }
    // Pool of expressions, each with its value at every point computed by plain arithmetic.
    struct Entry {
      Expr e;
      std::vector<int64_t> values;
    };
    std::vector<Entry> pool;
    for (size_t i = 0; i < 5; ++i) {
      Entry entry{symbols[i], {}};
      for (const auto& point : points) entry.values.push_back(point[i]);
      pool.push_back(entry);
    }
    const auto floored = [](int64_t a, int64_t b) {
      int64_t q = a / b;
      while (b > 0 ? q * b > a : q * b < a) --q;
      return q;
    };
    for (int step = 0; step < 10; ++step) {
      const Entry& l = pool[static_cast<size_t>(pick(static_cast<int>(pool.size())))];
      const Entry& r = pool[static_cast<size_t>(pick(static_cast<int>(pool.size())))];
      const int64_t constants[] = {1, 2, 3, 4, 8, 12, -3, -1, 6};
      const int64_t k = constants[pick(9)];
      Entry entry;
      const int what = pick(12);
      switch (what) {
        case 0:
        case 1:
          entry.e = l.e + r.e;
          break;
        case 2:
          entry.e = l.e - r.e;
          break;
        case 3:
          entry.e = l.e * Expr(k);
          break;
        case 4:
          entry.e = l.e * r.e;
          break;
        case 5:
        case 6:
          entry.e = floor_div(l.e, k);
          break;
        case 7:
        case 8:
          entry.e = mod(l.e, k);
          break;
        case 9:
          entry.e = k > 0 ? floor_div(l.e, symbols[3]) : mod(l.e, symbols[3]);
          break;
        case 10:
          entry.e = min(l.e, r.e);
          break;
        default:
          entry.e = lt(l.e, r.e + Expr(k));
          break;
      }
      bool small = true;
      for (size_t p = 0; p < points.size(); ++p) {
        const int64_t a = l.values[p], b = r.values[p], n = points[p][3];
        int64_t v = 0;
        switch (what) {
          case 0:
          case 1:
            v = a + b;
            break;
          case 2:
            v = a - b;
            break;
          case 3:
            v = a * k;
            break;
          case 4:
            v = a * b;
            break;
          case 5:
          case 6:
            v = floored(a, k);
            break;
          case 7:
          case 8:
            v = a - k * floored(a, k);
            break;
          case 9:
            v = k > 0 ? floored(a, n) : a - n * floored(a, n);
            break;
          case 10:
            v = std::min(a, b);
            break;
          default:
            v = a < b + k ? 1 : 0;
            break;
        }
        entry.values.push_back(v);
        small = small && std::abs(v) < 1000000;
      }
      if (!small) continue;
      for (size_t p = 0; p < points.size(); ++p) {
        const int64_t v = evaluate(entry.e, [&](Expr symbol) {
          for (size_t i = 0; i < 5; ++i)
            if (symbols[i] == symbol) return points[p][i];
          return int64_t{0};
        });
        INFO("round " << round << ": " << to_string(entry.e) << " at point " << p);
        REQUIRE_EQ(v, entry.values[p]);
        const Range range = entry.e.range();
        REQUIRE(range.low <= v);
        REQUIRE(v <= range.high);
      }
      const std::string text = to_string(entry.e);
      const Expr again = parse(text, [&](std::string_view name) { return other.symbol(name, {}); });
      REQUIRE_EQ(to_string(again), text);
      REQUIRE_EQ(parse(text, [&](std::string_view name) { return context.symbol(name, {}); }), entry.e);
      pool.push_back(std::move(entry));
    }
  }
}

TEST_CASE_FIXTURE(Symbols, "substitution simplifies again") {
  const std::pair<Expr, Expr> both[] = {{x, y}, {y, Expr(8)}};
  CHECK_EQ(substitute(x * 2 + y, both), 2 * y + 8);
  const std::pair<Expr, Expr> one[] = {{x, 8 * i + j}};
  CHECK_EQ(substitute(floor_div(x, 8), one), i);
}
