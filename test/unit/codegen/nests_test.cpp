// Loop nests: flat, rows with stages, reductions along each axis, gathers, windows; against plain loops in double.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "run_kernel.h"

using namespace braze;
using namespace braze::test;
using schedule::Stage;
using schedule::Store;

namespace {

Store store(int32_t p, Expr address, const Scalar* value) { return {.buffer = p, .address = address, .value = value, .bindings = {}}; }

}  // namespace

TEST_CASE("flat pointwise chain, any length and any slice") {
  for (int width : widths())
    for (int64_t n : {1, 15, 16, 17, 100, 1000}) {
      Builder b;
      const int32_t x = b.param(DType::F32), y = b.param(DType::F32), o = b.param(DType::F32, true);
      auto axis = b.axis(b.size(n), AxisRole::Vector);
      b.kernel.parallel = {axis};
      const Scalar* sum = b.op(ScalarOp::Add, DType::F32, {b.load(x, axis.symbol), b.load(y, axis.symbol)});
      Stage stage;
      stage.stores = {store(o, axis.symbol, b.op(ScalarOp::Maximum, DType::F32, {b.op(ScalarOp::Mul, DType::F32, {sum, b.f32(3)}), b.f32(0)}))};
      b.kernel.stages = {stage};
      const auto count = static_cast<size_t>(n);
      auto a = numbers(count, 1), c = numbers(count, 2);
      std::vector<float> out(count + 32, 77.f);
      const int64_t middle = n / 3;
      CHECK(run(b, width, {a.data(), c.data(), out.data()}, 0, middle) == 0);
      CHECK(run(b, width, {a.data(), c.data(), out.data()}, middle, n) == 0);
      for (size_t i = 0; i < count; ++i) CHECK(out[i] == std::max((a[i] + c[i]) * 3.f, 0.f));
      for (size_t i = count; i < out.size(); ++i) CHECK(out[i] == 77.f);
    }
}

TEST_CASE("two parallel axes with a row broadcast; slices that start inside a row") {
  for (int width : widths()) {
    const int64_t rows = 7, columns = 37;
    Builder b;
    const int32_t x = b.param(DType::F32), w = b.param(DType::F32), o = b.param(DType::F32, true);
    auto i = b.axis(b.size(rows), AxisRole::Serial);
    const Expr d = b.size(columns);
    auto j = b.axis(d, AxisRole::Vector);
    b.kernel.parallel = {i, j};
    Stage stage;
    stage.stores = {store(o, i.symbol * d + j.symbol,
                          b.op(ScalarOp::Sub, DType::F32, {b.load(x, i.symbol * d + j.symbol), b.op(ScalarOp::Mul, DType::F32, {b.load(w, j.symbol), b.load(w, i.symbol)})}))};
    b.kernel.stages = {stage};
    auto a = numbers(static_cast<size_t>(rows * columns), 3), c = numbers(static_cast<size_t>(columns), 4);
    std::vector<float> out(a.size(), 0.f);
    for (int64_t from = 0; from < rows * columns; from += 50)
      run(b, width, {a.data(), c.data(), out.data()}, from, std::min(from + 50, rows * columns));
    for (size_t r = 0; r < 7; ++r)
      for (size_t k = 0; k < 37; ++k) CHECK(out[r * 37 + k] == a[r * 37 + k] - c[k] * c[r]);
  }
}

