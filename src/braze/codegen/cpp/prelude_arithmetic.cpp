// Broadcasts, selection, rounding, integer and other small operations in register form.
#include "braze/codegen/cpp/prelude.h"

namespace braze::codegen {

namespace {

constexpr Snippet kSnippets[] = {
    // x - 0 keeps -0.
    {"set_f", kAlways, "F VF set_f(float x) { return x - VF{}; }\n"},
    {"set_d", kAlways, "F VD set_d(double x) { return x - VD{}; }\n"},
    {"set_i", kAlways, "F VI set_i(int x) { return x + VI{}; }\n"},
    {"set_u", kAlways, "F VU set_u(unsigned x) { return x + VU{}; }\n"},
    {"set_l", kAlways, "F VL set_l(long x) { return x + VL{}; }\n"},
    {"set_k", kAlways, "F VK set_k(unsigned long x) { return x + VK{}; }\n"},
    {"sel_f", kAlways, "F VF sel_f(VI m, VF a, VF b) { return m != 0 ? a : b; }\n"},
    {"sel_i", kAlways, "F VI sel_i(VI m, VI a, VI b) { return m != 0 ? a : b; }\n"},
    {"sel_m", kAlways, "F VI sel_m(VI m, VI a, VI b) { return (m & a) | (~m & b); }\n"},
    {"sel_u", kAlways, "F VU sel_u(VI m, VU a, VU b) { return m != 0 ? a : b; }\n"},
    {"sel_d", kAlways, "F VD sel_d(VI m, VD a, VD b) { return __builtin_convertvector(m, VL) != 0 ? a : b; }\n"},
    {"sel_l", kAlways, "F VL sel_l(VI m, VL a, VL b) { return __builtin_convertvector(m, VL) != 0 ? a : b; }\n"},
    {"sel_k", kAlways, "F VK sel_k(VI m, VK a, VK b) { return __builtin_convertvector(m, VL) != 0 ? a : b; }\n"},
    {"mask_d", kAlways, "F VI mask_d(VL m) { return __builtin_convertvector(m, VI); }\n"},

    // One rounding where the machine has it; polynomials alone use them.
    {"fma_f", kFma, R"(#ifdef __clang__
F VF fma_f(VF a, VF b, VF c) { return __builtin_elementwise_fma(a, b, c); }
#elif @L == 16
F VF fma_f(VF a, VF b, VF c) { return __builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)-1, 4); }
#elif @L == 8
F VF fma_f(VF a, VF b, VF c) { return __builtin_ia32_vfmaddps256(a, b, c); }
#else
F VF fma_f(VF a, VF b, VF c) { VF r; for (int i = 0; i < @L; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]); return r; }
#endif
)"},
    {"fma_d", kFma, R"(#ifdef __clang__
F VD fma_d(VD a, VD b, VD c) { return __builtin_elementwise_fma(a, b, c); }
#else
F VD fma_d(VD a, VD b, VD c) { VD r; for (int i = 0; i < @L; i++) r[i] = __builtin_fma(a[i], b[i], c[i]); return r; }
#endif
)"},
    {"fma_f", kNoFma, "F VF fma_f(VF a, VF b, VF c) { return a * b + c; }\n"},
    {"fma_d", kNoFma, "F VD fma_d(VD a, VD b, VD c) { return a * b + c; }\n"},
    // ScalarOp::Fma: rounded once on every machine.
    {"fma1_f", kAlways, R"(#ifdef __clang__
F VF fma1_f(VF a, VF b, VF c) { return __builtin_elementwise_fma(a, b, c); }
#else
F VF fma1_f(VF a, VF b, VF c) { VF r; for (int i = 0; i < @L; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]); return r; }
#endif
)"},
    {"fma1_d", kAlways, R"(#ifdef __clang__
F VD fma1_d(VD a, VD b, VD c) { return __builtin_elementwise_fma(a, b, c); }
#else
F VD fma1_d(VD a, VD b, VD c) { VD r; for (int i = 0; i < @L; i++) r[i] = __builtin_fma(a[i], b[i], c[i]); return r; }
#endif
)"},
#define ELEMENTWISE(name, clang_name, c_name)                                                                       \
  {#name "_f", kAlways, "#ifdef __clang__\nF VF " #name "_f(VF a) { return __builtin_elementwise_" #clang_name      \
   "(a); }\n#else\nF VF " #name "_f(VF a) { VF r; for (int i = 0; i < @L; i++) r[i] = __builtin_" #c_name           \
   "f(a[i]); return r; }\n#endif\n"},                                                                               \
  {#name "_d", kAlways, "#ifdef __clang__\nF VD " #name "_d(VD a) { return __builtin_elementwise_" #clang_name      \
   "(a); }\n#else\nF VD " #name "_d(VD a) { VD r; for (int i = 0; i < @L; i++) r[i] = __builtin_" #c_name           \
   "(a[i]); return r; }\n#endif\n"}
    ELEMENTWISE(floor, floor, floor),
    ELEMENTWISE(ceil, ceil, ceil),
    ELEMENTWISE(trunc, trunc, trunc),
    ELEMENTWISE(round, roundeven, rint),
    ELEMENTWISE(sqrt, sqrt, sqrt),
