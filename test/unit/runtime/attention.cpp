#include "braze/runtime/cpu/attention.h"

#include <algorithm>
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
  std::vector<float> log_sums;             // [batch, heads, queries]

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
    if (masked) m = {mask.data(), Element::F32, 0, 0, s.keys};
    attention(Element::F32, s, tensor(q, s.queries, s.heads, s.features), tensor(k, s.keys, s.key_heads, s.features),
              tensor(v, s.keys, s.key_heads, s.value_features), m, causal, scale,
              tensor(out, s.queries, s.heads, s.value_features), rows());
  }

  AttentionRows rows() {
    log_sums.resize(static_cast<size_t>(shape.batch * shape.heads * shape.queries));
    return {log_sums.data(), shape.heads * shape.queries, shape.queries, 1};
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

// The largest error of the three gradients against the definition in double precision; heads == key_heads.
double gradient_error(Inputs& x, bool causal, bool masked, float scale, std::mt19937& rng) {
  const AttentionShape& s = x.shape;
  x.run(causal, masked, scale);
  std::normal_distribution<float> normal;
  std::vector<float> grad_out(x.out.size()), dq(x.q.size(), 9.0f), dk(x.k.size(), 9.0f), dv(x.v.size(), 9.0f);
  for (float& g : grad_out) g = normal(rng);
  AttentionMask mask;
  if (masked) mask = {x.mask.data(), Element::F32, 0, 0, s.keys};
  const auto q_like = [&](std::vector<float>& t) { return Inputs::tensor(t, s.queries, s.heads, s.features); };
  const auto out_like = [&](std::vector<float>& t) { return Inputs::tensor(t, s.queries, s.heads, s.value_features); };
  const auto k_like = [&](std::vector<float>& t, int64_t f) { return Inputs::tensor(t, s.keys, s.heads, f); };
  attention_backward(Element::F32, s, q_like(x.q), k_like(x.k, s.features), k_like(x.v, s.value_features), out_like(x.out), out_like(grad_out),
                     x.rows(), mask, causal, scale, {q_like(dq), k_like(dk, s.features), k_like(dv, s.value_features)});
  std::vector<double> eq(dq.size()), ek(dk.size()), ev(dv.size());
  const auto at = [&](int64_t b, int64_t h, int64_t i, int64_t length, int64_t width, int64_t f) {
    return static_cast<size_t>(((b * length + i) * s.heads + h) * width + f);
  };
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t i = 0; i < s.queries; ++i) {
        const int64_t n = causal ? std::min(s.keys, i + 1) : s.keys;
        std::vector<double> p(static_cast<size_t>(n)), dp(p.size());
        double sum = 0, inner = 0;
        for (int64_t j = 0; j < n; ++j) {
          double score = 0, g = 0;
          for (int64_t f = 0; f < s.features; ++f)
            score += static_cast<double>(x.q[at(b, h, i, s.queries, s.features, f)]) * static_cast<double>(x.k[at(b, h, j, s.keys, s.features, f)]);
          for (int64_t f = 0; f < s.value_features; ++f)
            g += static_cast<double>(grad_out[at(b, h, i, s.queries, s.value_features, f)]) * static_cast<double>(x.v[at(b, h, j, s.keys, s.value_features, f)]);
          score *= static_cast<double>(scale);
          if (masked) score += static_cast<double>(x.mask[static_cast<size_t>(i * s.keys + j)]);
          sum += p[static_cast<size_t>(j)] = std::exp(score);
          dp[static_cast<size_t>(j)] = g;
        }
        for (size_t j = 0; j < p.size(); ++j) inner += (p[j] /= sum) * dp[j];
        for (int64_t j = 0; j < n; ++j) {
          const double ds = p[static_cast<size_t>(j)] * (dp[static_cast<size_t>(j)] - inner) * static_cast<double>(scale);
          for (int64_t f = 0; f < s.features; ++f) {
            eq[at(b, h, i, s.queries, s.features, f)] += ds * static_cast<double>(x.k[at(b, h, j, s.keys, s.features, f)]);
            ek[at(b, h, j, s.keys, s.features, f)] += ds * static_cast<double>(x.q[at(b, h, i, s.queries, s.features, f)]);
          }
          for (int64_t f = 0; f < s.value_features; ++f)
            ev[at(b, h, j, s.keys, s.value_features, f)] += p[static_cast<size_t>(j)] * static_cast<double>(grad_out[at(b, h, i, s.queries, s.value_features, f)]);
        }
      }
  double worst = 0;
  const auto compare = [&](const std::vector<float>& got, const std::vector<double>& want) {
    for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - want[i]) / (1 + std::fabs(want[i])));
  };
  compare(dq, eq);
  compare(dk, ek);
  compare(dv, ev);
  return worst;
}

TEST_CASE("gradients of attention agree with double precision") {
  if (cpu::isa() == nullptr) return;
  std::mt19937 rng(17);
  const AttentionShape shapes[] = {
      {2, 3, 3, 33, 33, 64, 64}, {1, 2, 2, 1, 129, 32, 32}, {1, 2, 2, 250, 70, 40, 24}, {1, 1, 1, 260, 260, 16, 80}, {3, 2, 2, 5, 3, 8, 16},
  };
  for (const AttentionShape& shape : shapes)
    for (bool causal : {false, true})
      for (bool masked : {false, true}) {
        Inputs inputs(shape, rng);
        CHECK(gradient_error(inputs, causal, masked, 0.2f, rng) < 2e-5);
      }
}