TEST_CASE("softmax of rows: three stages and a scratch row") {
  for (int width : widths())
    for (int64_t columns : {1, 5, 16, 77, 300}) {
      const int64_t rows = 3;
      Builder b;
      const int32_t x = b.param(DType::F32), o = b.param(DType::F32, true);
      auto i = b.axis(b.size(rows), AxisRole::Serial);
      const Expr d = b.size(columns);
      b.kernel.parallel = {i};
      b.kernel.scratch = {{DType::F32, d}};
      auto j0 = b.axis(d, AxisRole::Vector), j1 = b.axis(d, AxisRole::Vector), j2 = b.axis(d, AxisRole::Vector);
      Stage largest, sum, divide;
      largest.loops = {j0};
      largest.accumulators = {{0, ReduceOp::Max, DType::F32, b.load(x, i.symbol * d + j0.symbol), 0}};
      const Scalar* e = b.op(ScalarOp::Exp, DType::F32, {b.op(ScalarOp::Sub, DType::F32, {b.load(x, i.symbol * d + j1.symbol), b.s().reduced(DType::F32, 0)})});
      sum.loops = {j1};
      sum.accumulators = {{1, ReduceOp::Sum, DType::F32, e, 0}};
      sum.inner_stores = {store(-1, j1.symbol, e)};
      divide.loops = {j2};
      divide.stores = {store(o, i.symbol * d + j2.symbol, b.op(ScalarOp::Div, DType::F32, {b.load(-1, j2.symbol), b.s().reduced(DType::F32, 1)}))};
      b.kernel.stages = {largest, sum, divide};
      auto a = numbers(static_cast<size_t>(rows * columns), 5, 10);
      std::vector<float> out(a.size(), 0.f);
      run(b, width, {a.data(), out.data()}, 0, rows);
      for (size_t r = 0; r < 3; ++r) {
        const auto n = static_cast<size_t>(columns);
        const float* row = a.data() + r * n;
        const double top = *std::max_element(row, row + n);
        double total = 0;
        for (size_t k = 0; k < n; ++k) total += std::exp(row[k] - top);
        for (size_t k = 0; k < n; ++k) CHECK(out[r * n + k] == doctest::Approx(std::exp(row[k] - top) / total).epsilon(1e-6));
      }
    }
}

TEST_CASE("layer norm: uniform values of a row stand outside of its loops") {
  for (int width : widths()) {
    const int64_t rows = 4, columns = 133;
    Builder b;
    const int32_t x = b.param(DType::F32), w = b.param(DType::F32), o = b.param(DType::F32, true);
    auto i = b.axis(b.size(rows), AxisRole::Serial);
    const Expr d = b.size(columns);
    b.kernel.parallel = {i};
    auto j0 = b.axis(d, AxisRole::Vector), j1 = b.axis(d, AxisRole::Vector), j2 = b.axis(d, AxisRole::Vector);
    const Scalar* n = b.s().cast(b.s().index(d), DType::F32);
    const Scalar* mean = b.op(ScalarOp::Div, DType::F32, {b.s().reduced(DType::F32, 0), n});
    auto centred = [&](Expr j) { return b.op(ScalarOp::Sub, DType::F32, {b.load(x, i.symbol * d + j), mean}); };
    const Scalar* square = b.op(ScalarOp::Mul, DType::F32, {centred(j1.symbol), centred(j1.symbol)});
    const Scalar* scale = b.op(ScalarOp::Rsqrt, DType::F32, {b.op(ScalarOp::Add, DType::F32, {b.op(ScalarOp::Div, DType::F32, {b.s().reduced(DType::F32, 1), n}), b.f32(1e-5)})});
    Stage s0, s1, s2;
    s0.loops = {j0};
    s0.accumulators = {{0, ReduceOp::Sum, DType::F32, b.load(x, i.symbol * d + j0.symbol), 0}};
    s1.loops = {j1};
    s1.accumulators = {{1, ReduceOp::Sum, DType::F32, square, 0}};
    s2.loops = {j2};
    s2.stores = {store(o, i.symbol * d + j2.symbol, b.op(ScalarOp::Mul, DType::F32, {b.op(ScalarOp::Mul, DType::F32, {centred(j2.symbol), scale}), b.load(w, j2.symbol)}))};
    b.kernel.stages = {s0, s1, s2};
    auto a = numbers(static_cast<size_t>(rows * columns), 6), c = numbers(static_cast<size_t>(columns), 7);
    std::vector<float> out(a.size(), 0.f);
    run(b, width, {a.data(), c.data(), out.data()}, 0, rows);
    for (size_t r = 0; r < 4; ++r) {
      const float* row = a.data() + r * 133;
      const double m = std::accumulate(row, row + 133, 0.0) / 133;
      double v = 0;
      for (size_t k = 0; k < 133; ++k) v += (row[k] - m) * (row[k] - m) / 133;
      for (size_t k = 0; k < 133; ++k)
        CHECK(out[r * 133 + k] == doctest::Approx((row[k] - m) / std::sqrt(v + 1e-5) * c[k]).epsilon(2e-6));
    }
    const schedule::Kernel* one[] = {&b.kernel};
    const std::string name[] = {"k"};
    const std::string text = codegen::emit_cpp(one, name, target_of(width));
    CHECK(text.find("sqrt_f") < text.rfind("for (; x"));
  }
}

