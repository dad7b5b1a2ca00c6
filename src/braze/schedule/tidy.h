// Tidy: what writing bodies into each other leaves behind.
#pragma once

#include "braze/schedule/work.h"

namespace braze::schedule {

//  - A binding whose value is an index expression that surely stays below its extent becomes that expression.
//  - Where(m, v, w): in v, a load that is masked by m, but is in bounds anyway, loses its mask. Values that are the same
//    for a whole row can then be computed once a row.
//  - Comparisons of index expressions that are always true, or always false, become constants.
const Scalar* tidy(Work& work, const Scalar* body);
// The last of these alone, in a body whose loads have addresses.
const Scalar* decide_comparisons(Work& work, const Scalar* body);
// The comparison as an expression, if both sides are index expressions.
std::optional<Expr> index_predicate(const Scalar& s);

}  // namespace braze::schedule
