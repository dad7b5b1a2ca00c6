// Sums as lists of terms: the simplifier's working form. Used inside sym only.
#pragma once

#include <utility>

#include "braze/support/small_vector.h"
#include "braze/sym/expr.h"

namespace braze::sym {

// coefficient * monomial; a null monomial stands for 1.
struct Term {
  int64_t coefficient;
  const Node* monomial;
};
using Terms = SmallVector<Term, 8>;

int64_t checked_add(int64_t a, int64_t b);        // InternalError when the result leaves int64
int64_t checked_multiply(int64_t a, int64_t b);

// Canonical order: graded lexicographic on monomials (falling degree), by structure; < 0: a comes first.
int compare(Expr a, Expr b);
int compare_monomials(const Node* a, const Node* b);

Context* context_of(Expr a);
inline Context* context_of(Expr a, Expr b) { return a.is_constant() ? context_of(b) : context_of(a); }

Expr make_term(int64_t coefficient, const Node* monomial);
const Node* multiply_monomials(const Node* a, const Node* b);
// The quotient if a's factors contain b's (nullptr monomial: 1).
bool divide_monomials(const Node* a, const Node* b, const Node*& quotient);
using Factors = SmallVector<Expr, 4>;
Factors factors_of(const Node* monomial);                // no constant among them; empty for nullptr

// Appends scale * e to the list, sums flattened.
void append_terms(Terms& terms, Expr e, int64_t scale = 1);
// Sorts, joins like terms, drops zeros.
void normalize(Terms& terms);
// The Expr of a sum: normalizes, joins quotients with their remainders, interns.
Expr sum_of(Context* context, Terms terms);
Range range_of(const Terms& terms);
// The constant term, removed from the list.
int64_t take_constant(Terms& terms);

// The quotient if b divides a without remainder as polynomials.
std::optional<Expr> divide_exactly(Expr a, Expr b);
// An expression that a never exceeds, index symbols replaced by extent - 1; nullopt if a sign is not known.
std::optional<Expr> upper_bound(Expr a);
bool known_nonnegative(Expr a);

}  // namespace braze::sym