TEST_CASE("sum along the outer axis: one result per lane") {
  for (int width : widths())
    for (int64_t rows : {1, 3, 1000}) {
      const int64_t columns = 151;
      Builder b;
      const int32_t x = b.param(DType::F32), o = b.param(DType::F32, true);
      const Expr d = b.size(columns), n = b.size(rows);
      auto j = b.axis(d, AxisRole::Vector), r = b.axis(n, AxisRole::Serial);
      b.kernel.parallel = {j};
      Stage stage;
      stage.loops = {r};
      stage.accumulators = {{0, ReduceOp::Sum, DType::F32, b.load(x, r.symbol * d + j.symbol), 0}};
      stage.stores = {store(o, j.symbol, b.s().reduced(DType::F32, 0))};
      b.kernel.stages = {stage};
      auto a = numbers(static_cast<size_t>(rows * columns), 8);
      std::vector<float> out(static_cast<size_t>(columns), 0.f);
      run(b, width, {a.data(), out.data()}, 0, columns);
      for (size_t k = 0; k < out.size(); ++k) {
        double sum = 0;
        for (size_t q = 0; q < static_cast<size_t>(rows); ++q) sum += a[q * out.size() + k];
        CHECK(out[k] == doctest::Approx(sum).epsilon(1e-5).scale(1));
      }
    }
}

TEST_CASE("a long sum is as exact as one in double, nearly") {
  for (int width : widths()) {
    const int64_t n = 1000003;
    Builder b;
    const int32_t x = b.param(DType::F32), o = b.param(DType::F32, true);
    auto i = b.axis(1, AxisRole::Serial), j = b.axis(b.size(n), AxisRole::Vector);
    b.kernel.parallel = {i};
    Stage stage;
    stage.loops = {j};
    stage.accumulators = {{0, ReduceOp::Sum, DType::F32, b.load(x, j.symbol), 0}};
    stage.stores = {store(o, 0, b.s().reduced(DType::F32, 0))};
    b.kernel.stages = {stage};
    auto a = numbers(static_cast<size_t>(n), 9);
    for (float& v : a) v = std::fabs(v) + 0.1f;
    float out = 0;
    run(b, width, {a.data(), &out}, 0, 1);
    const double exact = std::accumulate(a.begin(), a.end(), 0.0);
    CHECK(std::fabs(out - exact) / exact < 3e-7);
  }
}

TEST_CASE("reductions: product, minimum with NaN, any, all, xor, first index of the extreme") {
  for (int width : widths())
    for (int64_t n : {1, 40, 333}) {
      Builder b;
      const int32_t x = b.param(DType::F32), z = b.param(DType::I64), o = b.param(DType::F32, true), q = b.param(DType::I64, true);
      auto i = b.axis(1, AxisRole::Serial), j = b.axis(b.size(n), AxisRole::Vector);
      b.kernel.parallel = {i};
      const Scalar *v = b.load(x, j.symbol), *w = b.load(z, j.symbol);
      const Scalar* big = b.op(ScalarOp::Gt, DType::Bool, {v, b.f32(1.9)});
      Stage stage, more;
      stage.loops = {j};
      stage.accumulators = {{0, ReduceOp::Min, DType::F32, v, 0},     {1, ReduceOp::Any, DType::Bool, big, 0},
                            {2, ReduceOp::All, DType::Bool, big, 0},  {3, ReduceOp::Xor, DType::I64, w, 0},
                            {4, ReduceOp::Sum, DType::I64, w, 0},     {5, ReduceOp::ArgMax, DType::F32, v, j.symbol},
                            {6, ReduceOp::ArgMin, DType::I64, w, j.symbol}, {7, ReduceOp::Prod, DType::I64, w, 0}};
      auto as_long = [&](DType dtype, int64_t k) { return b.s().cast(b.s().reduced(dtype, k), DType::I64); };
      stage.stores = {store(o, 0, b.s().reduced(DType::F32, 0)), store(q, 0, as_long(DType::Bool, 1)), store(q, 1, as_long(DType::Bool, 2)),
                      store(q, 2, as_long(DType::I64, 3)), store(q, 3, as_long(DType::I64, 4)), store(q, 4, as_long(DType::I64, 5)),
                      store(q, 5, as_long(DType::I64, 6)), store(q, 6, as_long(DType::I64, 7))};
      b.kernel.stages = {stage};
      const auto count = static_cast<size_t>(n);
      auto a = numbers(count, 10);
      std::vector<int64_t> c(count);
      for (size_t k = 0; k < count; ++k) c[k] = static_cast<int64_t>(a[k] * 1000) | 1;
      if (n > 100) { a[50] = a[70] = 5; c[60] = c[90] = -100000001; }
      float out = 0;
      std::vector<int64_t> got(7);
      run(b, width, {a.data(), c.data(), &out, got.data()}, 0, 1);
      CHECK(out == *std::min_element(a.begin(), a.end()));
      CHECK(got[0] == std::any_of(a.begin(), a.end(), [](float f) { return f > 1.9f; }));
      CHECK(got[1] == std::all_of(a.begin(), a.end(), [](float f) { return f > 1.9f; }));
      int64_t exclusive = 0;
      uint64_t total = 0, product = 1;
      for (int64_t k : c) { exclusive ^= k; total += static_cast<uint64_t>(k); product *= static_cast<uint64_t>(k); }
      CHECK(got[2] == exclusive);
      CHECK(got[3] == static_cast<int64_t>(total));
      CHECK(got[4] == std::max_element(a.begin(), a.end()) - a.begin());
      CHECK(got[5] == std::min_element(c.begin(), c.end()) - c.begin());
      CHECK(got[6] == static_cast<int64_t>(product));
      a[count / 2] = std::numeric_limits<float>::quiet_NaN();
      run(b, width, {a.data(), c.data(), &out, got.data()}, 0, 1);
      CHECK(std::isnan(out));
      CHECK(got[4] == static_cast<int64_t>(count / 2));
      std::fill(a.begin(), a.end(), -std::numeric_limits<float>::infinity());
      run(b, width, {a.data(), c.data(), &out, got.data()}, 0, 1);
      CHECK(got[4] == 0);
    }
}

