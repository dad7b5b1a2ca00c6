// Elementary functions of f32 and f64 against libm in a wider type: largest error in units of the last place, and the
// special values.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "run_kernel.h"

using namespace braze;
using namespace braze::test;
using schedule::Stage;

namespace {

template <class T>
constexpr DType kDtype = sizeof(T) == 4 ? DType::F32 : DType::F64;

// Runs a unary or binary op over all values.
template <class T>
std::vector<T> apply(ScalarOp op, const std::vector<T>& x, const std::vector<T>* y, int width) {
  Builder b;
  const DType dtype = kDtype<T>;
  const int32_t p = b.param(dtype), q = y != nullptr ? b.param(dtype) : -1, o = b.param(dtype, true);
  auto axis = b.axis(b.size(static_cast<int64_t>(x.size())), AxisRole::Vector);
  b.kernel.parallel = {axis};
  const Scalar* value = y != nullptr ? b.op(op, dtype, {b.load(p, axis.symbol), b.load(q, axis.symbol)})
                                     : b.op(op, dtype, {b.load(p, axis.symbol)});
  Stage stage;
  stage.stores = {{.buffer = o, .address = axis.symbol, .value = value, .bindings = {}}};
  b.kernel.stages = {stage};
  std::vector<T> out(x.size());
  std::vector<void*> buffers = {const_cast<T*>(x.data())};
  if (y != nullptr) buffers.push_back(const_cast<T*>(y->data()));
  buffers.push_back(out.data());
  run(b, width, buffers, 0, static_cast<int64_t>(x.size()));
  return out;
}

// Distance from the exact value in units of T's last place at it.
template <class T>
double ulps(T got, long double exact) {
  const T rounded = static_cast<T>(exact);
  if (std::isnan(rounded)) return std::isnan(got) ? 0 : 1e9;
  if (std::isinf(rounded)) {
    // Just beyond the largest number either is right within half a unit.
    if (got == rounded) return 0;
    return std::fabs(got) == std::numeric_limits<T>::max() && std::isfinite(static_cast<double>(exact)) ? 1 : 1e9;
  }
  if (std::isnan(got) || std::isinf(got)) return 1e9;
  int exponent;
  std::frexp(static_cast<double>(rounded), &exponent);
  const int lowest = sizeof(T) == 4 ? -149 : -1074, digits = sizeof(T) == 4 ? 24 : 53;
  const long double unit = std::ldexp(1.0L, std::max(exponent - digits, lowest));
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact) / unit);
}

struct Function {
  ScalarOp op;
  std::string name;
  long double (*exact)(long double);
  double low, high;      // drawn evenly from here, and from all magnitudes inside
};

long double sigmoid(long double x) { return 1 / (1 + std::exp(-x)); }

#define LONG(name) [](long double x) -> long double { return std::name(x); }
const Function kFunctions[] = {
    {ScalarOp::Exp, "exp", LONG(exp), -110, 95},        {ScalarOp::Exp2, "exp2", LONG(exp2), -155, 130},
    {ScalarOp::Expm1, "expm1", LONG(expm1), -20, 89},   {ScalarOp::Log, "log", LONG(log), 0, 1e30},
    {ScalarOp::Log2, "log2", LONG(log2), 0, 1e30},      {ScalarOp::Log10, "log10", LONG(log10), 0, 1e30},
    {ScalarOp::Log1p, "log1p", LONG(log1p), -1, 1e10},  {ScalarOp::Sin, "sin", LONG(sin), -1000, 1000},
    {ScalarOp::Cos, "cos", LONG(cos), -1000, 1000},     {ScalarOp::Tan, "tan", LONG(tan), -1000, 1000},
    {ScalarOp::Asin, "asin", LONG(asin), -1, 1},        {ScalarOp::Acos, "acos", LONG(acos), -1, 1},
    {ScalarOp::Atan, "atan", LONG(atan), -1e6, 1e6},    {ScalarOp::Sinh, "sinh", LONG(sinh), -90, 90},
    {ScalarOp::Cosh, "cosh", LONG(cosh), -90, 90},      {ScalarOp::Tanh, "tanh", LONG(tanh), -12, 12},
    {ScalarOp::Asinh, "asinh", LONG(asinh), -1e9, 1e9}, {ScalarOp::Acosh, "acosh", LONG(acosh), 1, 1e9},
    {ScalarOp::Atanh, "atanh", LONG(atanh), -1, 1},     {ScalarOp::Erf, "erf", LONG(erf), -6, 6},
    {ScalarOp::Erfc, "erfc", LONG(erfc), -6, 12},       {ScalarOp::Sigmoid, "sigmoid", sigmoid, -60, 60},
    {ScalarOp::Sqrt, "sqrt", LONG(sqrt), 0, 1e30},
};
#undef LONG

