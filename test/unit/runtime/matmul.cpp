#include "braze/runtime/cpu/matmul.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include "braze/runtime/cpu/isa.h"

using namespace braze::runtime;

namespace {

struct Case {
  Element element;
  int64_t m, n, k;
  bool a_transposed, b_transposed, bias;
};

constexpr std::array kElements = {Element::F32, Element::BF16, Element::F16};

std::vector<float> random_floats(size_t count, std::mt19937& rng) {
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> out(count);
  for (float& x : out) x = uniform(rng);
  return out;
}

// Numbers of an element type in memory. The 16-bit ones are multiples of 1/64 in [-1, 1], which both types hold exactly;
// a result is decoded by its bits.
class Numbers {
 public:
  Numbers(Element element, std::vector<float> values) : element_(element), values_(std::move(values)) {
    if (element == Element::F32) return;
    for (float& x : values_) {
      x = std::round(x * 64) / 64;
      bits_.push_back(encode(x));
    }
  }
  void* data() { return element_ == Element::F32 ? static_cast<void*>(values_.data()) : bits_.data(); }
  double operator[](int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return static_cast<double>(element_ == Element::F32 ? values_[at] : decode(bits_[at]));
  }
  std::vector<double> all() const {
    std::vector<double> out;
    for (size_t i = 0; i < values_.size(); ++i) out.push_back((*this)[static_cast<int64_t>(i)]);
    return out;
  }

 private:
  uint16_t encode(float x) const {
    const auto bits = std::bit_cast<uint32_t>(x);
    if (element_ == Element::BF16) return static_cast<uint16_t>(bits >> 16);
    if (x == 0) return 0;
    return static_cast<uint16_t>((bits >> 16 & 0x8000) | (((bits >> 23 & 0xff) - 112) << 10) | (bits >> 13 & 0x3ff));
  }
  float decode(uint16_t x) const {
    if (element_ == Element::BF16) return std::bit_cast<float>(static_cast<uint32_t>(x) << 16);
    const int exponent = x >> 10 & 31, fraction = x & 1023;
    const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24) : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
    return x & 0x8000 ? -size : size;
  }

  Element element_;
  std::vector<float> values_;
  std::vector<uint16_t> bits_;
};

// Half a unit in the last place, relative.
double rounding(Element element) { return element == Element::F32 ? 1e-6 : element == Element::BF16 ? 1.0 / 256 : 1.0 / 2048; }

// The largest error against a double-precision product, in units of what is allowed: sums within 1e-6 of their magnitudes,
// and one rounding.
double error_of(const Case& c, std::mt19937& rng) {
  const auto numbers = [&](int64_t count) { return Numbers(c.element, random_floats(static_cast<size_t>(count), rng)); };
  Numbers a = numbers(c.m * c.k), b = numbers(c.k * c.n), bias = numbers(c.n), out = numbers(c.m * c.n);
  const MatmulOperand right = c.b_transposed ? MatmulOperand{b.data(), 1, c.k} : MatmulOperand{b.data(), c.n, 1};
  const MatmulOperand left = c.a_transposed ? MatmulOperand{a.data(), 1, c.m} : MatmulOperand{a.data(), c.k, 1};
  matmul(c.element, c.m, c.n, c.k, left, right, out.data(), c.n, c.bias ? bias.data() : nullptr);
  const std::vector<double> x = a.all(), y = b.all();
  double worst = 0;
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < c.n; ++j) {
      double want = c.bias ? bias[j] : 0.0, scale = 1.0;
      for (int64_t k = 0; k < c.k; ++k) {
        const double product = x[static_cast<size_t>(i * left.row_stride + k * left.column_stride)] *
                               y[static_cast<size_t>(k * right.row_stride + j * right.column_stride)];
        want += product;
        scale += std::fabs(product);
      }
      const double allowed = 1e-6 * scale + (c.element == Element::F32 ? 0 : rounding(c.element) * std::fabs(want));
      worst = std::max(worst, std::fabs(want - out[i * c.n + j]) / allowed);
    }
  return worst;
}

}  // namespace