TEST_CASE("embedding: rows by number, numbers checked") {
  for (int width : widths()) {
    const int64_t rows = 9, columns = 50, table = 20;
    Builder b;
    const int32_t w = b.param(DType::F32), at = b.param(DType::I64), o = b.param(DType::F32, true);
    auto i = b.axis(b.size(rows), AxisRole::Serial);
    const Expr d = b.size(columns), extent = b.size(table);
    auto j = b.axis(d, AxisRole::Vector);
    b.kernel.parallel = {i};
    const Scalar* number = b.load(at, i.symbol);
    const Scalar* wrapped = b.op(ScalarOp::Where, DType::I64, {b.op(ScalarOp::Lt, DType::Bool, {number, b.s().constant_int(DType::I64, 0)}), b.op(ScalarOp::Add, DType::I64, {number, b.s().index(extent)}), number});
    const loop::Binding row{b.kernel.context->fresh("j", {}), wrapped, extent};
    Stage stage;
    stage.loops = {j};
    stage.stores = {store(o, i.symbol * d + j.symbol, b.s().load(w, DType::F32, {row.symbol * d + j.symbol}, {row}))};
    b.kernel.stages = {stage};
    auto a = numbers(static_cast<size_t>(table * columns), 11);
    std::vector<int64_t> k = {3, 0, 19, 7, -1, 3, -20, 11, 2};
    std::vector<float> out(static_cast<size_t>(rows * columns));
    CHECK(run(b, width, {a.data(), k.data(), out.data()}, 0, rows) == 0);
    for (size_t r = 0; r < 9; ++r)
      for (size_t c = 0; c < 50; ++c) CHECK(out[r * 50 + c] == a[static_cast<size_t>((k[r] + 20) % 20) * 50 + c]);
    k[5] = 20;
    CHECK(run(b, width, {a.data(), k.data(), out.data()}, 0, rows) == 1);
    k[5] = -21;
    CHECK(run(b, width, {a.data(), k.data(), out.data()}, 0, rows) == 1);
  }
}

