// Elementary functions in double, at most about 1 ulp: for f64 itself, and for those f32 functions whose result is
// computed in double and rounded once. Reductions and polynomials after fdlibm (Sun Microsystems), in vector form.
#include "braze/codegen/cpp/prelude.h"

namespace braze::codegen {

namespace {

constexpr Snippet kSnippets[] = {
    // 2^k for |k| <= 1022.
    {"pow2_d", kAlways, "F VD pow2_d(VL k) { return (VD)((k + 1023) << 52); }\n"},
    // e^x = 2^k e^r, |r| <= ln2 / 2; Taylor to r^13. Scaled in two steps, so that subnormal results round once.
    {"exp_d", kAlways, R"(F VD exp_d(VD x) {
  VD c = x < set_d(-746.) ? set_d(0.) : x; c = c > set_d(710.) ? set_d(710.) : c;
  VD t = c * 1.4426950408889634 + 6755399441055744., n = t - 6755399441055744.; VL k = (VL)t - (VL)set_d(6755399441055744.);
  VD r = fma_d(n, set_d(-6.93147180369123816490e-01), c); r = fma_d(n, set_d(-1.90821492927058770002e-10), r);
  VD q = fma_d(set_d(1.6059043836821613e-10), r, set_d(2.0876756987868099e-09));
  q = fma_d(q, r, set_d(2.5052108385441719e-08)); q = fma_d(q, r, set_d(2.7557319223985893e-07)); q = fma_d(q, r, set_d(2.7557319223985891e-06));
  q = fma_d(q, r, set_d(2.4801587301587302e-05)); q = fma_d(q, r, set_d(1.9841269841269841e-04)); q = fma_d(q, r, set_d(1.3888888888888889e-03));
  q = fma_d(q, r, set_d(8.3333333333333332e-03)); q = fma_d(q, r, set_d(4.1666666666666664e-02)); q = fma_d(q, r, set_d(1.6666666666666666e-01)); q = fma_d(q, r, set_d(0.5));
  VD y = fma_d(r * r, q, r) + 1.; VL h = (VL)((VK)(k + 4096) >> 1) - 2048;
  y = y * pow2_d(h) * pow2_d(k - h);
  return x < set_d(-746.) ? set_d(0.) : y;
}
)"},
    // x = 2^k m, sqrt(1/2) <= m < sqrt(2); log m by s = f / (2 + f).
    {"log_d", kAlways, R"(F VD log_d(VD x) {
  VD v = x < set_d(2.2250738585072014e-308) ? x * 18014398509481984. : x;
  VL u = (VL)v + (0x3ff0000000000000l - 0x3fe6a09e667f3bcdl), k = (VL)((VK)u >> 52) - 1023;
  VD m = (VD)((u & 0x000fffffffffffffl) + 0x3fe6a09e667f3bcdl), e = __builtin_convertvector(__builtin_convertvector(k, VI), VD);
  e = x < set_d(2.2250738585072014e-308) ? e - 54. : e;
  VD f = m - 1., s = f / (2. + f), z = s * s, h = 0.5 * f * f;
  VD q = fma_d(set_d(1.479819860511658591e-01), z, set_d(1.531383769920937332e-01)); q = fma_d(q, z, set_d(1.818357216161805012e-01)); q = fma_d(q, z, set_d(2.222219843214978396e-01));
  q = fma_d(q, z, set_d(2.857142874366239149e-01)); q = fma_d(q, z, set_d(3.999999999940941908e-01)); q = fma_d(q, z, set_d(6.666666666666735130e-01));
  VD y = fma_d(e, set_d(6.93147180369123816490e-01), f - (h - fma_d(s, h + q * z, e * 1.90821492927058770002e-10)));
  y = x > 0. ? y : x == 0. ? set_d(-__builtin_inf()) : set_d(__builtin_nan(""));
  return x == __builtin_inf() ? x : y;
}
)"},
    // sin and cos of |x| < 1e6; k is the quadrant. The first product is exact.
    {"SCD sincos_d", kAlways, R"(struct SCD { VD s, c; };
F SCD sincos_d(VD x) {
  VD t = x * 0.63661977236758138 + 6755399441055744., n = t - 6755399441055744.; VL k = (VL)t;
  VD r = fma_d(n, set_d(-1.57079632673412561417e+00), x); r = fma_d(n, set_d(-6.07710050650619224932e-11), r); VD z = r * r;
  VD s = fma_d(set_d(1.58969099521155010221e-10), z, set_d(-2.50507602534068634195e-08)); s = fma_d(s, z, set_d(2.75573137070700676789e-06)); s = fma_d(s, z, set_d(-1.98412698298579493134e-04));
  s = fma_d(s, z, set_d(8.33333333332248946124e-03)); s = fma_d(s, z, set_d(-1.66666666666666324348e-01)); s = fma_d(s * z, r, r);
  VD c = fma_d(set_d(-1.13596475577881948265e-11), z, set_d(2.08757232129817482790e-09)); c = fma_d(c, z, set_d(-2.75573143513906633035e-07)); c = fma_d(c, z, set_d(2.48015872894767294178e-05));
  c = fma_d(c, z, set_d(-1.38888888888741095749e-03)); c = fma_d(c, z, set_d(4.16666666666666019037e-02));
  VD w = 1. - 0.5 * z; c = w + (((1. - w) - 0.5 * z) + z * z * c);
  VD a = (k & 1) != 0 ? c : s, b = (k & 1) != 0 ? s : c;
  return {(VD)((VK)a ^ ((VK)(k & 2) << 62)), (VD)((VK)b ^ ((VK)((k + 1) & 2) << 62))};
}
)"},
    // |x| to (numerator / denominator) in [-0.4143, 0.4143] plus a multiple of pi / 4.
    {"atan_d", kAlways, R"(F VD atan_d(VD x) {
  VD t = abs_d(x); VL far = t > 2.4142135623730950, near = t <= 0.41421356237309503;
  VD n = near ? t : far ? set_d(-1.) : t - 1., d = near ? set_d(1.) : far ? t : t + 1., a = n / d, z = a * a;
  VD q = fma_d(set_d(1.62858201153657823623e-02), z, set_d(-3.65315727442169155270e-02)); q = fma_d(q, z, set_d(4.97687799461593236017e-02)); q = fma_d(q, z, set_d(-5.83357013379057348645e-02));
  q = fma_d(q, z, set_d(6.66107313738753120669e-02)); q = fma_d(q, z, set_d(-7.69187620504482999495e-02)); q = fma_d(q, z, set_d(9.09088713343650656196e-02)); q = fma_d(q, z, set_d(-1.11111104054623557880e-01));
  q = fma_d(q, z, set_d(1.42857142725034663711e-01)); q = fma_d(q, z, set_d(-1.99999999998764832476e-01)); q = fma_d(q, z, set_d(3.33333333333329318027e-01));
  VD y = (near ? VD{} : far ? set_d(1.5707963267948966) : set_d(0.78539816339744828)) + (a - a * z * q);
  return copysign_d(y, x);
}
)"},
    {"atan2_d", kAlways, R"(F VD atan2_d(VD y, VD x) {
  VD a = abs_d(x), b = abs_d(y); VL steep = b > a;
  VD n = steep ? a : b, d = steep ? b : a, q = n / d;
  q = d == 0. ? VD{} : n == __builtin_inf() ? set_d(1.) : q;
  VD r = atan_d(q); r = steep ? 1.5707963267948966 - r : r; r = (VL)x < 0 ? 3.1415926535897931 - r : r;
  return (x != x) | (y != y) ? x + y : copysign_d(r, y);
}
)"},
    {"log1p_fd", kAlways, R"(F VD log1p_fd(VD x) { // for numbers that were f32: relative error 1e-15 at the least
  VD y = log_d(1. + x), s = x * (1. - x * (0.5 - x * (1. / 3 - x * 0.25)));
  return abs_d(x) < 1e-4 ? s : y;
}
)"},
    {"expm1_fd", kAlways, R"(F VD expm1_fd(VD x) { // as log1p_fd
  VD s = x * (1. + x * (0.5 + x * (1. / 6 + x * (1. / 24))));
  return abs_d(x) < 1e-4 ? s : exp_d(x) - 1.;
}
)"},
    {"sigmoid_d", kAlways, "F VD sigmoid_d(VD x) { return 1. / (1. + exp_d(neg_d(x))); }\n"},
    {"sin_d", kAlways, R"(F VD sin_d(VD x) { VD t = abs_d(x); if (any(mask_d(t > 1e6))) return libm_sin_d(x); VD s = sincos_d(t).s; return (VD)((VK)s ^ ((VK)x & 0x8000000000000000ul)); }
)"},
    {"cos_d", kAlways, R"(F VD cos_d(VD x) { VD t = abs_d(x); if (any(mask_d(t > 1e6))) return libm_cos_d(x); return sincos_d(t).c; }
)"},
};

}  // namespace

std::span<const Snippet> math64_snippets() { return kSnippets; }

}  // namespace braze::codegen
