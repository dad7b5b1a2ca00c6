// Interval arithmetic on Range. Results that leave int64 become unbounded.
#pragma once

#include "braze/sym/expr.h"

namespace braze::sym {

int64_t floor_div_int(int64_t a, int64_t b);   // as Python's //; b != 0
int64_t mod_int(int64_t a, int64_t b);         // as Python's %; b != 0

Range add(Range a, Range b);
Range scale(Range a, int64_t factor);
Range multiply(Range a, Range b);
Range floor_div(Range a, Range b);
Range mod(Range a, Range b);
Range min(Range a, Range b);
Range max(Range a, Range b);
Range intersect(Range a, Range b);
inline bool contains(Range r, int64_t v) { return r.low <= v && v <= r.high; }
inline bool is_bounded(Range r) { return r.low != -kInf && r.high != kInf; }

}  // namespace braze::sym
