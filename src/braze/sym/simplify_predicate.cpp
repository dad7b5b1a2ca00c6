// Minima, maxima and predicates.
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

// The difference a - b divided by factors that are known to be positive; its sign is that of a - b.
struct Difference {
  Terms terms;  // without the constant
  int64_t constant = 0;
  Context* context = nullptr;
};

void remove_common_factors(Terms& terms) {
  if (terms.empty()) return;
  for (bool found = true; found;) {
    found = false;
    for (const Expr& factor : factors_of(terms[0].monomial)) {
      if (factor.range().low < 1) continue;
      Terms reduced;
      const Node* quotient = nullptr;
      for (const Term& term : terms) {
        if (!divide_monomials(term.monomial, factor.node(), quotient)) break;
        reduced.push_back({term.coefficient, quotient});
      }
      if (reduced.size() != terms.size()) continue;
      terms = reduced;
      normalize(terms);
      found = true;
      break;
    }
    if (terms.size() == 1 && terms[0].monomial == nullptr) break;
  }
}

Difference difference(Expr a, Expr b) {
  Difference d;
  d.context = context_of(a, b);
  append_terms(d.terms, a - b);
  bool has_constant = false;
  for (const Term& term : d.terms) has_constant = has_constant || term.monomial == nullptr;
  if (!has_constant) remove_common_factors(d.terms);
  d.constant = take_constant(d.terms);
  return d;
}

int64_t gcd_of(const Terms& terms) {
  int64_t g = 0;
  for (const Term& term : terms) g = std::gcd(g, term.coefficient);
  return g;
}

// Positive terms on the left, negative ones negated on the right.
std::pair<Expr, Expr> sides(const Difference& d) {
  Terms left, right;
  for (const Term& term : d.terms) {
    if (term.coefficient > 0)
      left.push_back(term);
    else
      right.push_back({-term.coefficient, term.monomial});
  }
  if (d.constant > 0) left.push_back({d.constant, nullptr});
  if (d.constant < 0) right.push_back({-d.constant, nullptr});
  return {sum_of(d.context, left), sum_of(d.context, right)};
}

Expr equality(Op op, Expr a, Expr b) {
  const int64_t if_equal = op == Op::Eq ? 1 : 0;
  if (a == b) return if_equal;
  if (a.is_constant() && b.is_constant()) return 1 - if_equal;
  Difference d = difference(a, b);
  if (d.terms.empty()) return d.constant == 0 ? if_equal : 1 - if_equal;
  const int64_t g = gcd_of(d.terms);
  if (d.constant % g != 0) return 1 - if_equal;
  const int64_t sign = d.terms[0].coefficient < 0 ? -1 : 1;
  for (Term& term : d.terms) term.coefficient /= g * sign;
  d.constant /= g * sign;
  const Range r = add(range_of(d.terms), {d.constant, d.constant});
  if (!contains(r, 0)) return 1 - if_equal;
  Terms all = d.terms;
  if (d.constant != 0) all.push_back({d.constant, nullptr});
  const Expr whole = sum_of(d.context, all);
  if (whole == Expr(0)) return if_equal;
  if (known_nonnegative(whole - 1) || known_nonnegative(-whole - 1)) return 1 - if_equal;
  const auto [left, right] = sides(d);
  return make_pair(op, left, right);
}

// a <= b
Expr at_most(Expr a, Expr b) {
  if (a.is_constant() && b.is_constant()) return a.constant() <= b.constant() ? 1 : 0;
  if (a == b) return 1;
  Difference d = difference(a, b);
  if (d.terms.empty()) return d.constant <= 0 ? 1 : 0;
  const int64_t g = gcd_of(d.terms);
  for (Term& term : d.terms) term.coefficient /= g;
  d.constant = -floor_div_int(-d.constant, g);
  const Range r = add(range_of(d.terms), {d.constant, d.constant});
  if (r.high <= 0) return 1;
  if (r.low > 0) return 0;
  Terms all = d.terms;
  if (d.constant != 0) all.push_back({d.constant, nullptr});
  const Expr whole = sum_of(d.context, all);
  if (known_nonnegative(-whole)) return 1;
  if (known_nonnegative(whole - 1)) return 0;
  if (d.constant == 1) {
    d.constant = 0;
    const auto [left, right] = sides(d);
    return make_pair(Op::Lt, left, right);
  }
  const auto [left, right] = sides(d);
  return make_pair(Op::Le, left, right);
}

