// Quotients and remainders.
#include <algorithm>
#include <numeric>

#include "braze/support/check.h"
#include "braze/sym/range.h"
#include "braze/sym/terms.h"

namespace braze::sym {
namespace {

Expr make_pair(Op op, Expr a, Expr b) {
  const Expr operands[] = {a, b};
  return Expr(context_of(a, b)->intern(op, operands));
}

bool divides(int64_t d, int64_t v) { return v % d == 0; }

// The part of `terms` whose coefficients are no multiples of g stays within [0, g): then the terms split into
// g * coarse + fine with 0 <= fine < g.
bool split_fine(const Terms& terms, int64_t constant, int64_t g, Terms& coarse, Terms& fine) {
  for (const Term& term : terms) {
    if (divides(g, term.coefficient))
      coarse.push_back({term.coefficient / g, term.monomial});
    else
      fine.push_back(term);
  }
  const int64_t fine_constant = mod_int(constant, g);
  if (fine_constant != 0) fine.push_back({fine_constant, nullptr});
  if (constant != fine_constant) coarse.push_back({(constant - fine_constant) / g, nullptr});
  const Range r = range_of(fine);
  return r.low >= 0 && r.high < g;
}

// Divisors of d worth trying as the grain: the common divisors of d with each coefficient, coarsest first.
SmallVector<int64_t, 8> grains(const Terms& terms, int64_t d) {
  SmallVector<int64_t, 8> out;
  for (const Term& term : terms) {
    const int64_t g = std::gcd(term.coefficient, d);
    if (g > 1 && std::find(out.begin(), out.end(), g) == out.end()) out.push_back(g);
  }
  std::sort(out.begin(), out.end(), std::greater<>());
  return out;
}

Expr floor_div_by_constant(Expr a, int64_t d) {
  if (d == 1) return a;
  if (d < 0) return floor_div(-a, Expr(-d));
  Context* context = context_of(a);
  Terms terms, whole, rest;
  append_terms(terms, a);
  const int64_t constant = take_constant(terms);
  const int64_t carry = floor_div_int(constant, d), left = mod_int(constant, d);
  for (const Term& term : terms) {
    if (divides(d, term.coefficient))
      whole.push_back({term.coefficient / d, term.monomial});
    else
      rest.push_back(term);
  }
  if (carry != 0) whole.push_back({carry, nullptr});
  if (!whole.empty()) {
    Terms inner = rest;
    if (left != 0) inner.push_back({left, nullptr});
    return sum_of(context, whole) + floor_div(sum_of(context, inner), Expr(d));
  }
  Range r = add(range_of(rest), {left, left});
  if (is_bounded(r) && floor_div_int(r.low, d) == floor_div_int(r.high, d)) return floor_div_int(r.low, d);
  for (const int64_t g : grains(rest, d)) {
    Terms coarse, fine;
    if (split_fine(rest, left, g, coarse, fine)) return floor_div(sum_of(context, coarse), Expr(d / g));
  }
  if (rest.size() == 1 && rest[0].coefficient == 1) {
    const Node* inner = rest[0].monomial;
    if (inner->op == Op::FloorDiv && inner->operands[1].range().low >= 1) {
      const Expr scale = inner->operands[1];
      return floor_div(inner->operands[0] + scale * Expr(left), scale * Expr(d));
    }
    if (inner->op == Op::Mod && left == 0 && inner->operands[1].is_constant() &&
        divides(d, inner->operands[1].constant()))
      return mod(floor_div(inner->operands[0], d), inner->operands[1].constant() / d);
  }
  return make_pair(Op::FloorDiv, a, d);
}

Expr mod_by_constant(Expr a, int64_t d) {
  if (d == 1 || d == -1) return 0;
  if (d < 0) return -mod(-a, Expr(-d));
  Context* context = context_of(a);
  Terms terms, rest;
  append_terms(terms, a);
  const int64_t left = mod_int(take_constant(terms), d);
  bool changed = false;
  Expr unwrapped = 0;
  for (const Term& term : terms) {
    const int64_t coefficient = term.coefficient % d;
    if (coefficient == 0) continue;
    const Node* inner = term.monomial;
    if (inner->op == Op::Mod && inner->operands[1].is_constant() &&
        divides(d, checked_multiply(coefficient, inner->operands[1].constant()))) {
      unwrapped += inner->operands[0] * Expr(coefficient);
      changed = true;
    } else {
      rest.push_back({coefficient, inner});
    }
  }
  if (changed) {
    if (left != 0) rest.push_back({left, nullptr});
    return mod(sum_of(context, rest) + unwrapped, d);
  }
  if (rest.empty()) return left;
  const Range r = add(range_of(rest), {left, left});
  Terms reduced = rest;
  if (left != 0) reduced.push_back({left, nullptr});
  if (is_bounded(r) && floor_div_int(r.low, d) == floor_div_int(r.high, d))
    return sum_of(context, reduced) - Expr(checked_multiply(floor_div_int(r.low, d), d));
  for (const int64_t g : grains(rest, d)) {
    Terms coarse, fine;
    if (!split_fine(rest, left, g, coarse, fine)) continue;
    return Expr(g) * mod(sum_of(context, coarse), Expr(d / g)) + sum_of(context, fine);
  }
  return make_pair(Op::Mod, sum_of(context, reduced), d);
}

// a is multiples of b plus a rest: the parts, where b is not a constant.
void split_multiples(Expr a, Expr b, Expr& quotient, Expr& rest) {
  quotient = 0;
  rest = a;
  if (b.op() == Op::Add) {
    // A sum divides as a whole only, or after the constant was set aside.
    const Expr constant =
        a.is_constant() || a.op() != Op::Add || !a.operands().back().is_constant() ? Expr(0) : a.operands().back();
    if (const auto q = divide_exactly(a - constant, b)) {
      quotient = *q;
      rest = constant;
    }
    return;
  }
  Terms terms, multiples, others;
  append_terms(terms, a);
  const int64_t coefficient = b.node()->coefficient;
  for (const Term& term : terms) {
    const Node* monomial = nullptr;
    if (divides(coefficient, term.coefficient) && divide_monomials(term.monomial, b.node()->monomial, monomial))
      multiples.push_back({term.coefficient / coefficient, monomial});
    else
      others.push_back(term);
  }
  if (multiples.empty()) return;
  quotient = sum_of(context_of(b), multiples);
  rest = sum_of(context_of(b), others);
}

// 0 <= a < b for all values.
bool known_remainder(Expr a, Expr b) {
  if (!known_nonnegative(a)) return false;
  if (a.range().high < b.range().low) return true;
  const std::optional<Expr> bound = upper_bound(a);
  return bound && known_nonnegative(b - *bound - 1);
}

}  // namespace

Expr floor_div(Expr a, Expr b) {
  CHECK(b != Expr(0), "division of a size by zero");
  if (b.is_constant()) {
    if (a.is_constant()) {
      CHECK(!(a.constant() == std::numeric_limits<int64_t>::min() && b.constant() == -1));
      return floor_div_int(a.constant(), b.constant());
    }
    return floor_div_by_constant(a, b.constant());
  }
  if (a == Expr(0)) return 0;
  if (const auto exact = divide_exactly(a, b)) return *exact;
  if (b.range().low >= 1 && known_remainder(a, b)) return 0;
  Expr quotient, rest;
  split_multiples(a, b, quotient, rest);
  if (quotient != Expr(0)) return quotient + floor_div(rest, b);
  // (g*x) // (g*y) is x // y.
  Terms terms, divisor;
  append_terms(terms, a);
  append_terms(divisor, b);
  int64_t g = 0;
  for (const Term& term : terms) g = std::gcd(g, term.coefficient);
  for (const Term& term : divisor) g = std::gcd(g, term.coefficient);
  if (g > 1) return floor_div(*divide_exactly(a, g), *divide_exactly(b, g));
  if (!a.is_constant() && a.op() == Op::FloorDiv && a.operands()[1].range().low >= 1 && b.range().low >= 1)
    return floor_div(a.operands()[0], a.operands()[1] * b);
  return make_pair(Op::FloorDiv, a, b);
}

Expr mod(Expr a, Expr b) {
  CHECK(b != Expr(0), "remainder of a size by zero");
  if (b.is_constant()) {
    if (a.is_constant()) return b.constant() == -1 ? 0 : mod_int(a.constant(), b.constant());
    return mod_by_constant(a, b.constant());
  }
  if (a == Expr(0) || divide_exactly(a, b)) return 0;
  if (b.range().low >= 1 && known_remainder(a, b)) return a;
  Expr quotient, rest;
  split_multiples(a, b, quotient, rest);
  if (quotient != Expr(0)) return mod(rest, b);
  if (!a.is_constant() && a.op() == Op::Mod && a.operands()[1] == b) return a;
  return make_pair(Op::Mod, a, b);
}

Expr ceil_div(Expr a, Expr b) { return -floor_div(-a, b); }

}  // namespace braze::sym
