#include "braze/sym/range.h"

#include <algorithm>
#include <initializer_list>

namespace braze::sym {
namespace {

bool is_infinite(int64_t v) { return v == kInf || v <= -kInf; }

int64_t add_bound(int64_t a, int64_t b) {
  if (is_infinite(a)) return a;
  if (is_infinite(b)) return b;
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return a > 0 ? kInf : -kInf;
  return sum;
}

int64_t multiply_bound(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  int64_t product;
  if (is_infinite(a) || is_infinite(b) || __builtin_mul_overflow(a, b, &product))
    return (a > 0) == (b > 0) ? kInf : -kInf;
  return product;
}

// b > 0.
int64_t floor_div_bound(int64_t a, int64_t b) {
  if (b == kInf) return a >= 0 ? 0 : -1;
  if (is_infinite(a)) return a;
  return floor_div_int(a, b);
}

Range hull(std::initializer_list<int64_t> corners) { return {std::min(corners), std::max(corners)}; }

}  // namespace

int64_t floor_div_int(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

int64_t mod_int(int64_t a, int64_t b) {
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

Range add(Range a, Range b) { return {add_bound(a.low, b.low), add_bound(a.high, b.high)}; }

Range scale(Range a, int64_t factor) {
  const int64_t x = multiply_bound(a.low, factor), y = multiply_bound(a.high, factor);
  return {std::min(x, y), std::max(x, y)};
}

Range multiply(Range a, Range b) {
  return hull({multiply_bound(a.low, b.low), multiply_bound(a.low, b.high), multiply_bound(a.high, b.low),
               multiply_bound(a.high, b.high)});
}

Range floor_div(Range a, Range b) {
  if (b.high < 0) return floor_div(scale(a, -1), scale(b, -1));
  if (b.low <= 0) return {};
  return hull({floor_div_bound(a.low, b.low), floor_div_bound(a.low, b.high), floor_div_bound(a.high, b.low),
               floor_div_bound(a.high, b.high)});
}

Range mod(Range a, Range b) {
  if (b.low >= 1) {
    const int64_t below = b.high == kInf ? kInf : b.high - 1;
    return {0, a.low >= 0 ? std::min(a.high, below) : below};
  }
  if (b.high <= -1) return {b.low == -kInf ? -kInf : b.low + 1, 0};
  return {};
}

Range min(Range a, Range b) { return {std::min(a.low, b.low), std::min(a.high, b.high)}; }
Range max(Range a, Range b) { return {std::max(a.low, b.low), std::max(a.high, b.high)}; }
Range intersect(Range a, Range b) { return {std::max(a.low, b.low), std::min(a.high, b.high)}; }

}  // namespace braze::sym
