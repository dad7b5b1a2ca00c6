// Dtypes: conversion, rounding points, wrapping, masks, integer division; against scalar C++ arithmetic.
#include <cmath>
#include <cstring>
#include <limits>

#include "run_kernel.h"

using namespace braze;
using namespace braze::test;
using schedule::Stage;

namespace {

float bf16_to_float(uint16_t h) {
  const uint32_t bits = static_cast<uint32_t>(h) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

uint16_t float_to_bf16(float f) {   // half to even, by integers
  if (std::isnan(f)) return 0xffff;
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  const uint32_t low = bits & 0xffff, high = bits >> 16;
  return static_cast<uint16_t>(low > 0x8000 || (low == 0x8000 && (high & 1) != 0) ? high + 1 : high);
}

// out[i] = f(inputs at i) over n elements.
struct Elementwise : Builder {
  schedule::LoopAxis along;
  explicit Elementwise(int64_t n) {
    along = axis(size(n), AxisRole::Vector);
    kernel.parallel = {along};
    kernel.stages.emplace_back();
  }
  const Scalar* in(DType dtype) { return load(param(dtype), along.symbol); }
  void out(const Scalar* value) {
    kernel.stages[0].stores.push_back({.buffer = param(value->dtype, true), .address = along.symbol, .value = value, .bindings = {}});
  }
};

template <class T>
constexpr DType dtype_for() {
  if constexpr (std::is_same_v<T, float>) return DType::F32;
  else if constexpr (std::is_same_v<T, double>) return DType::F64;
  else if constexpr (std::is_same_v<T, int64_t>) return DType::I64;
  else if constexpr (std::is_same_v<T, int32_t>) return DType::I32;
  else if constexpr (std::is_same_v<T, int16_t>) return DType::I16;
  else if constexpr (std::is_same_v<T, int8_t>) return DType::I8;
  else if constexpr (std::is_same_v<T, bool>) return DType::Bool;
  else return DType::U8;
}

constexpr size_t kN = 83;

template <class From, class To>
void check_cast(int width) {
  Elementwise b(kN);
  b.out(b.s().cast(b.in(dtype_for<From>()), dtype_for<To>()));
  const auto values = numbers(kN, 51, 100);
  From x[kN];
  To y[kN];
  for (size_t i = 0; i < kN; ++i) {
    float v = values[i];
    if constexpr (!std::is_signed_v<To> && !std::is_same_v<To, bool>) v = std::fabs(v);
    x[i] = static_cast<From>(i % 7 == 0 ? 0.f : v);
  }
  run(b, width, {x, y}, 0, kN);
  for (size_t i = 0; i < kN; ++i) CHECK(y[i] == static_cast<To>(x[i]));
}

template <class From>
void check_casts_from(int width) {
  check_cast<From, float>(width);
  check_cast<From, double>(width);
  check_cast<From, int64_t>(width);
  check_cast<From, int32_t>(width);
  check_cast<From, int16_t>(width);
  check_cast<From, int8_t>(width);
  check_cast<From, uint8_t>(width);
  check_cast<From, bool>(width);
}

template <class T>
void check_integers(int width) {
  using U = std::make_unsigned_t<T>;
  const DType dtype = dtype_for<T>();
  Elementwise b(kN);
  const Scalar *x = b.in(dtype), *y = b.in(dtype);
  for (ScalarOp op : {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::FloorDiv, ScalarOp::TruncDiv, ScalarOp::Remainder, ScalarOp::Fmod,
                      ScalarOp::Minimum, ScalarOp::Maximum, ScalarOp::BitXor, ScalarOp::ShiftLeft, ScalarOp::ShiftRight})
    b.out(b.op(op, dtype, {x, y}));
  std::vector<std::vector<T>> data(14, std::vector<T>(kN));
  const auto a = numbers(kN, 61, 120), c = numbers(kN, 62, 9);
  for (size_t i = 0; i < kN; ++i) {
    data[0][i] = static_cast<T>(static_cast<int>(a[i]));
    data[1][i] = static_cast<T>(static_cast<int>(c[i]));
    if (data[1][i] == 0) data[1][i] = static_cast<T>(3);
  }
  data[0][5] = std::numeric_limits<T>::min();
  data[1][5] = static_cast<T>(-1);
  data[0][6] = std::numeric_limits<T>::max();
  std::vector<void*> buffers;
  for (auto& each : data) buffers.push_back(each.data());
  CHECK(run(b, width, buffers, 0, kN) == 0);
  for (size_t i = 0; i < kN; ++i) {
    const T p = data[0][i], q = data[1][i];
    const auto up = static_cast<uint64_t>(p), uq = static_cast<uint64_t>(q);
    CHECK(data[2][i] == static_cast<T>(static_cast<U>(up + uq)));
    CHECK(data[3][i] == static_cast<T>(static_cast<U>(up - uq)));
    CHECK(data[4][i] == static_cast<T>(static_cast<U>(up * uq)));
    const __int128 wide_p = p, wide_q = q;
    __int128 quotient = wide_p / wide_q, rest = wide_p % wide_q;
    CHECK(data[6][i] == static_cast<T>(quotient));
    CHECK(data[8][i] == static_cast<T>(rest));
    if (rest != 0 && (rest < 0) != (wide_q < 0)) { --quotient; rest += wide_q; }
    CHECK(data[5][i] == static_cast<T>(quotient));
    CHECK(data[7][i] == static_cast<T>(rest));
    CHECK(data[9][i] == std::min(p, q));
    CHECK(data[10][i] == std::max(p, q));
    CHECK(data[11][i] == static_cast<T>(p ^ q));
    const int bits = static_cast<int>(8 * sizeof(T));
    const bool valid = q >= 0 && static_cast<uint64_t>(q) < static_cast<uint64_t>(bits);
    CHECK(data[12][i] == (valid ? static_cast<T>(static_cast<U>(up << uq)) : T(0)));
    if (valid) CHECK(data[13][i] == static_cast<T>(p >> q));
  }
  data[1][kN - 1] = 0;
  CHECK(run(b, width, buffers, 0, kN) == 2);
}

}  // namespace

TEST_CASE("casts between all pairs") {
  for (int width : widths()) {
    check_casts_from<float>(width);
    check_casts_from<double>(width);
    check_casts_from<int64_t>(width);
    check_casts_from<int32_t>(width);
    check_casts_from<int16_t>(width);
    check_casts_from<int8_t>(width);
    check_casts_from<uint8_t>(width);
    check_casts_from<bool>(width);
  }
}

TEST_CASE("integer arithmetic wraps; division follows Python and reports zero") {
  for (int width : widths()) {
    check_integers<int64_t>(width);
    check_integers<int32_t>(width);
    check_integers<int16_t>(width);
    check_integers<int8_t>(width);
    check_integers<uint8_t>(width);
  }
}

TEST_CASE("bf16 is rounded after each operation, NaN stays NaN") {
  for (int width : widths()) {
    Elementwise b(kN);
    const Scalar *x = b.in(DType::BF16), *y = b.in(DType::BF16);
    const Scalar* product = b.op(ScalarOp::Mul, DType::BF16, {x, y});
    b.out(b.op(ScalarOp::Add, DType::BF16, {product, x}));
    b.out(b.op(ScalarOp::Gt, DType::Bool, {product, y}));
    b.out(b.op(ScalarOp::Neg, DType::BF16, {x}));
    b.out(b.s().cast(b.op(ScalarOp::Add, DType::F32, {b.s().cast(x, DType::F32), b.f32(0.00123)}), DType::BF16));
    uint16_t p[kN], q[kN], out[kN], negated[kN], rounded[kN];
    bool greater[kN];
    const auto a = numbers(kN, 71, 3), c = numbers(kN, 72, 3);
    for (size_t i = 0; i < kN; ++i) { p[i] = float_to_bf16(a[i]); q[i] = float_to_bf16(c[i]); }
    p[3] = 0x7fc0;
    p[4] = 0x7f80;
    p[5] = 0x0001;   // subnormal
    run(b, width, {p, q, out, greater, negated, rounded}, 0, kN);
    for (size_t i = 0; i < kN; ++i) {
      const float fx = bf16_to_float(p[i]), fy = bf16_to_float(q[i]), fp = bf16_to_float(float_to_bf16(fx * fy));
      const uint16_t expected = float_to_bf16(fp + fx);
      if (std::isnan(fp + fx)) CHECK(std::isnan(bf16_to_float(out[i])));
      else CHECK(out[i] == expected);
      CHECK(greater[i] == (fp > fy));
      if (!std::isnan(fx)) CHECK(negated[i] == (p[i] ^ 0x8000));
      if (!std::isnan(fx)) CHECK(rounded[i] == float_to_bf16(fx + 0.00123f));
    }
  }
}

TEST_CASE("f16 rounds half to even and overflows to infinity") {
  for (int width : widths()) {
    if (width == 16) continue;
    Elementwise b(kN);
    b.out(b.s().cast(b.in(DType::F32), DType::F16));
    Elementwise c(kN);
    c.out(c.s().cast(c.op(ScalarOp::Add, DType::F16, {c.in(DType::F16), c.s().constant(DType::F16, 1)}), DType::F32));
    auto a = numbers(kN, 81, 1000);
    a[0] = 65520;
    a[1] = 65519;
    a[2] = 5.9604645e-8f;
    a[3] = 2049;
    uint16_t half[kN];
    float back[kN];
    run(b, width, {a.data(), half}, 0, kN);
    run(c, width, {half, back}, 0, kN);
    CHECK(half[0] == 0x7c00);
    CHECK(half[1] == 0x7bff);
    CHECK(half[2] == 0x0001);
    CHECK(half[3] == 0x6800);
    for (size_t i = 4; i < kN; ++i) CHECK(back[i] == doctest::Approx(a[i] + 1).epsilon(2e-3).scale(1));
    CHECK(back[3] == 2048);
  }
}

TEST_CASE("bools: logic, selection, sums") {
  for (int width : widths()) {
    Elementwise b(kN);
    const Scalar *x = b.in(DType::Bool), *y = b.in(DType::Bool), *f = b.in(DType::F64);
    b.out(b.op(ScalarOp::BitAnd, DType::Bool, {x, b.op(ScalarOp::LogicalNot, DType::Bool, {y})}));
    b.out(b.op(ScalarOp::Where, DType::F64, {b.op(ScalarOp::BitXor, DType::Bool, {x, y}), f, b.s().constant(DType::F64, -1)}));
    b.out(b.op(ScalarOp::Add, DType::I64, {b.s().cast(x, DType::I64), b.s().cast(y, DType::I64)}));
    b.out(b.op(ScalarOp::Le, DType::Bool, {x, y}));
    bool p[kN], q[kN], both[kN], le[kN];
    double d[kN], chosen[kN];
    int64_t sum[kN];
    for (size_t i = 0; i < kN; ++i) { p[i] = i % 3 == 0; q[i] = i % 2 == 0; d[i] = static_cast<double>(i); }
    run(b, width, {p, q, d, both, chosen, sum, le}, 0, kN);
    for (size_t i = 0; i < kN; ++i) {
      CHECK(both[i] == (p[i] && !q[i]));
      CHECK(chosen[i] == (p[i] != q[i] ? d[i] : -1));
      CHECK(sum[i] == p[i] + q[i]);
      CHECK(le[i] == (p[i] <= q[i]));
    }
  }
}

TEST_CASE("maximum keeps NaN, fmax drops it; signs of zeros") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float x[] = {1, nan, 2, nan, -0.f, 0.f}, y[] = {nan, 1, 3, nan, 0.f, -0.f};
  for (int width : widths()) {
    Elementwise b(6);
    const Scalar *p = b.in(DType::F32), *q = b.in(DType::F32);
    b.out(b.op(ScalarOp::Maximum, DType::F32, {p, q}));
    b.out(b.op(ScalarOp::Minimum, DType::F32, {p, q}));
    b.out(b.op(ScalarOp::Fmax, DType::F32, {p, q}));
    b.out(b.op(ScalarOp::Fmin, DType::F32, {p, q}));
    b.out(b.op(ScalarOp::Mul, DType::F32, {p, b.f32(-0.0)}));
    float most[6], least[6], fmost[6], fleast[6], zero[6];
    run(b, width, {const_cast<float*>(x), const_cast<float*>(y), most, least, fmost, fleast, zero}, 0, 6);
    CHECK(std::isnan(most[0]));
    CHECK(std::isnan(most[1]));
    CHECK(most[2] == 3);
    CHECK(std::isnan(least[0]));
    CHECK(std::isnan(least[1]));
    CHECK(least[2] == 2);
    CHECK(fmost[0] == 1);
    CHECK(fmost[1] == 1);
    CHECK(std::isnan(fmost[3]));
    CHECK(fleast[0] == 1);
    CHECK(std::signbit(zero[2]));
    CHECK(!std::signbit(zero[4]));
  }
}