TEST_CASE("products of every shape class agree with double precision") {
  if (!matmul_available()) return;
  std::mt19937 rng(20240611);
  for (Element element : kElements)
    for (int64_t m : {1, 3, 4, 6, 7, 64, 97, 130})
      for (int64_t n : {1, 3, 16, 63, 64, 65, 200})
        for (int64_t k : {1, 2, 15, 16, 17, 33, 513, 1101})
          for (int transposed = 0; transposed < 4; ++transposed) {
            if (m * n * k > 300'000 && (m + n + k + transposed + static_cast<int>(element)) % 5 != 0) continue;   // for time
            const Case c{element, m, n, k, transposed % 2 == 1, transposed / 2 == 1, (m + n) % 2 == 0};
            CAPTURE(static_cast<int>(element)); CAPTURE(m); CAPTURE(n); CAPTURE(k); CAPTURE(transposed);
            CHECK(error_of(c, rng) < 1);
          }
  // More rows of B than are packed at once.
  for (Element element : kElements) {
    CHECK(error_of({element, 101, 70, 3333, false, false, true}, rng) < 1);
    CHECK(error_of({element, 700, 9, 3333, false, true, false}, rng) < 1);
  }
}

TEST_CASE("the number of threads changes no bit of a product") {
  if (!matmul_available()) return;
  std::mt19937 rng(11);
  const int given = at::get_num_threads();
  for (auto [m, n, k] : {std::array<int64_t, 3>{129, 65, 1025}, {250, 50, 2100}, {1000, 333, 77}, {40, 31, 200}, {30, 1000, 64},
                         {3, 77, 1300}, {700, 9, 3333}, {64, 600, 3333}})
    for (Element element : kElements)
      for (bool transposed : {false, true}) {
        const auto numbers = [&](int64_t count) { return Numbers(element, random_floats(static_cast<size_t>(count), rng)); };
        Numbers a = numbers(m * k), b = numbers(k * n), out = numbers(m * n), one = out;
        const MatmulOperand left{a.data(), k, 1}, right = transposed ? MatmulOperand{b.data(), 1, k} : MatmulOperand{b.data(), n, 1};
        at::set_num_threads(1);
        matmul(element, m, n, k, left, right, one.data(), n);
        for (int threads : {2, 3, 5, 16}) {
          at::set_num_threads(threads);
          matmul(element, m, n, k, left, right, out.data(), n);
          CAPTURE(m); CAPTURE(n); CAPTURE(k); CAPTURE(transposed); CAPTURE(threads); CAPTURE(static_cast<int>(element));
          CHECK(out.all() == one.all());
        }
      }
  at::set_num_threads(given);
}

TEST_CASE("a batch of products is each product by itself") {
  if (!matmul_available()) return;
  std::mt19937 rng(3);
  const int64_t m = 9, n = 70, k = 33;
  for (int64_t batches : {1, 3, 40}) {
    const std::vector<float> a = random_floats(static_cast<size_t>(batches * m * k), rng), b = random_floats(static_cast<size_t>(batches * k * n), rng);
    std::vector<float> out(static_cast<size_t>(batches * m * n)), one(static_cast<size_t>(m * n));
    matmul_batch(Element::F32, batches, m, n, k, {a.data(), k, 1}, m * k, {b.data(), n, 1}, k * n, out.data(), n, m * n);
    for (int64_t i = 0; i < batches; ++i) {
      matmul(Element::F32, m, n, k, {a.data() + i * m * k, k, 1}, {b.data() + i * k * n, n, 1}, one.data(), n);
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
    isa->single.pack(b.data(), 1, k, k, isa->panel, packed.data());
    isa->single.multiply(m, isa->panel, k, a.data(), k, packed.data(), c.data(), isa->panel, false);
    isa->single.dot(m, isa->panel, k, a.data(), k, b.data(), k, d.data(), isa->panel, false);
    for (size_t i = 0; i < c.size(); ++i) CHECK(std::fabs(c[i] - d[i]) < 1e-4f);
    const int64_t few = cpu::kMostSummedRows, wide = 2 * isa->panel;   // B [k, columns], a part of them
    const std::vector<float> rows_of_b = random_floats(static_cast<size_t>(k * wide), rng);
    std::vector<float> sums(static_cast<size_t>(few * wide));
    isa->single.sum_rows(few, wide - 5, k, a.data(), k, rows_of_b.data(), wide, sums.data(), wide);
    for (int64_t i = 0; i < few; ++i)
      for (int64_t j = 0; j < wide - 5; ++j) {
        double want = 0;
        for (int64_t l = 0; l < k; ++l)
          want += static_cast<double>(a[static_cast<size_t>(i * k + l)]) * static_cast<double>(rows_of_b[static_cast<size_t>(l * wide + j)]);
        CHECK(std::fabs(want - static_cast<double>(sums[static_cast<size_t>(i * wide + j)])) < 1e-5);
      }
    // 16-bit elements by the same tiles: of numbers that they hold exactly, the sums are equal in every set.
    std::vector<std::pair<Element, const cpu::Products*>> kinds = {{Element::BF16, &isa->bfloat}, {Element::F16, &isa->half}};
#if defined(__x86_64__)
    if (isa == &cpu::kAvx512 && __builtin_cpu_supports("avx512bf16")) kinds.emplace_back(Element::BF16, &cpu::kBfloatPairs);
#endif
    for (const auto& [element, kind] : kinds) {
      const cpu::Products& products = *kind;
      Numbers x(element, a), y(element, b);
      std::vector<float> rows(a.size());
      products.take_rows(x.data(), k, 1, m, k, rows.data(), k);
      products.pack(y.data(), 1, k, k, isa->panel, packed.data());
      products.multiply(m, isa->panel, k, rows.data(), k, packed.data(), c.data(), isa->panel, false);
      products.dot(m, isa->panel, k, rows.data(), k, y.data(), k, d.data(), isa->panel, false);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < isa->panel; ++j) {
          double want = 0;
          for (int64_t l = 0; l < k; ++l) want += x[i * k + l] * y[j * k + l];
          CHECK(static_cast<double>(c[static_cast<size_t>(i * isa->panel + j)]) == want);
          CHECK(static_cast<double>(d[static_cast<size_t>(i * isa->panel + j)]) == want);
        }
    }
  }
}

TEST_CASE("a product over nothing is the bias") {
  if (!matmul_available()) return;
  for (Element element : kElements) {
    Numbers bias(element, {1.0f, -2.0f}), out(element, {0.5f, 0.5f});
    matmul(element, 1, 2, 0, {bias.data(), 0, 1}, {bias.data(), 2, 1}, out.data(), 2, bias.data());
    CHECK(out[0] == 1.0);
    CHECK(out[1] == -2.0);
  }
}

TEST_CASE("NaN and infinity pass through") {
  if (!matmul_available()) return;
  const float nan = std::nanf("");
  std::vector<float> a = {nan, 1.0f}, b = {1.0f, INFINITY, 0.0f, 1.0f}, out(2);
  matmul(Element::F32, 1, 2, 2, {a.data(), 2, 1}, {b.data(), 2, 1}, out.data(), 2);
  CHECK(std::isnan(out[0]));
  CHECK(std::isnan(out[1]));
  std::vector<uint16_t> x = {0x7f80, 0x3f80}, y = {0x3f80, 0x7fff, 0x3f80, 0x3f80}, z(2);   // bf16: inf, 1; 1, NaN, 1, 1
  matmul(Element::BF16, 1, 2, 2, {x.data(), 2, 1}, {y.data(), 2, 1}, z.data(), 2);
  CHECK(z[0] == 0x7f80);
  CHECK((z[1] & 0x7fff) > 0x7f80);
}