Expr extremum(Op op, Expr a, Expr b) {
  if (a.is_constant() && b.is_constant())
    return op == Op::Min ? std::min(a.constant(), b.constant()) : std::max(a.constant(), b.constant());
  SmallVector<Expr, 8> items;
  for (const Expr& side : {a, b}) {
    if (!side.is_constant() && side.op() == op)
      items.append(side.operands().begin(), side.operands().end());
    else
      items.push_back(side);
  }
  // Drop each item that another one always beats.
  for (size_t i = 0; i < items.size();) {
    bool beaten = false;
    for (size_t j = 0; j < items.size() && !beaten; ++j) {
      if (i == j) continue;
      const std::optional<bool> other_wins =
          try_decide(op == Op::Min ? at_most(items[j], items[i]) : at_most(items[i], items[j]));
      beaten = other_wins.value_or(false);
    }
    if (beaten)
      items.erase(i);
    else
      ++i;
  }
  if (items.size() == 1) return items[0];
  std::sort(items.begin(), items.end(), [](Expr x, Expr y) { return compare(x, y) < 0; });
  return Expr(context_of(a, b)->intern(op, {items.data(), items.size()}));
}

Expr junction(Op op, Expr a, Expr b) {
  const Expr absorbing = op == Op::And ? 0 : 1, neutral = op == Op::And ? 1 : 0;
  SmallVector<Expr, 8> items;
  for (const Expr& side : {a, b}) {
    if (side == absorbing) return absorbing;
    if (side.is_constant()) continue;
    if (side.op() == op)
      items.append(side.operands().begin(), side.operands().end());
    else
      items.push_back(side);
  }
  std::sort(items.begin(), items.end(), [](Expr x, Expr y) { return compare(x, y) < 0; });
  SmallVector<Expr, 8> kept;
  for (const Expr& item : items) {
    if (!kept.empty() && kept.back() == item) continue;
    const Expr opposite = logical_not(item);
    if (std::find(items.begin(), items.end(), opposite) != items.end()) return absorbing;
    kept.push_back(item);
  }
  if (kept.empty()) return neutral;
  if (kept.size() == 1) return kept[0];
  return Expr(context_of(a, b)->intern(op, {kept.data(), kept.size()}));
}

}  // namespace

Expr min(Expr a, Expr b) { return extremum(Op::Min, a, b); }
Expr max(Expr a, Expr b) { return extremum(Op::Max, a, b); }
Expr eq(Expr a, Expr b) { return equality(Op::Eq, a, b); }
Expr ne(Expr a, Expr b) { return equality(Op::Ne, a, b); }
Expr le(Expr a, Expr b) { return at_most(a, b); }
Expr lt(Expr a, Expr b) {
  if (a.is_constant() && b.is_constant()) return a.constant() < b.constant() ? 1 : 0;
  return logical_not(at_most(b, a));
}
Expr logical_and(Expr a, Expr b) { return junction(Op::And, a, b); }
Expr logical_or(Expr a, Expr b) { return junction(Op::Or, a, b); }

Expr logical_not(Expr a) {
  if (a.is_constant()) return a.constant() == 0 ? 1 : 0;
  const std::span<const Expr> operands = a.operands();
  switch (a.op()) {
    case Op::Eq:
      return make_pair(Op::Ne, operands[0], operands[1]);
    case Op::Ne:
      return make_pair(Op::Eq, operands[0], operands[1]);
    case Op::Lt:
      return at_most(operands[1], operands[0]);
    case Op::Le:
      return at_most(operands[1] + 1, operands[0]);
    case Op::Not:
      return operands[0];
    case Op::And:
    case Op::Or: {
      Expr out = a.op() == Op::And ? 0 : 1;
      for (const Expr& operand : operands)
        out = a.op() == Op::And ? logical_or(out, logical_not(operand)) : logical_and(out, logical_not(operand));
      return out;
    }
    case Op::Constant:
    case Op::Symbol:
    case Op::Add:
    case Op::Mul:
    case Op::FloorDiv:
    case Op::Mod:
    case Op::Min:
    case Op::Max:
      break;
  }
  return Expr(context_of(a)->intern(Op::Not, {&a, 1}));
}

std::optional<bool> try_decide(Expr predicate) {
  if (predicate.is_constant()) return predicate.constant() != 0;
  const Range r = predicate.range();
  if (r.low > 0 || r.high < 0) return true;
  if (r.low == 0 && r.high == 0) return false;
  return std::nullopt;
}

}  // namespace braze::sym
