// Elementary functions of f32. exp, log, log1p, tanh, erf, sin and cos are polynomials in f32 of at most 1.5 ulp; the others are
// computed in double and rounded once. NaN, infinities, signed zeros and large arguments come out as libm's.
#include "braze/codegen/cpp/prelude.h"

namespace braze::codegen {

namespace {

#define THROUGH_DOUBLE(name, body)                                                                       \
  {name, kAlways, "F VF " name "(VF f) { VD x = __builtin_convertvector(f, VD); return __builtin_convertvector(" body \
                  ", VF); }\n"}

constexpr Snippet kSnippets[] = {
    {"scale_f", k512 | kLanes16, "F VF scale_f(VF y, VF n) { return __builtin_ia32_scalefps512_mask(y, n, y, (unsigned short)-1, 4); }\n"},
    // y 2^n for |n| <= 252, in two steps.
    {"scale_f", kAlways, "F VF scale_f(VF y, VF n) { VI k = __builtin_convertvector(n, VI), h = k >> 1; return y * (VF)((h + 127) << 23) * (VF)((k - h + 127) << 23); }\n"},
    // e^x = 2^n e^r; 1.0 ulp. The clamp gives infinity by itself. What is 0 is chosen so: to scale down to nothing takes
    // Intel's processors fifty times as long, and masked scores are many.
    {"exp_f", kAlways, R"(F VF exp_f(VF z) {
  VF x = z < -104.f ? set_f(0.f) : z; x = x > 89.f ? set_f(89.f) : x;
  VF n = round_f(x * 1.44269504f), r = fma_f(n, set_f(-0.693145752f), x); r = fma_f(n, set_f(-1.42860677e-6f), r);
  VF q = fma_f(set_f(1.98754954e-4f), r, set_f(1.39820070e-3f)); q = fma_f(q, r, set_f(8.33338592e-3f)); q = fma_f(q, r, set_f(4.16657962e-2f));
  q = fma_f(q, r, set_f(1.66666672e-1f)); q = fma_f(q, r, set_f(0.5f));
  VF y = scale_f(fma_f(r * r, q, r) + 1.f, n);
  return z < -104.f ? set_f(0.f) : y;
}
)"},
    {"sigmoid_f", kAlways, "F VF sigmoid_f(VF x) { return 1.f / (1.f + exp_f(neg_f(x))); }\n"},
    // erf (after N. Juffa): two polynomials, about 1 ulp.
    {"erf_f", kAlways, R"(F VF erf_f(VF a) {
  VF t = abs_f(a), s = a * a;
  VF r = fma_f(set_f(-1.72853470e-5f), t, set_f(3.83197126e-4f)), u = fma_f(set_f(-3.88396438e-3f), t, set_f(2.42546219e-2f));
  r = fma_f(r, s, u); r = fma_f(r, t, set_f(-1.06777877e-1f)); r = fma_f(r, t, set_f(-6.34846687e-1f)); r = fma_f(r, t, set_f(-1.28717512e-1f)); r = fma_f(r, t, neg_f(t));
  VF big = 1.f - exp_f(r);
  VF q = fma_f(set_f(-5.96761703e-4f), s, set_f(4.99119423e-3f)); q = fma_f(q, s, set_f(-2.67681349e-2f)); q = fma_f(q, s, set_f(1.12819925e-1f));
  q = fma_f(q, s, set_f(-3.76125336e-1f)); q = fma_f(q, s, set_f(1.28379166e-1f));
  VF small = fma_f(q, t, t), y = t > 0.927734375f ? big : small; y = t > 4.f ? set_f(1.f) : y;
  return copysign_f(y, a);
}
)"},
    // tanh: odd polynomial under 0.55, (1 - e) / (1 + e) with e = exp(-2 |x|) above.
    {"tanh_f", kAlways, R"(F VF tanh_f(VF a) {
  VF t = abs_f(a), s = a * a, e = exp_f(-2.f * t), big = (1.f - e) / (1.f + e);
  VF q = fma_f(set_f(-6.17827335e-3f), s, set_f(2.10060365e-2f)); q = fma_f(q, s, set_f(-5.38369603e-2f)); q = fma_f(q, s, set_f(1.33324459e-1f)); q = fma_f(q, s, set_f(-3.33333135e-1f));
  return copysign_f(t > 0.55f ? big : fma_f(q * s, t, t), a);
}
)"},
    // log: 0.8 ulp. v = 2^e m with m in [sqrt(1/2), sqrt(2)). `more` is added before the last rounding.
    {"log_and", kAlways, R"(template <class More> F VF log_and(VF x, More more) {
  VF v = x < 1.17549435e-38f ? x * 8388608.f : x; VI u = (VI)v, k = (u - 0x3f3504f3) & (int)0xff800000;
  VF m = (VF)(u - k), e = __builtin_convertvector(k >> 23, VF); e = x < 1.17549435e-38f ? e - 23.f : e;
  VF f = m - 1.f, s = f * f;
  VF q = fma_f(set_f(7.0376836292e-2f), f, set_f(-1.1514610310e-1f)); q = fma_f(q, f, set_f(1.1676998740e-1f)); q = fma_f(q, f, set_f(-1.2420140846e-1f));
  q = fma_f(q, f, set_f(1.4249322787e-1f)); q = fma_f(q, f, set_f(-1.6668057665e-1f)); q = fma_f(q, f, set_f(2.0000714765e-1f)); q = fma_f(q, f, set_f(-2.4999993993e-1f)); q = fma_f(q, f, set_f(3.3333331174e-1f));
  VF y = fma_f(q * f, s, e * -2.12194440e-4f); y = more(fma_f(set_f(-0.5f), s, y)); y = fma_f(e, set_f(0.693359375f), f + y);
  y = x > 0.f ? y : x == 0.f ? set_f(-__builtin_inff()) : set_f(__builtin_nanf(""));
  return x == __builtin_inff() ? x : y;
}
)"},
    {"log_f", kAlways, "F VF log_f(VF x) { return log_and(x, [](VF y) __attribute__((always_inline)) { return y; }); }\n"},
    // log(1 + x) as the logarithm of the rounded sum u, and what rounding lost, over u. Where that is no number, u is 0,
    // infinite or NaN.
    {"log1p_f", kAlways, R"(F VF log1p_f(VF x) {
  VF u = 1.f + x, lost = (x - (u - 1.f)) / u;
  return copysign_f(log_and(u, [&](VF y) __attribute__((always_inline)) { return lost == lost ? y + lost : y; }), x);
}
)"},
    // sin and cos: Cody-Waite with three constants, for |x| < 8192; a vector with a larger one goes to libm.
    {"SC sincos_f", kAlways, R"(struct SC { VF s, c; };
F SC sincos_f(VF x) {
  VF n = round_f(x * 0.636619772f); VI k = __builtin_convertvector(n, VI);
  VF r = fma_f(n, set_f(-1.57079601e+0f), x); r = fma_f(n, set_f(-3.13916473e-7f), r); r = fma_f(n, set_f(-5.39030253e-15f), r); VF z = r * r;
  VF s = fma_f(set_f(2.86567956e-6f), z, set_f(-1.98559923e-4f)); s = fma_f(s, z, set_f(8.33338592e-3f)); s = fma_f(s, z, set_f(-1.66666672e-1f)); s = fma_f(s * z, r, r);
  VF c = fma_f(set_f(2.44677067e-5f), z, set_f(-1.38877297e-3f)); c = fma_f(c, z, set_f(4.16666567e-2f)); c = fma_f(c, z, set_f(-0.5f)); c = fma_f(c, z, set_f(1.f));
  VF a = (k & 1) != 0 ? c : s, d = (k & 1) != 0 ? s : c;
  return {(VF)((VU)a ^ ((VU)(k & 2) << 30)), (VF)((VU)d ^ ((VU)((k + 1) & 2) << 30))};
}
)"},
    {"sin_f", kNoFma, "F VF sin_f(VF x) { VF t = abs_f(x); if (any(t > 8192.f)) return libm_sin_f(x); VF s = __builtin_convertvector(sincos_d(__builtin_convertvector(t, VD)).s, VF); return (VF)((VU)s ^ ((VU)x & 0x80000000u)); }\n"},
    {"cos_f", kNoFma, "F VF cos_f(VF x) { VF t = abs_f(x); if (any(t > 8192.f)) return libm_cos_f(x); return __builtin_convertvector(sincos_d(__builtin_convertvector(t, VD)).c, VF); }\n"},
    {"sin_f", kFma, "F VF sin_f(VF x) { VF t = abs_f(x); if (any(t > 8192.f)) return libm_sin_f(x); VF s = sincos_f(t).s; return (VF)((VU)s ^ ((VU)x & 0x80000000u)); }\n"},
    {"cos_f", kFma, "F VF cos_f(VF x) { VF t = abs_f(x); if (any(t > 8192.f)) return libm_cos_f(x); return sincos_f(t).c; }\n"},
    {"tan_f", kAlways, R"(F VF tan_f(VF f) { if (any(abs_f(f) > 1e5f)) return libm_tan_f(f); SCD t = sincos_d(__builtin_convertvector(abs_f(f), VD)); return (VF)((VU)__builtin_convertvector(t.s / t.c, VF) ^ ((VU)f & 0x80000000u)); }
)"},

    {"copysign_small_d", kAlways, "F VD copysign_small_d(VD y, VD x) { return x == 0. ? x : y; }\n"},
    {"sinh_of_abs_d", kAlways, "F VD sinh_of_abs_d(VD x) { VD e = exp_d(x), s = x * (1. + x * x * (1. / 6 + x * x * (1. / 120))); return x < 1e-2 ? s : 0.5 * (e - 1. / e); }\n"},
    {"asinh_of_abs_d", kAlways, "F VD asinh_of_abs_d(VD x) { VD s = x * (1. - x * x * (1. / 6 - x * x * (3. / 40))); return x < 1e-2 ? s : log_d(x + sqrt_d(x * x + 1.)); }\n"},
    {"acosh_in_d", kAlways, "F VD acosh_in_d(VD x) { VD y = log1p_fd((x - 1.) + sqrt_d((x - 1.) * (x + 1.))); return x < 1. ? set_d(__builtin_nan(\"\")) : y; }\n"},
    {"atanh_in_d", kAlways, "F VD atanh_in_d(VD x) { VD s = x * (1. + x * x * (1. / 3 + x * x * 0.2)); return abs_d(x) < 1e-2 ? s : 0.5 * log_d((1. + x) / (1. - x)); }\n"},
    THROUGH_DOUBLE("exp2_f", "exp_d(x * 0.69314718055994531)"),
    THROUGH_DOUBLE("expm1_f", "copysign_d(expm1_fd(x), x)"),
    THROUGH_DOUBLE("log2_f", "(log_d(x) * 1.4426950408889634)"),
    THROUGH_DOUBLE("log10_f", "(log_d(x) * 0.43429448190325182)"),
    THROUGH_DOUBLE("atan_f", "atan_d(x)"),
    THROUGH_DOUBLE("asin_f", "atan2_d(x, sqrt_d((1. - x) * (1. + x)))"),
    THROUGH_DOUBLE("acos_f", "atan2_d(sqrt_d((1. - x) * (1. + x)), x)"),
    THROUGH_DOUBLE("sinh_f", "copysign_d(sinh_of_abs_d(abs_d(x)), x)"),
    THROUGH_DOUBLE("cosh_f", "(0.5 * (exp_d(x) + exp_d(neg_d(x))))"),
    THROUGH_DOUBLE("asinh_f", "copysign_d(asinh_of_abs_d(abs_d(x)), x)"),
    THROUGH_DOUBLE("acosh_f", "acosh_in_d(x)"),
    THROUGH_DOUBLE("atanh_f", "atanh_in_d(x)"),
    THROUGH_DOUBLE("erfc_f", "erfc_d(x)"),   // libm's erfcf is off by up to 2.8 ulp
    {"pow_f", kAlways, R"(F VF pow_f(VF a, VF b) {
  VD x = __builtin_convertvector(a, VD), y = __builtin_convertvector(b, VD), r = exp_d(y * log_d(abs_d(x))), h = y * 0.5;
  VL whole = trunc_d(y) == y, odd = whole & (trunc_d(h) != h);
  r = (x < 0.) & ~whole & (abs_d(x) != __builtin_inf()) ? set_d(__builtin_nan("")) : r;
  r = odd & ((VL)x < 0) ? neg_d(r) : r;
  r = (y == 0.) | (x == 1.) | ((x == -1.) & (abs_d(y) == __builtin_inf())) ? set_d(1.) : r;
  return __builtin_convertvector(r, VF);
}
)"},
    {"atan2_f", kAlways, "F VF atan2_f(VF y, VF x) { return __builtin_convertvector(atan2_d(__builtin_convertvector(y, VD), __builtin_convertvector(x, VD)), VF); }\n"},
    {"hypot_f", kAlways, R"(F VF hypot_f(VF a, VF b) {
  VD x = __builtin_convertvector(a, VD), y = __builtin_convertvector(b, VD), r = sqrt_d(x * x + y * y);
  return (abs_f(a) == __builtin_inff()) | (abs_f(b) == __builtin_inff()) ? set_f(__builtin_inff()) : __builtin_convertvector(r, VF);
}
)"},

    // Division with rounding as PyTorch's CPU kernels: by fmod, then corrected.
    {"remainder_f", kAlways, "F VF remainder_f(VF a, VF b) { VF r = fmod_f(a, b); return (r != 0.f) & ((b < 0.f) != (r < 0.f)) ? r + b : r; }\n"},
    {"remainder_d", kAlways, "F VD remainder_d(VD a, VD b) { VD r = fmod_d(a, b); return (r != 0.) & ((b < 0.) != (r < 0.)) ? r + b : r; }\n"},
    {"floor_div_f", kAlways, R"(F VF floor_div_f(VF a, VF b) {
  VF r = fmod_f(a, b), d = (a - r) / b; d = (r != 0.f) & ((b < 0.f) != (r < 0.f)) ? d - 1.f : d;
  VF q = floor_f(d); q = d - q > 0.5f ? q + 1.f : q; q = d != 0.f ? q : copysign_f(VF{}, a / b);
  return b == 0.f ? a / b : q;
}
)"},
    {"floor_div_d", kAlways, R"(F VD floor_div_d(VD a, VD b) {
  VD r = fmod_d(a, b), d = (a - r) / b; d = (r != 0.) & ((b < 0.) != (r < 0.)) ? d - 1. : d;
  VD q = floor_d(d); q = d - q > 0.5 ? q + 1. : q; q = d != 0. ? q : copysign_d(VD{}, a / b);
  return b == 0. ? a / b : q;
}
)"},
};
#undef THROUGH_DOUBLE

}  // namespace

std::span<const Snippet> math_snippets() { return kSnippets; }

}  // namespace braze::codegen
