// Functions without an inline form: libm's, lane by lane.
#include "braze/codegen/cpp/prelude.h"

namespace braze::codegen {

namespace {

#define LANES_1(name, libm)                                                                                        \
  {name "_d", kAlways, "extern \"C\" double " libm "(double);\nSLOW VD " name "_d(VD a) { double x[@L]; stu(x, a); for (int i = 0; i < @L; i++) x[i] = " libm "(x[i]); return ldu<VD>(x); }\n"}
#define LANES_1F(name, libm)                                                                                       \
  {name "_f", kAlways, "extern \"C\" float " libm "f(float);\nSLOW VF " name "_f(VF a) { float x[@L]; stu(x, a); for (int i = 0; i < @L; i++) x[i] = " libm "f(x[i]); return ldu<VF>(x); }\n"}
#define LANES_2(name, libm)                                                                                        \
  {name "_d", kAlways, "extern \"C\" double " libm "(double, double);\nSLOW VD " name "_d(VD a, VD b) { double x[@L], y[@L]; stu(x, a); stu(y, b); for (int i = 0; i < @L; i++) x[i] = " libm "(x[i], y[i]); return ldu<VD>(x); }\n"}
#define LANES_2F(name, libm)                                                                                       \
  {name "_f", kAlways, "extern \"C\" float " libm "f(float, float);\nSLOW VF " name "_f(VF a, VF b) { float x[@L], y[@L]; stu(x, a); stu(y, b); for (int i = 0; i < @L; i++) x[i] = " libm "f(x[i], y[i]); return ldu<VF>(x); }\n"}

constexpr Snippet kSnippets[] = {
    LANES_1F("libm_sin", "sin"), LANES_1F("libm_cos", "cos"), LANES_1F("libm_tan", "tan"),
    LANES_1("libm_sin", "sin"),  LANES_1("libm_cos", "cos"),
    LANES_1("exp2", "exp2"),     LANES_1("expm1", "expm1"),   LANES_1("log2", "log2"),   LANES_1("log10", "log10"),
    LANES_1("log1p", "log1p"),   LANES_1("tan", "tan"),       LANES_1("asin", "asin"),   LANES_1("acos", "acos"),
    LANES_1("sinh", "sinh"),     LANES_1("cosh", "cosh"),     LANES_1("tanh", "tanh"),   LANES_1("asinh", "asinh"),
    LANES_1("acosh", "acosh"),   LANES_1("atanh", "atanh"),   LANES_1("erf", "erf"),     LANES_1("erfc", "erfc"),
    LANES_2("pow", "pow"),       LANES_2("hypot", "hypot"),   LANES_2("nextafter", "nextafter"),
    LANES_2F("nextafter", "nextafter"),
    LANES_2("fmod", "fmod"),     LANES_2F("fmod", "fmod"),
};

}  // namespace

std::span<const Snippet> libm_snippets() { return kSnippets; }

}  // namespace braze::codegen
