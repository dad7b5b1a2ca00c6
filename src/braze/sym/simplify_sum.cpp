// Sums and products: polynomials over atoms (symbols, quotients, remainders, minima, predicates), fully expanded.
#include <algorithm>

#include "braze/support/check.h"
#include "braze/sym/range.h"
#include "braze/sym/terms.h"

namespace braze::sym {
namespace {

// Beyond this many terms a product of two sums stays a product.
constexpr size_t kMaxExpandedTerms = 64;

int compare_atoms(const Node* a, const Node* b) {
  if (a == b) return 0;
  const bool a_symbol = a->op == Op::Symbol, b_symbol = b->op == Op::Symbol;
  if (a_symbol != b_symbol) return a_symbol ? -1 : 1;
  if (a_symbol) {
    // Shorter names first, so that s2 stands before s10.
    if (a->name.size() != b->name.size()) return a->name.size() < b->name.size() ? -1 : 1;
    return a->name.compare(b->name);
  }
  if (a->op != b->op) return a->op < b->op ? -1 : 1;
  if (a->operands.size() != b->operands.size()) return a->operands.size() < b->operands.size() ? -1 : 1;
  for (size_t i = 0; i < a->operands.size(); ++i)
    if (const int c = compare(a->operands[i], b->operands[i]); c != 0) return c;
  return 0;
}

size_t find_term(const Terms& terms, const Node* monomial) {
  for (size_t i = 0; i < terms.size(); ++i)
    if (terms[i].monomial == monomial) return i;
  return terms.size();
}

// Removes `wanted` (a sum) from the terms, if each of its terms stands there with the same coefficient.
bool take_sum(Terms& terms, Expr wanted) {
  Terms parts;
  append_terms(parts, wanted);
  for (const Term& part : parts) {
    const size_t at = find_term(terms, part.monomial);
    if (part.monomial == nullptr || at == terms.size() || terms[at].coefficient != part.coefficient) return false;
  }
  for (const Term& part : parts) terms[find_term(terms, part.monomial)].coefficient = 0;
  return !parts.empty();
}

// b*d*(x // d) + b*(x % d) is b*x, and b*d*((x // d) % m) + b*(x % d) is b*(x % (d*m)). Joins one such pair.
bool join_remainder(Terms& terms) {
  for (size_t i = 0; i < terms.size(); ++i) {
    const Factors factors = factors_of(terms[i].monomial);
    for (size_t f = 0; f < factors.size(); ++f) {
      if (factors[f].op() != Op::Mod) continue;
      const Expr x = factors[f].operands()[0], d = factors[f].operands()[1];
      Expr scale(terms[i].coefficient);
      for (size_t g = 0; g < factors.size(); ++g)
        if (g != f) scale = scale * factors[g];
      const Expr quotient = floor_div(x, d);
      Expr joined;
      if (take_sum(terms, scale * d * quotient)) {
        joined = scale * x;
      } else if (factors.size() == 1 && d.is_constant()) {
        for (const Term& other : terms) {
          if (other.monomial == nullptr || other.monomial->op != Op::Mod) continue;
          const Expr m = other.monomial->operands[1];
          if (other.monomial->operands[0] != quotient || scale * d != Expr(other.coefficient)) continue;
          if (take_sum(terms, scale * d * Expr(other.monomial))) joined = scale * mod(x, d * m);
          break;
        }
      }
      if (joined == Expr(0)) continue;
      terms[i].coefficient = 0;
      append_terms(terms, joined);
      normalize(terms);
      return true;
    }
  }
  return false;
}

bool has_remainder(const Terms& terms) {
  if (terms.size() < 2) return false;
  for (const Term& term : terms) {
    if (term.monomial == nullptr) continue;
    if (term.monomial->op == Op::Mod) return true;
    if (term.monomial->op == Op::Mul)
      for (const Expr& factor : term.monomial->operands)
        if (factor.op() == Op::Mod) return true;
  }
  return false;
}

}  // namespace

int64_t checked_add(int64_t a, int64_t b) {
  int64_t sum;
  CHECK(!__builtin_add_overflow(a, b, &sum), "size arithmetic overflows: " << a << " + " << b);
  return sum;
}

int64_t checked_multiply(int64_t a, int64_t b) {
  int64_t product;
  CHECK(!__builtin_mul_overflow(a, b, &product), "size arithmetic overflows: " << a << " * " << b);
  return product;
}

Context* context_of(Expr a) { return a.is_constant() ? nullptr : a.node()->context; }

Factors factors_of(const Node* monomial) {
  Factors out;
  if (monomial == nullptr) return out;
  if (monomial->op == Op::Mul)
    out.append(monomial->operands.begin(), monomial->operands.end());
  else
    out.push_back(Expr(monomial));
  return out;
}

int compare_monomials(const Node* a, const Node* b) {
  if (a == b) return 0;
  const auto degree = [](const Node* m) { return m->op == Op::Mul ? m->operands.size() : size_t{1}; };
  const size_t da = degree(a), db = degree(b);
  if (da != db) return da > db ? -1 : 1;
  if (da == 1) return compare_atoms(a, b);
  for (size_t i = 0; i < da; ++i)
    if (const int c = compare(a->operands[i], b->operands[i]); c != 0) return c;
  return 0;
}

int compare(Expr a, Expr b) {
  if (a == b) return 0;
  if (a.is_constant() || b.is_constant()) {
    if (!a.is_constant()) return -1;
    if (!b.is_constant()) return 1;
    return a.constant() < b.constant() ? -1 : 1;
  }
  if (const int c = compare_monomials(a.node()->monomial, b.node()->monomial); c != 0) return c;
  return a.node()->coefficient < b.node()->coefficient ? -1 : 1;
}

Expr make_term(int64_t coefficient, const Node* monomial) {
  if (monomial == nullptr || coefficient == 0) return coefficient;
  if (coefficient == 1) return Expr(monomial);
  Factors operands{Expr(coefficient)};
  const Factors factors = factors_of(monomial);
  operands.append(factors.begin(), factors.end());
  return Expr(monomial->context->intern(Op::Mul, {operands.data(), operands.size()}));
}

const Node* multiply_monomials(const Node* a, const Node* b) {
  if (a == nullptr) return b;
  if (b == nullptr) return a;
  Factors factors = factors_of(a);
  const Factors more = factors_of(b);
  factors.append(more.begin(), more.end());
  std::sort(factors.begin(), factors.end(), [](Expr x, Expr y) { return compare(x, y) < 0; });
  return a->context->intern(Op::Mul, {factors.data(), factors.size()});
}

bool divide_monomials(const Node* a, const Node* b, const Node*& quotient) {
  Factors left = factors_of(a);
  for (const Expr& factor : factors_of(b)) {
    const Expr* at = std::find(left.begin(), left.end(), factor);
    if (at == left.end()) return false;
    left.erase(static_cast<size_t>(at - left.begin()));
  }
  if (left.empty())
    quotient = nullptr;
  else
    quotient = left.size() == 1 ? left[0].node() : a->context->intern(Op::Mul, {left.data(), left.size()});
  return true;
}

void append_terms(Terms& terms, Expr e, int64_t factor) {
  if (e.is_constant()) {
    terms.push_back({checked_multiply(e.constant(), factor), nullptr});
  } else if (e.op() == Op::Add) {
    for (const Expr& operand : e.operands()) append_terms(terms, operand, factor);
  } else {
    terms.push_back({checked_multiply(e.node()->coefficient, factor), e.node()->monomial});
  }
}

void normalize(Terms& terms) {
  const auto before = [](const Term& a, const Term& b) {
    if (a.monomial == nullptr || b.monomial == nullptr) return a.monomial != nullptr && b.monomial == nullptr;
    return compare_monomials(a.monomial, b.monomial) < 0;
  };
  std::sort(terms.begin(), terms.end(), before);
  size_t kept = 0;
  for (size_t i = 0; i < terms.size();) {
    Term joined = terms[i++];
    while (i < terms.size() && terms[i].monomial == joined.monomial)
      joined.coefficient = checked_add(joined.coefficient, terms[i++].coefficient);
    if (joined.coefficient != 0) terms[kept++] = joined;
  }
  terms.resize(kept, Term{});
}

Expr sum_of(Context* context, Terms terms) {
  normalize(terms);
  if (has_remainder(terms))
    while (join_remainder(terms)) {
    }
  if (terms.empty()) return 0;
  if (terms.size() == 1) return make_term(terms[0].coefficient, terms[0].monomial);
  SmallVector<Expr, 8> operands;
  for (const Term& term : terms) operands.push_back(make_term(term.coefficient, term.monomial));
  return Expr(context->intern(Op::Add, {operands.data(), operands.size()}));
}

Range range_of(const Terms& terms) {
  Range r{0, 0};
  for (const Term& term : terms)
    r = add(r, term.monomial == nullptr ? Range{term.coefficient, term.coefficient}
                                        : scale(term.monomial->range, term.coefficient));
  return r;
}

int64_t take_constant(Terms& terms) {
  int64_t constant = 0;
  for (size_t i = terms.size(); i-- > 0;)
    if (terms[i].monomial == nullptr) {
      constant = checked_add(constant, terms[i].coefficient);
      terms.erase(i);
    }
  return constant;
}

namespace detail {

Expr add(Expr a, Expr b, int64_t scale_of_b) {
  if (b == Expr(0)) return a;
  Terms terms;
  append_terms(terms, a);
  append_terms(terms, b, scale_of_b);
  return sum_of(context_of(a, b), terms);
}

Expr multiply(Expr a, Expr b) {
  if (b.is_constant()) std::swap(a, b);
  if (a == Expr(0)) return 0;
  if (a == Expr(1)) return b;
  Terms left, right, product;
  append_terms(left, a);
  append_terms(right, b);
  if (left.size() > 1 && right.size() > 1 && left.size() * right.size() > kMaxExpandedTerms)
    return Expr(multiply_monomials(a.node(), b.node()));
  for (const Term& x : left)
    for (const Term& y : right)
      product.push_back({checked_multiply(x.coefficient, y.coefficient), multiply_monomials(x.monomial, y.monomial)});
  return sum_of(context_of(a, b), product);
}

}  // namespace detail

Expr product(std::span<const Expr> factors) {
  Expr out = 1;
  for (const Expr& factor : factors) out = out * factor;
  return out;
}

std::optional<Expr> divide_exactly(Expr a, Expr b) {
  if (a == Expr(0)) return Expr(0);
  if (a == b) return Expr(1);
  Terms rest, divisor, quotient;
  append_terms(rest, a);
  append_terms(divisor, b);
  // Long division by leading terms; the canonical order is a monomial order.
  for (int steps = 0; !rest.empty(); ++steps) {
    if (steps > 32) return std::nullopt;
    const Term lead = rest[0];
    const Node* monomial = nullptr;
    if (lead.coefficient % divisor[0].coefficient != 0 ||
        !divide_monomials(lead.monomial, divisor[0].monomial, monomial))
      return std::nullopt;
    const Term part{lead.coefficient / divisor[0].coefficient, monomial};
    quotient.push_back(part);
    for (const Term& term : divisor)
      rest.push_back(
          {-checked_multiply(term.coefficient, part.coefficient), multiply_monomials(term.monomial, part.monomial)});
    normalize(rest);
  }
  return sum_of(context_of(a, b), quotient);
}

bool known_nonnegative(Expr a) {
  if (a.range().low >= 0) return true;
  if (a.is_constant() || a.op() != Op::Add) return false;
  // Index symbols with negative coefficients stay below their extents: take the least value.
  Expr least = 0;
  for (const Expr& operand : a.operands()) {
    const bool negative_index = !operand.is_constant() && operand.node()->coefficient < 0;
    if (!negative_index) {
      least += operand;
      continue;
    }
    const std::optional<Expr> bound = upper_bound(Expr(operand.node()->monomial));
    least += bound ? *bound * Expr(operand.node()->coefficient) : operand;
  }
  return least.range().low >= 0;
}

std::optional<Expr> upper_bound(Expr a) {
  if (a.is_constant()) return a;
  Expr bound = 0;
  Terms terms;
  append_terms(terms, a);
  for (const Term& term : terms) {
    Expr high(term.coefficient);
    for (const Expr& factor : factors_of(term.monomial)) {
      if (factor.range().low < 0 || term.coefficient < 0) return std::nullopt;
      if (factor.is_symbol() && factor.node()->extent != Expr(0))
        high = high * (factor.node()->extent - 1);
      else if (factor.op() == Op::Mod && factor.operands()[1].range().low >= 1 && !factor.operands()[1].is_constant())
        high = high * (factor.operands()[1] - 1);
      else
        high = high * (factor.range().high != kInf ? Expr(factor.range().high) : factor);
    }
    bound += high;
  }
  return bound;
}

}  // namespace braze::sym