TEST_CASE("a gather along the lanes, and a strided load; exact bounds") {
  for (int width : widths()) {
    const int64_t n = 45;
    Builder b;
    const int32_t x = b.param(DType::F32), at = b.param(DType::I64), o = b.param(DType::F32, true);
    const Expr count = b.size(n);
    auto j = b.axis(count, AxisRole::Vector);
    b.kernel.parallel = {j};
    const loop::Binding picked{b.kernel.context->fresh("j", {}), b.load(at, j.symbol), count};
    Stage stage;
    stage.stores = {store(o, j.symbol, b.op(ScalarOp::Add, DType::F32, {b.s().load(x, DType::F32, {picked.symbol}, {picked}), b.load(x, j.symbol * Expr(3))}))};
    b.kernel.stages = {stage};
    auto a = numbers(static_cast<size_t>(3 * n - 2), 12);
    std::vector<int64_t> k(static_cast<size_t>(n));
    for (size_t q = 0; q < k.size(); ++q) k[q] = static_cast<int64_t>((q * 17) % k.size());
    std::vector<float> out(k.size());
    CHECK(run(b, width, {a.data(), k.data(), out.data()}, 0, n) == 0);
    for (size_t q = 0; q < k.size(); ++q) CHECK(out[q] == a[static_cast<size_t>(k[q])] + a[3 * q]);
    k[44] = n;
    CHECK(run(b, width, {a.data(), k.data(), out.data()}, 0, n) == 1);
  }
}

TEST_CASE("every second element, and backwards; several types and lengths") {
  for (int width : widths())
    for (int64_t n : {1, 2, 8, 9, 16, 17, 50})
      for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::U8}) {
        Builder b;
        const int32_t x = b.param(dtype), o = b.param(dtype, true), q = b.param(dtype, true), narrow = b.param(DType::F32);
        const Expr count = b.size(n);
        auto j = b.axis(count, AxisRole::Vector);
        b.kernel.parallel = {j};
        (void)narrow;
        Stage stage;
        stage.stores = {store(o, j.symbol, b.load(x, j.symbol * Expr(2) + 1)), store(q, j.symbol, b.load(x, count - 1 - j.symbol))};
        b.kernel.stages = {stage};
        const auto bytes = static_cast<size_t>(size_of(dtype)), m = static_cast<size_t>(n);
        std::vector<unsigned char> in(2 * m * bytes), even(m * bytes + 8, 7), back(m * bytes + 8, 7);
        for (size_t k = 0; k < in.size(); ++k) in[k] = static_cast<unsigned char>(k * 37 % 97);
        float unused = 0;
        run(b, width, {in.data(), even.data(), back.data(), &unused}, 0, n);
        for (size_t k = 0; k < m; ++k) {
          CHECK(std::equal(&even[k * bytes], &even[k * bytes] + bytes, &in[(2 * k + 1) * bytes]));
          CHECK(std::equal(&back[k * bytes], &back[k * bytes] + bytes, &in[(m - 1 - k) * bytes]));
        }
        CHECK(even[m * bytes] == 7);
        CHECK(back[m * bytes] == 7);
      }
}

TEST_CASE("window maximum: unrolled loops, masked loads at the border") {
  for (int width : widths()) {
    const int64_t h = 5, w = 41, oh = 5, ow = 41;
    Builder b;
    const int32_t x = b.param(DType::F32), o = b.param(DType::F32, true);
    const Expr height = b.size(h), wide = b.size(w);
    auto i = b.axis(b.size(oh), AxisRole::Serial), j = b.axis(b.size(ow), AxisRole::Vector);
    auto di = b.axis(3, AxisRole::Unrolled), dj = b.axis(3, AxisRole::Unrolled);
    b.kernel.parallel = {i, j};
    const Expr r = i.symbol + di.symbol - 1, c = j.symbol + dj.symbol - 1;
    auto inside = [&](Expr e, Expr high) {
      return b.op(ScalarOp::BitAnd, DType::Bool, {b.op(ScalarOp::Ge, DType::Bool, {b.s().index(e), b.s().constant_int(DType::I64, 0)}), b.op(ScalarOp::Lt, DType::Bool, {b.s().index(e), b.s().index(high)})});
    };
    const Scalar* mask = b.op(ScalarOp::BitAnd, DType::Bool, {inside(r, height), inside(c, wide)});
    Stage stage;
    stage.loops = {di, dj};
    stage.accumulators = {{0, ReduceOp::Max, DType::F32, b.s().load_masked(x, DType::F32, {r * wide + c}, {}, mask, b.f32(-std::numeric_limits<double>::infinity())), 0}};
    stage.stores = {store(o, i.symbol * wide + j.symbol, b.s().reduced(DType::F32, 0))};
    b.kernel.stages = {stage};
    auto a = numbers(static_cast<size_t>(h * w), 13);
    std::vector<float> out(a.size());
    run(b, width, {a.data(), out.data()}, 0, oh * ow);
    for (int64_t p = 0; p < oh; ++p)
      for (int64_t q = 0; q < ow; ++q) {
        float best = -INFINITY;
        for (int64_t y = p - 1; y <= p + 1; ++y)
          for (int64_t z = q - 1; z <= q + 1; ++z)
            if (y >= 0 && y < h && z >= 0 && z < w) best = std::max(best, a[static_cast<size_t>(y * w + z)]);
        CHECK(out[static_cast<size_t>(p * ow + q)] == best);
      }
  }
}