#undef ELEMENTWISE

    {"neg_f", kAlways, "F VF neg_f(VF x) { return (VF)((VU)x ^ 0x80000000u); }\n"},
    {"neg_d", kAlways, "F VD neg_d(VD x) { return (VD)((VK)x ^ 0x8000000000000000ul); }\n"},
    {"abs_f", kAlways, "F VF abs_f(VF x) { return (VF)((VU)x & 0x7fffffffu); }\n"},
    {"abs_d", kAlways, "F VD abs_d(VD x) { return (VD)((VK)x & 0x7ffffffffffffffful); }\n"},
    {"abs_i", kAlways, "F VI abs_i(VI x) { return x < 0 ? -x : x; }\n"},
    {"abs_l", kAlways, "F VL abs_l(VL x) { return x < 0 ? -x : x; }\n"},
    {"copysign_f", kAlways, "F VF copysign_f(VF x, VF y) { return (VF)(((VU)x & 0x7fffffffu) | ((VU)y & 0x80000000u)); }\n"},
    {"copysign_d", kAlways, "F VD copysign_d(VD x, VD y) { return (VD)(((VK)x & 0x7ffffffffffffffful) | ((VK)y & 0x8000000000000000ul)); }\n"},
    {"sign_f", kAlways, "F VF sign_f(VF x) { return (VF)((x > 0.f) & 0x3f800000) - (VF)((x < 0.f) & 0x3f800000); }\n"},
    {"sign_d", kAlways, "F VD sign_d(VD x) { return (VD)((x > 0.) & 0x3ff0000000000000l) - (VD)((x < 0.) & 0x3ff0000000000000l); }\n"},
    {"sign_i", kAlways, "F VI sign_i(VI x) { return (x < 0) - (x > 0); }\n"},
    {"sign_l", kAlways, "F VL sign_l(VL x) { return (x < 0) - (x > 0); }\n"},

    // max and min keep NaN of either side; fmax and fmin take the other number.
    {"max_f", kAlways, "F VF max_f(VF a, VF b) { VF k = a > b ? a : b; return a != a ? a : k; }\n"},
    {"min_f", kAlways, "F VF min_f(VF a, VF b) { VF k = a < b ? a : b; return a != a ? a : k; }\n"},
    {"max_d", kAlways, "F VD max_d(VD a, VD b) { VD k = a > b ? a : b; return a != a ? a : k; }\n"},
    {"min_d", kAlways, "F VD min_d(VD a, VD b) { VD k = a < b ? a : b; return a != a ? a : k; }\n"},
    {"max_i", kAlways, "F VI max_i(VI a, VI b) { return a > b ? a : b; }\n"},
    {"min_i", kAlways, "F VI min_i(VI a, VI b) { return a < b ? a : b; }\n"},
    {"max_u", kAlways, "F VU max_u(VU a, VU b) { return a > b ? a : b; }\n"},
    {"min_u", kAlways, "F VU min_u(VU a, VU b) { return a < b ? a : b; }\n"},
    {"max_l", kAlways, "F VL max_l(VL a, VL b) { return a > b ? a : b; }\n"},
    {"min_l", kAlways, "F VL min_l(VL a, VL b) { return a < b ? a : b; }\n"},
    {"max_k", kAlways, "F VK max_k(VK a, VK b) { return a > b ? a : b; }\n"},
    {"min_k", kAlways, "F VK min_k(VK a, VK b) { return a < b ? a : b; }\n"},
    {"fmax_f", kAlways, "F VF fmax_f(VF a, VF b) { VF k = a > b ? a : b; return b != b ? a : k; }\n"},
    {"fmin_f", kAlways, "F VF fmin_f(VF a, VF b) { VF k = a < b ? a : b; return b != b ? a : k; }\n"},
    {"fmax_d", kAlways, "F VD fmax_d(VD a, VD b) { VD k = a > b ? a : b; return b != b ? a : k; }\n"},
    {"fmin_d", kAlways, "F VD fmin_d(VD a, VD b) { VD k = a < b ? a : b; return b != b ? a : k; }\n"},

    // To bf16 and back, half to even; NaN stays NaN (0xffff as PyTorch's vectors give it, as a float).
    // rnn: of a number, or of a NaN whose lower half is 0, which arithmetic on bf16 gives: adding carries nothing over.
    {"rnn_bf16", k512, R"(F VF rnn_bf16(VF x) { VU u = (VU)x; return (VF)(((u & 0x10000u) != 0 ? u + 0x8000u : u + 0x7fffu) & 0xffff0000u); }
)"},
    {"rnn_bf16", kNot512, R"(F VF rnn_bf16(VF x) { VU u = (VU)x; return (VF)((u + (0x7fff + ((u >> 16) & 1))) & 0xffff0000u); }
)"},
    {"rnd_bf16", kAlways, R"(F VF rnd_bf16(VF x) { VU u = (VU)rnn_bf16(x); return (VF)(x == x ? u : VU{} + 0xffff0000u); }
)"},
    {"rnd_f16", kAlways, "F VF rnd_f16(VF x) { return __builtin_convertvector(__builtin_convertvector(x, HF), VF); }\n"},
    {"wrap_i8", kAlways, "F VI wrap_i8(VI x) { return (VI)((VU)x << 24) >> 24; }\n"},
    {"wrap_i16", kAlways, "F VI wrap_i16(VI x) { return (VI)((VU)x << 16) >> 16; }\n"},

    // Shifts as PyTorch's: a count outside of [0, width) gives 0, or the sign for a right shift. `w`: width.
    {"shl_i", kAlways, "F VI shl_i(VI a, VI b, int w) { VI ok = (b >= 0) & (b < w); return ok & (VI)((VU)a << (VU)(b & 31)); }\n"},
    {"shr_i", kAlways, "F VI shr_i(VI a, VI b, int w) { VI ok = (b >= 0) & (b < w); VI c = ok != 0 ? b : VI{} + (w - 1); return a >> (c & 31); }\n"},
    {"shl_u", kAlways, "F VU shl_u(VU a, VU b, int w) { return b < (unsigned)w ? a << (b & 31) : VU{}; }\n"},
    {"shr_u", kAlways, "F VU shr_u(VU a, VU b, int w) { return b < (unsigned)w ? a >> (b & 31) : VU{}; }\n"},
    {"shl_l", kAlways, "F VL shl_l(VL a, VL b, int w) { VL ok = (b >= 0) & (b < (long)w); return ok & (VL)((VK)a << (VK)(b & 63)); }\n"},
    {"shr_l", kAlways, "F VL shr_l(VL a, VL b, int w) { VL ok = (b >= 0) & (b < (long)w); VL c = ok != 0 ? b : VL{} + (long)(w - 1); return a >> (c & 63); }\n"},
    {"shl_k", kAlways, "F VK shl_k(VK a, VK b, int w) { return b < (unsigned long)w ? a << (b & 63) : VK{}; }\n"},
    {"shr_k", kAlways, "F VK shr_k(VK a, VK b, int w) { return b < (unsigned long)w ? a >> (b & 63) : VK{}; }\n"},

    // Integer division, lane by lane. A zero divisor in a live lane sets *error; the lane's result is then 0.
    {"divide_lanes", kAlways, R"(template <int kind, class T> F T divide_one(T a, T b) { // 0 floor, 1 trunc, 2 remainder, 3 fmod
  if (b == (T)-1 && (T)-1 < 0) return kind < 2 ? (T)(0 - (unsigned long)a) : 0;
  T q = a / b, r = a % b; bool down = r != 0 && ((r < 0) != (b < 0));
  return kind == 0 ? (T)(q - down) : kind == 1 ? q : kind == 2 ? (down ? (T)(r + b) : r) : r;
}
template <int kind, class V, class T> SLOW V divide_lanes(V a, V b, VI m, long* error) {
  T x[@L], y[@L]; int k[@L]; stu(x, a); stu(y, b); stu(k, m);
  for (int i = 0; i < @L; i++) { if (y[i] == 0) { if (k[i]) *error = 2; x[i] = 0; } else x[i] = divide_one<kind, T>(x[i], y[i]); }
  return ldu<V>(x);
}
)"},
#define DIVISION(suffix, vector, type)                                                                                   \
  {"floor_div_" suffix, kAlways, "F " vector " floor_div_" suffix "(" vector " a, " vector " b, VI m, long* error) { return divide_lanes<0, " vector ", " type ">(a, b, m, error); }\n"}, \
  {"trunc_div_" suffix, kAlways, "F " vector " trunc_div_" suffix "(" vector " a, " vector " b, VI m, long* error) { return divide_lanes<1, " vector ", " type ">(a, b, m, error); }\n"}, \
  {"remainder_" suffix, kAlways, "F " vector " remainder_" suffix "(" vector " a, " vector " b, VI m, long* error) { return divide_lanes<2, " vector ", " type ">(a, b, m, error); }\n"}, \
  {"fmod_" suffix, kAlways, "F " vector " fmod_" suffix "(" vector " a, " vector " b, VI m, long* error) { return divide_lanes<3, " vector ", " type ">(a, b, m, error); }\n"}
    DIVISION("i", "VI", "int"),
    DIVISION("u", "VU", "unsigned"),
    DIVISION("l", "VL", "long"),
    DIVISION("k", "VK", "unsigned long"),
