// From the lanes of a vector to one value, and running values along the lanes.
#include "braze/codegen/cpp/prelude.h"

namespace braze::codegen {

namespace {

constexpr Snippet kSnippets[] = {
    // Halves are combined until one lane is left.
    {"fold", kAlways, R"(template <class V, class Op> F auto fold(V v, Op op) { @fold }
)"},
#define OP(text) "[](auto a, auto b) __attribute__((always_inline)) { " text " }"
#define FOLDS(suffix, vector, type)                                                                                    \
  {"hsum_" suffix, kAlways, "F " type " hsum_" suffix "(" vector " v) { return fold(v, " OP("return a + b;") "); }\n"},  \
  {"hprod_" suffix, kAlways, "F " type " hprod_" suffix "(" vector " v) { return fold(v, " OP("return a * b;") "); }\n"}, \
  {"hmax_" suffix, kAlways, "F " type " hmax_" suffix "(" vector " v) { return fold(v, "                               \
   OP("auto k = a > b ? a : b; return a != a ? a : k;") "); }\n"},                                                     \
  {"hmin_" suffix, kAlways, "F " type " hmin_" suffix "(" vector " v) { return fold(v, "                               \
   OP("auto k = a < b ? a : b; return a != a ? a : k;") "); }\n"}
    FOLDS("f", "VF", "float"),
    FOLDS("d", "VD", "double"),
    FOLDS("i", "VI", "int"),
    FOLDS("u", "VU", "unsigned"),
    FOLDS("l", "VL", "long"),
    FOLDS("k", "VK", "unsigned long"),
#undef FOLDS
    {"hxor_i", kAlways, "F int hxor_i(VI v) { return fold(v, " OP("return a ^ b;") "); }\n"},
    {"hxor_u", kAlways, "F unsigned hxor_u(VU v) { return fold(v, " OP("return a ^ b;") "); }\n"},
    {"hxor_l", kAlways, "F long hxor_l(VL v) { return fold(v, " OP("return a ^ b;") "); }\n"},
    {"hxor_k", kAlways, "F unsigned long hxor_k(VK v) { return fold(v, " OP("return a ^ b;") "); }\n"},
    {"hxor_m", kAlways, "F int hxor_m(VI v) { return fold(v, " OP("return a ^ b;") "); }\n"},
#undef OP
    {"hany_m", kAlways, "F int hany_m(VI v) { return -any(v); }\n"},
    {"hall_m", kAlways, "F int hall_m(VI v) { return any(~v) - 1; }\n"},

    // First index of the extreme; NaN is the extreme. sign: 1 max, -1 min.
    {"hfirst", kAlways, R"(template <int sign, class V, class T> F long hfirst(V v, VL at) {
  const T best = fold(v, [](auto a, auto b) __attribute__((always_inline)) { auto k = sign > 0 ? (a > b ? a : b) : (a < b ? a : b); return a != a ? a : k; });
  const V all = V{} + best;
  const auto hit = (v == all) | ((v != v) & (all != all));
  return hmin_l(__builtin_convertvector(hit, VL) != 0 ? at : VL{} + 0x7fffffffffffffffl);
}
)"},
    // The same lane by lane: (v, at) becomes (x, i) where that comes first.
    {"merge_first", kAlways, R"(template <int sign, class V, class T> F void merge_first(V& v, VL& at, V x, VL i) {
  auto take = (sign > 0 ? x > v : x < v) | ((x != x) & (v == v)), same = (x == v) | ((x != x) & (v != v));
  take |= same & __builtin_convertvector(i < at, decltype(same));
  v = take != 0 ? x : v;
  at = __builtin_convertvector(take, VL) != 0 ? i : at;
}
)"},

    // Running op along the lanes, in log2(@L) steps: lane i meets lane i - k, the first k lanes meet `fill`. The opaque copy keeps the shuffle from becoming an expand
    // load, which is slow.
    {"prefix", kAlways, R"(template <class V, class Op> F V prefix(V x, V fill, Op op) {
  if constexpr (sizeof(V) <= @W) asm("" : "+v"(fill));
  @shifts
  return x;
}
)"},
    // The same one lane after the other, from `carry` on.
    {"in_order", kAlways, R"(template <class V, class Op> F V in_order(V x, V carry, Op op) {
  auto running = carry[0];
  @steps
  return x;
}
)"},
};

}  // namespace

std::span<const Snippet> reduction_snippets() { return kSnippets; }

}  // namespace braze::codegen
