#include "braze/runtime/cpu/attention.h"

#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "braze/runtime/cpu/isa.h"

using namespace braze::runtime;

namespace {

struct Inputs {
  AttentionShape shape;
  std::vector<float> q, k, v, mask, out;   // q, k, v, out: [batch, length, heads, features]; mask: [queries, keys]

  explicit Inputs(const AttentionShape& s, std::mt19937& rng) : shape(s) {
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& x, int64_t n) {
      x.resize(static_cast<size_t>(n));
      for (float& y : x) y = normal(rng);
    };
    fill(q, s.batch * s.queries * s.heads * s.features);
    fill(k, s.batch * s.keys * s.key_heads * s.features);
    fill(v, s.batch * s.keys * s.key_heads * s.value_features);
    fill(mask, s.queries * s.keys);
    out.assign(static_cast<size_t>(s.batch * s.queries * s.heads * s.value_features), 99.0f);
  }

  static AttentionTensor tensor(std::vector<float>& x, int64_t length, int64_t heads, int64_t features) {
    return {x.data(), length * heads * features, features, heads * features};
  }

  void run(bool causal, bool masked, float scale) {
    const AttentionShape& s = shape;
    AttentionMask m;
    if (masked) m = {mask.data(), 0, 0, s.keys};
    attention(s, tensor(q, s.queries, s.heads, s.features), tensor(k, s.keys, s.key_heads, s.features),
              tensor(v, s.keys, s.key_heads, s.value_features), m, causal, scale,
              tensor(out, s.queries, s.heads, s.value_features));
  }

  double error(bool causal, bool masked, float scale) const {
    const AttentionShape& s = shape;
    double worst = 0;
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t h = 0; h < s.heads; ++h)
        for (int64_t i = 0; i < s.queries; ++i) {
          const int64_t n = causal ? std::min(s.keys, i + 1) : s.keys, g = h / (s.heads / s.key_heads);
          std::vector<double> p(static_cast<size_t>(n));
          double most = -INFINITY, sum = 0;
          for (int64_t j = 0; j < n; ++j) {
            double x = 0;
            for (int64_t f = 0; f < s.features; ++f)
              x += static_cast<double>(q[static_cast<size_t>(((b * s.queries + i) * s.heads + h) * s.features + f)]) *
                   static_cast<double>(k[static_cast<size_t>(((b * s.keys + j) * s.key_heads + g) * s.features + f)]);
            x *= static_cast<double>(scale);
            if (masked) x += static_cast<double>(mask[static_cast<size_t>(i * s.keys + j)]);
            p[static_cast<size_t>(j)] = x;
            most = std::max(most, x);
          }
          for (double& x : p) sum += x = most == -INFINITY ? 0.0 : std::exp(x - most);
          for (int64_t f = 0; f < s.value_features; ++f) {
            double x = 0;
            for (int64_t j = 0; j < n; ++j)
              x += p[static_cast<size_t>(j)] *
                   static_cast<double>(v[static_cast<size_t>(((b * s.keys + j) * s.key_heads + g) * s.value_features + f)]);
            if (sum != 0) x /= sum;
            const float got = out[static_cast<size_t>(((b * s.queries + i) * s.heads + h) * s.value_features + f)];
            worst = std::max(worst, std::fabs(x - static_cast<double>(got)));
          }
        }
    return worst;
  }
};

}  // namespace

TEST_CASE("attention of many shapes agrees with double precision") {
  if (cpu::isa() == nullptr) return;
  std::mt19937 rng(11);
  const AttentionShape shapes[] = {
      {2, 4, 4, 33, 33, 64, 64}, {1, 2, 2, 1, 129, 32, 32},  {1, 4, 2, 50, 50, 40, 24},
      {1, 6, 1, 7, 200, 64, 64}, {1, 1, 1, 260, 260, 16, 16}, {3, 2, 2, 5, 3, 8, 80},
  };
  for (const AttentionShape& shape : shapes)
    for (bool causal : {false, true})
      for (bool masked : {false, true}) {
        Inputs inputs(shape, rng);
        inputs.run(causal, masked, 0.3f);
        CHECK(inputs.error(causal, masked, 0.3f) < 1e-5);   // scores of about 20 in single precision are off by 2e-6
      }
}

TEST_CASE("a row with every key masked out gives zeros") {
  if (cpu::isa() == nullptr) return;
  std::mt19937 rng(3);
  Inputs inputs({1, 1, 1, 4, 70, 16, 16}, rng);
  for (int64_t j = 0; j < 70; ++j) inputs.mask[static_cast<size_t>(2 * 70 + j)] = -INFINITY;
  inputs.mask[5] = -INFINITY;
  inputs.run(false, true, 0.25f);
  CHECK(inputs.error(false, true, 0.25f) < 2e-6);
  for (size_t f = 0; f < 16; ++f) CHECK(inputs.out[2 * 16 + f] == 0.0f);
}