#undef DIVISION
    // Integer powers by squaring; a negative exponent gives 1 / base truncated, as PyTorch.
    {"pow_lanes", kAlways, R"(template <class V, class T> SLOW V pow_lanes(V a, V b) {
  T x[@L], y[@L]; stu(x, a); stu(y, b);
  for (int i = 0; i < @L; i++) {
    unsigned long base = (unsigned long)x[i], r = 1; T n = y[i];
    if (n < 0) r = x[i] == 1 ? 1 : x[i] == (T)-1 ? (n & 1 ? (unsigned long)-1 : 1) : 0;
    else for (; n; n >>= 1, base *= base) if (n & 1) r *= base;
    x[i] = (T)r;
  }
  return ldu<V>(x);
}
)"},
    {"pow_i", kAlways, "F VI pow_i(VI a, VI b) { return pow_lanes<VI, int>(a, b); }\n"},
    {"pow_u", kAlways, "F VU pow_u(VU a, VU b) { return pow_lanes<VU, unsigned>(a, b); }\n"},
    {"pow_l", kAlways, "F VL pow_l(VL a, VL b) { return pow_lanes<VL, long>(a, b); }\n"},
    {"pow_k", kAlways, "F VK pow_k(VK a, VK b) { return pow_lanes<VK, unsigned long>(a, b); }\n"},

    // Index expressions: Python's division for one number and for vectors (the divisor is positive in every expression
    // that the front part builds, but any non-zero one is right).
    {"index_div", kAlways, "F long index_div(long a, long b) { long q = a / b; return a % b != 0 && ((a % b < 0) != (b < 0)) ? q - 1 : q; }\n"},
    {"index_mod", kAlways, "F long index_mod(long a, long b) { long r = a % b; return r != 0 && ((r < 0) != (b < 0)) ? r + b : r; }\n"},
    {"index_min", kAlways, "F long index_min(long a, long b) { return a < b ? a : b; }\n"},
    {"index_max", kAlways, "F long index_max(long a, long b) { return a > b ? a : b; }\n"},
    {"vindex_div", kAlways, R"(F VL vindex_div(VL a, long b) { VL r; for (int i = 0; i < @L; i++) r[i] = index_div(a[i], b); return r; }
)"},
    {"vindex_mod", kAlways, "F VL vindex_mod(VL a, long b) { return a - vindex_div(a, b) * b; }\n"},
    {"vindex_div2", kAlways, "SLOW VL vindex_div2(VL a, VL b) { VL r; for (int i = 0; i < @L; i++) r[i] = index_div(a[i], b[i]); return r; }\n"},
};

}  // namespace

std::span<const Snippet> arithmetic_snippets() { return kSnippets; }

}  // namespace braze::codegen