TEST_CASE("running sums along the lanes and along rows, inclusive and exclusive") {
  for (int width : widths())
    for (bool exclusive : {false, true}) {
      const int64_t rows = 3, columns = 53;
      Builder b;
      const int32_t x = b.param(DType::F32), o = b.param(DType::F32, true);
      const Expr d = b.size(columns), n = b.size(rows);
      auto i = b.axis(n, AxisRole::Serial), j = b.axis(d, AxisRole::Vector);
      b.kernel.parallel = {i};
      Stage stage;
      stage.scan = true;
      stage.exclusive = exclusive;
      stage.loops = {j};
      stage.accumulators = {{0, ReduceOp::Sum, DType::F64, b.s().cast(b.load(x, i.symbol * d + j.symbol), DType::F64), 0}};
      stage.inner_stores = {store(o, i.symbol * d + j.symbol, b.s().cast(b.s().reduced(DType::F64, 0), DType::F32))};
      b.kernel.stages = {stage};
      auto a = numbers(static_cast<size_t>(rows * columns), 14);
      std::vector<float> out(a.size());
      run(b, width, {a.data(), out.data()}, 0, rows);
      for (size_t r = 0; r < 3; ++r) {
        double sum = 0;
        for (size_t k = 0; k < 53; ++k) {
          if (!exclusive) sum += a[r * 53 + k];
          CHECK(out[r * 53 + k] == doctest::Approx(sum).epsilon(1e-6).scale(1));
          if (exclusive) sum += a[r * 53 + k];
        }
      }
      Builder c;   // along rows: lanes are columns
      const int32_t x2 = c.param(DType::F32), o2 = c.param(DType::F32, true);
      const Expr d2 = c.size(columns), n2 = c.size(rows);
      auto j2 = c.axis(d2, AxisRole::Vector), i2 = c.axis(n2, AxisRole::Serial);
      c.kernel.parallel = {j2};
      Stage down;
      down.scan = true;
      down.exclusive = exclusive;
      down.loops = {i2};
      down.accumulators = {{0, ReduceOp::Sum, DType::F32, c.load(x2, i2.symbol * d2 + j2.symbol), 0}};
      down.inner_stores = {store(o2, i2.symbol * d2 + j2.symbol, c.s().reduced(DType::F32, 0))};
      c.kernel.stages = {down};
      run(c, width, {a.data(), out.data()}, 0, columns);
      for (size_t k = 0; k < 53; ++k) {
        float sum = 0;
        for (size_t r = 0; r < 3; ++r) {
          if (!exclusive) sum += a[r * 53 + k];
          CHECK(out[r * 53 + k] == sum);
          if (exclusive) sum += a[r * 53 + k];
        }
      }
    }
}

TEST_CASE("scatter: lanes that meet in one place are added in order") {
  for (int width : widths()) {
    const int64_t n = 70, places = 5;
    Builder b;
    const int32_t x = b.param(DType::F32), at = b.param(DType::I64), o = b.param(DType::F32, true);
    auto i = b.axis(1, AxisRole::Serial), j = b.axis(b.size(n), AxisRole::Vector);
    b.kernel.parallel = {i};
    const loop::Binding place{b.kernel.context->fresh("j", {}), b.load(at, j.symbol), b.size(places)};
    Stage stage;
    stage.loops = {j};
    Store add = store(o, place.symbol, b.load(x, j.symbol));
    add.bindings = {place};
    add.combine = Store::Combine::Add;
    stage.stores = {add};
    b.kernel.stages = {stage};
    auto a = numbers(static_cast<size_t>(n), 15);
    std::vector<int64_t> k(a.size());
    for (size_t q = 0; q < k.size(); ++q) k[q] = static_cast<int64_t>((q * q) % 5);
    std::vector<float> out(5, 1.f), expected(5, 1.f);
    CHECK(run(b, width, {a.data(), k.data(), out.data()}, 0, 1) == 0);
    for (size_t q = 0; q < k.size(); ++q) expected[static_cast<size_t>(k[q])] += a[q];
    CHECK(out == expected);
  }
}

