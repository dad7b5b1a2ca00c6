#include "braze/runtime/cpu/matmul.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "braze/runtime/cpu/isa.h"

using namespace braze::runtime;

namespace {

struct Case {
  int64_t m, n, k;
  bool a_transposed, b_transposed, bias, relu;
};

std::vector<float> random_floats(size_t count, std::mt19937& rng) {
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> out(count);
  for (float& x : out) x = uniform(rng);
  return out;
}

// The largest error relative to the largest possible sum of magnitudes, against a double-precision product.
double error_of(const Case& c, std::mt19937& rng) {
  const auto count = [](int64_t rows, int64_t columns) { return static_cast<size_t>(rows * columns); };
  const std::vector<float> a = random_floats(count(c.m, c.k), rng), b = random_floats(count(c.k, c.n), rng),
                           bias = random_floats(static_cast<size_t>(c.n), rng);
  std::vector<float> out(count(c.m, c.n), 99.0f);
  const MatmulOperand right = c.b_transposed ? MatmulOperand{b.data(), 1, c.k} : MatmulOperand{b.data(), c.n, 1};
  const MatmulOperand left = c.a_transposed ? MatmulOperand{a.data(), 1, c.m} : MatmulOperand{a.data(), c.k, 1};
  matmul(c.m, c.n, c.k, left, right, out.data(), c.n, {c.bias ? bias.data() : nullptr, c.relu});
  double worst = 0;
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < c.n; ++j) {
      double want = c.bias ? static_cast<double>(bias[static_cast<size_t>(j)]) : 0.0, scale = 1.0;
      for (int64_t k = 0; k < c.k; ++k) {
        const double product = static_cast<double>(left.data[i * left.row_stride + k * left.column_stride]) *
                               static_cast<double>(right.data[k * right.row_stride + j * right.column_stride]);
        want += product;
        scale += std::fabs(product);
      }
      if (c.relu && want < 0) want = 0;
      worst = std::max(worst, std::fabs(want - static_cast<double>(out[static_cast<size_t>(i * c.n + j)])) / scale);
    }
  return worst;
}

}  // namespace

TEST_CASE("products of every shape class agree with double precision") {
  if (!matmul_available()) return;
  std::mt19937 rng(20240611);
  for (int64_t m : {1, 2, 5, 6, 7, 64, 96, 97, 130})
    for (int64_t n : {1, 3, 16, 63, 64, 65, 200})
      for (int64_t k : {1, 15, 16, 17, 513, 1100})
        for (int transposed = 0; transposed < 4; ++transposed) {
          const Case c{m, n, k, transposed % 2 == 1, transposed / 2 == 1, (m + n) % 2 == 0, (m + k) % 3 == 0};
          CAPTURE(m); CAPTURE(n); CAPTURE(k); CAPTURE(transposed);
          CHECK(error_of(c, rng) < 1e-6);
        }
}

TEST_CASE("a batch of products is each product by itself") {
  if (!matmul_available()) return;
  std::mt19937 rng(3);
  const int64_t m = 9, n = 70, k = 33;
  for (int64_t batches : {1, 3, 40}) {
    const std::vector<float> a = random_floats(static_cast<size_t>(batches * m * k), rng), b = random_floats(static_cast<size_t>(batches * k * n), rng);
    std::vector<float> out(static_cast<size_t>(batches * m * n)), one(static_cast<size_t>(m * n));
    matmul_batch(batches, m, n, k, {a.data(), k, 1}, m * k, {b.data(), n, 1}, k * n, out.data(), n, m * n);
    for (int64_t i = 0; i < batches; ++i) {
      matmul(m, n, k, {a.data() + i * m * k, k, 1}, {b.data() + i * k * n, n, 1}, one.data(), n, {});
      CHECK(std::equal(one.begin(), one.end(), out.begin() + i * m * n));
    }
  }
}

TEST_CASE("every built instruction set that this machine has agrees") {
  std::mt19937 rng(7);
  std::vector<const cpu::Isa*> sets;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) sets.push_back(&cpu::kAvx512);
  if (__builtin_cpu_supports("avx2")) sets.push_back(&cpu::kAvx2);
#endif
  for (const cpu::Isa* isa : sets) {
    const int64_t m = 13, k = 37;
    const std::vector<float> a = random_floats(static_cast<size_t>(m * k), rng);
    const std::vector<float> b = random_floats(static_cast<size_t>(isa->panel * k), rng);   // [panel, k]
    std::vector<float> packed(static_cast<size_t>(isa->panel * k)), c(static_cast<size_t>(m * isa->panel)), d(c.size());
    isa->pack(b.data(), 1, k, k, isa->panel, packed.data());
    isa->multiply(m, k, a.data(), k, packed.data(), c.data(), isa->panel, false, nullptr, false);
    isa->dot(m, isa->panel, k, a.data(), k, b.data(), k, d.data(), isa->panel, false, nullptr, false);
    for (size_t i = 0; i < c.size(); ++i) CHECK(std::fabs(c[i] - d[i]) < 1e-4f);
  }
}

TEST_CASE("a product over nothing is the bias") {
  if (!matmul_available()) return;
  std::vector<float> bias = {1.0f, -2.0f}, out = {9.0f, 9.0f};
  matmul(1, 2, 0, {bias.data(), 0, 1}, {bias.data(), 2, 1}, out.data(), 2, {bias.data(), true});
  CHECK(out[0] == 1.0f);
  CHECK(out[1] == 0.0f);
}

TEST_CASE("NaN and infinity pass through") {
  if (!matmul_available()) return;
  const float nan = std::nanf("");
  std::vector<float> a = {nan, 1.0f}, b = {1.0f, INFINITY, 0.0f, 1.0f}, out(2);
  matmul(1, 2, 2, {a.data(), 2, 1}, {b.data(), 2, 1}, out.data(), 2, {nullptr, true});
  CHECK(std::isnan(out[0]));
  CHECK(std::isnan(out[1]));
}
