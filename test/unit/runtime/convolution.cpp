#include "braze/runtime/cpu/convolution.h"

#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "braze/runtime/cpu/isa.h"

using namespace braze::runtime;

namespace {

enum class Layout { Planes, ChannelsLast };

std::array<int64_t, 4> strides_of(Layout layout, int64_t c, int64_t h, int64_t w) {
  if (layout == Layout::Planes) return {c * h * w, h * w, w, 1};
  return {c * h * w, 1, w * c, c};
}

double error_of(ConvolutionShape s, Layout in_layout, Layout out_layout, bool with_bias, std::mt19937& rng) {
  s.out_height = (s.height + 2 * s.padding[0] - s.dilation[0] * (s.window_height - 1) - 1) / s.stride[0] + 1;
  s.out_width = (s.width + 2 * s.padding[1] - s.dilation[1] * (s.window_width - 1) - 1) / s.stride[1] + 1;
  std::normal_distribution<float> normal;
  const auto fill = [&](int64_t n) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& y : x) y = normal(rng);
    return x;
  };
  const int64_t channels = s.in_channels / s.groups, filters = s.out_channels / s.groups;
  std::vector<float> in = fill(s.batch * s.in_channels * s.height * s.width),
                     weight = fill(s.out_channels * channels * s.window_height * s.window_width), bias = fill(s.out_channels),
                     out(static_cast<size_t>(s.batch * s.out_channels * s.out_height * s.out_width), 99.0f);
  const ImageTensor input{in.data(), strides_of(in_layout, s.in_channels, s.height, s.width)};
  const ImageTensor output{out.data(), strides_of(out_layout, s.out_channels, s.out_height, s.out_width)};
  convolution(s, input, weight.data(), with_bias ? bias.data() : nullptr, output);
  const auto at = [](const ImageTensor& t, int64_t n, int64_t c, int64_t y, int64_t x) {
    return static_cast<double>(t.data[n * t.strides[0] + c * t.strides[1] + y * t.strides[2] + x * t.strides[3]]);
  };
  double worst = 0;
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t f = 0; f < s.out_channels; ++f)
      for (int64_t y = 0; y < s.out_height; ++y)
        for (int64_t x = 0; x < s.out_width; ++x) {
          double want = with_bias ? static_cast<double>(bias[static_cast<size_t>(f)]) : 0.0;
          for (int64_t c = 0; c < channels; ++c)
            for (int64_t i = 0; i < s.window_height; ++i)
              for (int64_t j = 0; j < s.window_width; ++j) {
                const int64_t iy = y * s.stride[0] - s.padding[0] + i * s.dilation[0];
                const int64_t ix = x * s.stride[1] - s.padding[1] + j * s.dilation[1];
                if (iy < 0 || iy >= s.height || ix < 0 || ix >= s.width) continue;
                want += at(input, n, f / filters * channels + c, iy, ix) *
                        static_cast<double>(weight[static_cast<size_t>(((f * channels + c) * s.window_height + i) * s.window_width + j)]);
              }
          worst = std::max(worst, std::fabs(want - at(output, n, f, y, x)));
        }
  return worst;
}

}  // namespace

TEST_CASE("convolutions of many shapes and layouts agree with double precision") {
  if (cpu::isa() == nullptr) return;
  std::mt19937 rng(5);
  // batch, channels, height, width; filters; (computed); window; stride; padding; dilation; groups
  const ConvolutionShape shapes[] = {
      {2, 3, 17, 19, 70, 0, 0, 7, 7, {2, 2}, {3, 3}, {1, 1}, 1},  {1, 64, 9, 9, 64, 0, 0, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
      {2, 20, 8, 8, 130, 0, 0, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1},  {2, 16, 8, 8, 33, 0, 0, 1, 1, {2, 2}, {0, 0}, {1, 1}, 1},
      {1, 37, 11, 10, 37, 0, 0, 7, 7, {1, 1}, {3, 3}, {1, 1}, 37}, {2, 96, 6, 6, 96, 0, 0, 3, 3, {2, 1}, {1, 0}, {1, 1}, 96},
      {1, 8, 12, 12, 12, 0, 0, 3, 2, {1, 2}, {2, 1}, {2, 3}, 4},   {1, 600, 5, 5, 65, 0, 0, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
      {3, 5, 4, 4, 6, 0, 0, 4, 4, {4, 4}, {0, 0}, {1, 1}, 1},
  };
  for (const ConvolutionShape& shape : shapes)
    for (Layout in : {Layout::Planes, Layout::ChannelsLast})
      for (Layout out : {Layout::Planes, Layout::ChannelsLast}) {
        CAPTURE(shape.in_channels);
        CAPTURE(shape.out_channels);
        CAPTURE(static_cast<int>(in));
        CAPTURE(static_cast<int>(out));
        const int64_t terms = shape.in_channels / shape.groups * shape.window_height * shape.window_width;
        CHECK(error_of(shape, in, out, in == out, rng) < 1e-5 + 2e-7 * static_cast<double>(terms));
      }
}