TEST_CASE("a scratch row beyond 64 KB") {
  const int64_t n = 30000;
  Builder b;
  const int32_t x = b.param(DType::F32), o = b.param(DType::F32, true);
  const Expr d = b.size(n);
  auto i = b.axis(2, AxisRole::Serial), j0 = b.axis(d, AxisRole::Vector), j1 = b.axis(d, AxisRole::Vector);
  b.kernel.parallel = {i};
  b.kernel.scratch = {{DType::F32, d}, {DType::F32, d}};
  Stage fill, use;
  fill.loops = {j0};
  fill.stores = {store(-1, j0.symbol, b.op(ScalarOp::Neg, DType::F32, {b.load(x, i.symbol * d + j0.symbol)})), store(-2, j0.symbol, b.load(x, i.symbol * d + j0.symbol))};
  use.loops = {j1};
  use.stores = {store(o, i.symbol * d + j1.symbol, b.op(ScalarOp::Sub, DType::F32, {b.load(-1, j1.symbol), b.load(-2, j1.symbol)}))};
  b.kernel.stages = {fill, use};
  auto a = numbers(static_cast<size_t>(2 * n), 16);
  std::vector<float> out(a.size());
  for (int width : widths()) {
    run(b, width, {a.data(), out.data()}, 0, 2);
    for (size_t k = 0; k < a.size(); ++k) REQUIRE(out[k] == -a[k] - a[k]);
  }
}

TEST_CASE("two axes, one operand transposed: tiles of all sizes and several types") {
  for (int width : widths())
    for (auto [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {16, 16}, {64, 70}, {33, 5}, {40, 129}})
      for (DType dtype : {DType::F32, DType::I64, DType::BF16, DType::U8}) {
        Builder b;
        const int32_t x = b.param(dtype), y = b.param(dtype), o = b.param(dtype, true);
        const Expr n = b.size(rows), d = b.size(columns);
        auto block = b.axis(1, AxisRole::Serial), i = b.axis(n, AxisRole::Serial), j = b.axis(d, AxisRole::Vector);
        b.kernel.kind = schedule::NestKind::Tile2D;
        b.kernel.parallel = {block};
        Stage stage;
        stage.loops = {i, j};
        const Scalar* across = b.load(x, j.symbol * n + i.symbol);
        stage.stores = {store(o, i.symbol * d + j.symbol, b.op(ScalarOp::Maximum, dtype, {across, b.load(y, i.symbol * d + j.symbol)}))};
        b.kernel.stages = {stage};
        const schedule::Kernel* one[] = {&b.kernel};
        const std::string name[] = {"k"};
        CHECK(codegen::emit_cpp(one, name, target_of(width)).find("tile_in") != std::string::npos);
        const auto count = static_cast<size_t>(rows * columns), bytes = static_cast<size_t>(size_of(dtype));
        std::vector<unsigned char> p(count * bytes), q(count * bytes), out(count * bytes + 64, 99);
        const auto r = numbers(count, 17), t = numbers(count, 18);
        // Positive numbers of each type order as their bits do.
        auto put = [&](std::vector<unsigned char>& to, size_t k, float v) {
          const auto number = static_cast<uint64_t>((v + 2) * 30) + 1;
          for (size_t c = 0; c < bytes; ++c) to[k * bytes + c] = static_cast<unsigned char>(number >> (8 * c));
        };
        for (size_t k = 0; k < count; ++k) { put(p, k, r[k]); put(q, k, t[k]); }
        run(b, width, {p.data(), q.data(), out.data()}, 0, 1);
        auto get = [&](const std::vector<unsigned char>& from, size_t k) { return from[k * bytes]; };
        for (size_t c = 0; c < static_cast<size_t>(rows); ++c)
          for (size_t k = 0; k < static_cast<size_t>(columns); ++k)
            CHECK(get(out, c * static_cast<size_t>(columns) + k) == std::max(get(p, k * static_cast<size_t>(rows) + c), get(q, c * static_cast<size_t>(columns) + k)));
        CHECK(out[count * bytes] == 99);
      }
}