template <class T>
std::vector<T> arguments(const Function& f) {
  std::vector<T> x;
  const auto even = numbers(20000, 21, 1.f), small = numbers(20000, 22, 1.f);
  for (float t : even) x.push_back(static_cast<T>(f.low + (f.high - f.low) * (t + 1) / 2));
  for (float t : small) {   // all magnitudes
    const double m = std::exp2(static_cast<double>(std::fabs(t)) * 160 - 140);
    const double v = t < 0 ? -m : m;
    if (v > f.low && v < f.high) x.push_back(static_cast<T>(v));
    if (1 + v > f.low && 1 + v < f.high && m < 1) x.push_back(static_cast<T>(1 + v));
  }
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  for (T t : {T(0), T(-0.0), inf, -inf, nan, T(1), T(-1), std::numeric_limits<T>::denorm_min(), std::numeric_limits<T>::min(),
              std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest(), T(2), T(0.5), T(1e5), T(-3e7), T(1e20), T(88.8), T(-104)})
    x.push_back(t);
  return x;
}

template <class T>
void check_all(int width, double limit) {
  for (const Function& f : kFunctions) {
    const std::vector<T> x = arguments<T>(f);
    const std::vector<T> y = apply<T>(f.op, x, nullptr, width);
    double worst = 0;
    T worst_x = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      // f32 sin of very large arguments: long double's own reduction is exact for all of them.
      const double error = ulps(y[i], f.exact(static_cast<long double>(x[i])));
      if (error > worst) { worst = error; worst_x = x[i]; }
      if (x[i] == 0 && y[i] == 0)
        CHECK_MESSAGE(std::signbit(y[i]) == std::signbit(static_cast<double>(f.exact(static_cast<long double>(x[i])))), f.name << " of a signed zero");
    }
    // Sigmoid is 1 / (1 + exp(-x)) as in eager, which underflows where that does.
    const double allowed = f.op == ScalarOp::Sigmoid ? 1e9 : f.op == ScalarOp::Erfc ? 3 : limit;   // erfc is libm's
    CHECK_MESSAGE(worst <= allowed, f.name << " has an error of " << worst << " ulp at " << worst_x << ", width " << width);
  }
}

}  // namespace

TEST_CASE("f32 functions") {
  for (int width : widths()) check_all<float>(width, 1.5);
}

TEST_CASE("f64 functions") {
  for (int width : widths()) check_all<double>(width, 2.1);
}

TEST_CASE("f32 pow, atan2 and hypot over special and ordinary pairs") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float special[] = {0.f, -0.f, 1.f, -1.f, 2.f, -2.f, 3.f, -3.f, 0.5f, -0.5f, inf, -inf, nan, 1e30f, -1e30f, 1e-40f, 2.5f, 16777217.f, 1e10f};
  std::vector<float> x, y;
  for (float a : special)
    for (float b : special) { x.push_back(a); y.push_back(b); }
  const auto more = numbers(20000, 31, 20), powers = numbers(20000, 32, 12);
  for (size_t i = 0; i < more.size(); ++i) { x.push_back(i % 3 != 0 ? std::fabs(more[i]) : more[i]); y.push_back(i % 3 != 0 ? powers[i] : std::round(powers[i])); }
  for (int width : widths()) {
    struct { ScalarOp op; std::string name; long double (*exact)(long double, long double); } functions[] = {
        {ScalarOp::Pow, "pow", [](long double a, long double b) -> long double { return std::pow(a, b); }},
        {ScalarOp::Atan2, "atan2", [](long double a, long double b) -> long double { return std::atan2(a, b); }},
        {ScalarOp::Hypot, "hypot", [](long double a, long double b) -> long double { return std::hypot(a, b); }}};
    for (const auto& f : functions) {
      const auto got = apply<float>(f.op, x, &y, width);
      for (size_t i = 0; i < x.size(); ++i) {
        const double error = ulps(got[i], f.exact(static_cast<long double>(x[i]), static_cast<long double>(y[i])));
        if (error > 1) CHECK_MESSAGE(error <= 1, f.name << "(" << x[i] << ", " << y[i] << ") = " << got[i] << ", width " << width);
        if (got[i] == 0)
          CHECK_MESSAGE(std::signbit(got[i]) == std::signbit(f.exact(static_cast<long double>(x[i]), static_cast<long double>(y[i]))), f.name << "(" << x[i] << ", " << y[i] << ")");
      }
    }
  }
}

TEST_CASE("floating division with rounding, against Python's rules") {
  const auto a = numbers(500, 41, 30), b = numbers(500, 42, 3);
  std::vector<float> x(a), y(b);
  for (float v : {7.f, -7.f, 0.f, -0.f}) for (float w : {2.f, -2.f, 3.5f, -3.5f}) { x.push_back(v); y.push_back(w); }
  for (int width : widths()) {
    const auto quotient = apply<float>(ScalarOp::FloorDiv, x, &y, width), rest = apply<float>(ScalarOp::Remainder, x, &y, width);
    const auto cut = apply<float>(ScalarOp::TruncDiv, x, &y, width), left = apply<float>(ScalarOp::Fmod, x, &y, width);
    for (size_t i = 0; i < x.size(); ++i) {
      float m = std::fmod(x[i], y[i]);
      CHECK(left[i] == m);
      CHECK(cut[i] == std::trunc(x[i] / y[i]));
      CHECK(quotient[i] == std::floor((static_cast<double>(x[i]) - static_cast<double>(m)) / static_cast<double>(y[i]) - (m != 0 && (m < 0) != (y[i] < 0) ? 1 : 0) + 1e-9));
      if (m != 0 && (m < 0) != (y[i] < 0)) m += y[i];
      CHECK(rest[i] == m);
    }
  }
}
