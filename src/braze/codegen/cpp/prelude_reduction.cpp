// From the lanes of a vector to one value, and running values along the lanes.
#include "braze/codegen/cpp/prelude.h"

namespace braze::codegen {

namespace {

constexpr Snippet kSnippets[] = {
    // Pairwise: halves are added until one lane is left.
    {"hsum_f", k512 | kLanes16, R"(F float hsum_f(VF v) {
  typedef float W __attribute__((vector_size(32))); typedef float X __attribute__((vector_size(16)));
  W w = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) + __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  X x = __builtin_shufflevector(w, w, 0, 1, 2, 3) + __builtin_shufflevector(w, w, 4, 5, 6, 7);
  return (x[0] + x[2]) + (x[1] + x[3]);
}
)"},
    {"hmax_f", k512 | kLanes16, R"(F float hmax_f(VF v) {
  VF a = max_f(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));
  a = max_f(a, __builtin_shufflevector(a, a, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7));
  a = max_f(a, __builtin_shufflevector(a, a, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3));
  a = max_f(a, __builtin_shufflevector(a, a, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
  return a[0];
}
)"},
    {"fold_sum", kAlways, R"(template <class T, class V> F T fold_sum(V v) { T t[@L]; stu(t, v); for (int h = @L / 2; h > 0; h /= 2) for (int i = 0; i < h; i++) t[i] += t[i + h]; return t[0]; }
)"},
    {"fold_prod", kAlways, R"(template <class T, class V> F T fold_prod(V v) { T t[@L]; stu(t, v); for (int h = @L / 2; h > 0; h /= 2) for (int i = 0; i < h; i++) t[i] *= t[i + h]; return t[0]; }
)"},
    {"fold_xor", kAlways, R"(template <class T, class V> F T fold_xor(V v) { T t[@L]; stu(t, v); for (int i = 1; i < @L; i++) t[0] ^= t[i]; return t[0]; }
)"},
    {"fold_max", kAlways, R"(template <class T, class V> F T fold_max(V v) { T t[@L]; stu(t, v); T r = t[0]; for (int i = 1; i < @L; i++) r = r != r ? r : t[i] <= r ? r : t[i]; return r; }
)"},
    {"fold_min", kAlways, R"(template <class T, class V> F T fold_min(V v) { T t[@L]; stu(t, v); T r = t[0]; for (int i = 1; i < @L; i++) r = r != r ? r : t[i] >= r ? r : t[i]; return r; }
)"},
#define FOLDS(suffix, vector, type)                                                                                    \
  {"hsum_" suffix, kAlways, "F " type " hsum_" suffix "(" vector " v) { return fold_sum<" type ">(v); }\n"},           \
  {"hprod_" suffix, kAlways, "F " type " hprod_" suffix "(" vector " v) { return fold_prod<" type ">(v); }\n"},        \
  {"hmax_" suffix, kAlways, "F " type " hmax_" suffix "(" vector " v) { return fold_max<" type ">(v); }\n"},           \
  {"hmin_" suffix, kAlways, "F " type " hmin_" suffix "(" vector " v) { return fold_min<" type ">(v); }\n"}
    FOLDS("f", "VF", "float"),
    FOLDS("d", "VD", "double"),
    FOLDS("i", "VI", "int"),
    FOLDS("u", "VU", "unsigned"),
    FOLDS("l", "VL", "long"),
    FOLDS("k", "VK", "unsigned long"),
#undef FOLDS
    {"hxor_i", kAlways, "F int hxor_i(VI v) { return fold_xor<int>(v); }\n"},
    {"hxor_u", kAlways, "F unsigned hxor_u(VU v) { return fold_xor<unsigned>(v); }\n"},
    {"hxor_l", kAlways, "F long hxor_l(VL v) { return fold_xor<long>(v); }\n"},
    {"hxor_k", kAlways, "F unsigned long hxor_k(VK v) { return fold_xor<unsigned long>(v); }\n"},
    {"hxor_m", kAlways, "F int hxor_m(VI v) { return fold_xor<int>(v); }\n"},
    {"hany_m", kAlways, "F int hany_m(VI v) { return -any(v); }\n"},
    {"hall_m", kAlways, "F int hall_m(VI v) { return any(~v) - 1; }\n"},

    // First index of the extreme: a lane that saw nothing has index 0x7fff...; NaN is the extreme. sign: 1 max, -1 min.
    {"hfirst", kAlways, R"(template <int sign, class V, class T> SLOW long hfirst(V v, VL at) {
  T t[@L]; long k[@L]; stu(t, v); stu(k, at); T best = t[0]; long r = k[0];
  for (int i = 1; i < @L; i++) {
    if (k[i] == 0x7fffffffffffffffl) continue;
    bool nan = t[i] != t[i], was = best != best, more = sign > 0 ? t[i] > best : t[i] < best, same = t[i] == best || (nan && was);
    if (r == 0x7fffffffffffffffl || (nan && !was) || (!was && more) || (same && k[i] < r)) { best = t[i]; r = k[i]; }
  }
  return r;
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
};

}  // namespace

std::span<const Snippet> reduction_snippets() { return kSnippets; }

}  // namespace braze::codegen
