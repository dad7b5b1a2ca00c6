#include "braze/runtime/cpu/convolution.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "braze/runtime/block_cache.h"
#include "braze/runtime/cpu/isa.h"
#include "braze/runtime/cpu/matmul.h"
#include "braze/runtime/cpu/scratch.h"
#include "braze/runtime/parallel.h"

namespace braze::runtime {
namespace {

using cpu::Isa;

// Rows of packed weights worked on at a time: 64 columns of them are 192 KB of L2.
constexpr int64_t kBlockK = 768;

thread_local Scratch filter_scratch, edge_scratch;
thread_local std::vector<const float*> pointer_scratch;

// A whole image batch in channels-last order, from the block cache.
class ChannelsLast {
 public:
  explicit ChannelsLast(int64_t floats) : data_(static_cast<float*>(acquire_block(static_cast<size_t>(floats) * sizeof(float)))) {}
  ChannelsLast(const ChannelsLast&) = delete;
  ChannelsLast& operator=(const ChannelsLast&) = delete;
  ~ChannelsLast() { release_block(data_); }
  float* data() const { return data_; }

 private:
  float* data_;
};

bool is_channels_last(const ImageTensor& t, int64_t channels, int64_t width) {
  return t.strides[1] == 1 && t.strides[3] >= channels && t.strides[2] == t.strides[3] * width;
}

// Copies between an image of any strides and channels-last data [batch][height][width][channels].
void convert(const Isa& isa, int64_t batch, int64_t channels, int64_t height, int64_t width, const ImageTensor& image,
             float* last, bool to_last) {
  const int64_t pixels = height * width;
  const bool planes = image.strides[3] == 1 && image.strides[2] == width;
  run_parallel_tasks(batch * height, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t n = t / height, y = t % height;
      float* row = last + (n * pixels + y * width) * channels;
      float* plane = image.data + n * image.strides[0] + y * image.strides[2];
      if (planes && to_last) {
        isa.transpose(plane, image.strides[1], channels, width, row, channels);
      } else if (planes) {
        isa.transpose(row, channels, width, channels, plane, image.strides[1]);
      } else {
        for (int64_t x = 0; x < width; ++x)
          for (int64_t c = 0; c < channels; ++c) {
            float& there = plane[x * image.strides[3] + c * image.strides[1]];
            float& here = row[x * channels + c];
            if (to_last) here = there; else there = here;
          }
      }
    }
  });
}

// Everything below works on channels-last tensors with these strides.
struct Problem {
  ConvolutionShape shape;
  const float* input;
  int64_t in_batch, in_row, in_pixel;      // strides
  const float* weight;
  const float* bias;
  float* output;
  int64_t out_batch, out_pixel;
  const float* zeros;                      // in_channels / groups of them: what padding reads
};

// The input pixel under a tap of output pixel p, or nullptr in the padding.
const float* pixel_under(const Problem& p, int64_t n, int64_t pixel, int64_t tap) {
  const ConvolutionShape& s = p.shape;
  const int64_t y = pixel / s.out_width * s.stride[0] - s.padding[0] + tap / s.window_width * s.dilation[0];
  const int64_t x = pixel % s.out_width * s.stride[1] - s.padding[1] + tap % s.window_width * s.dilation[1];
  if (y < 0 || y >= s.height || x < 0 || x >= s.width) return nullptr;
  return p.input + n * p.in_batch + y * p.in_row + x * p.in_pixel;
}

// One panel of filters of one group, for output pixels [first, last) of the whole batch.
void filter_panel(const Isa& isa, const Problem& p, int64_t group, int64_t panel, int64_t first, int64_t last) {
  const ConvolutionShape& s = p.shape;
  const int64_t channels = s.in_channels / s.groups, filters = s.out_channels / s.groups;
  const int64_t taps = s.window_height * s.window_width, pixels = s.out_height * s.out_width;
  const int64_t filter = group * filters + panel * isa.panel;
  const int64_t columns = std::min(isa.panel, filters - panel * isa.panel);
  const bool edge = columns < isa.panel;
  float* packed = filter_scratch.at_least(taps * channels * isa.panel);
  isa.pack_filters(p.weight + filter * channels * taps, channels * taps, channels, taps, columns, packed);
  float* edge_rows = edge ? edge_scratch.at_least((isa.tile_rows + 1) * isa.panel) : nullptr;
  const float* bias = p.bias == nullptr ? nullptr : p.bias + filter;
  if (edge && bias != nullptr) {
    float* padded = edge_rows + isa.tile_rows * isa.panel;
    std::fill_n(padded, isa.panel, 0.0f);
    std::copy_n(bias, columns, padded);
    bias = padded;
  }
  // Blocks of taps keep their part of the packed weights in L2 over all pixels.
  const int64_t block_taps = std::clamp<int64_t>(kBlockK / std::max<int64_t>(channels, 1), 1, taps);
  const bool one_block = block_taps >= taps;
  // A panel narrower than a tile is summed beside the output, so all its taps must be done tile by tile.
  const int64_t step = edge && !one_block ? taps : block_taps;
  pointer_scratch.resize(static_cast<size_t>(taps * isa.tile_rows));
  for (int64_t tap = 0; tap < taps; tap += step) {
    const int64_t count = std::min(step, taps - tap);
    const bool ends = tap + count == taps;
    for (int64_t i = first, rows; i < last; i += rows) {
      rows = std::min({isa.tile_rows, last - i, pixels - i % pixels});   // a tile stays within one image
      for (int64_t t = 0; t < count; ++t)
        for (int64_t r = 0; r < rows; ++r) {
          const float* under = pixel_under(p, (i + r) / pixels, (i + r) % pixels, tap + t);
          pointer_scratch[static_cast<size_t>(t * rows + r)] = under == nullptr ? p.zeros : under + group * channels;
        }
      float* target = edge ? edge_rows : p.output + i / pixels * p.out_batch + i % pixels * p.out_pixel + filter;
      isa.multiply_indirect(rows, count, channels, pointer_scratch.data(), packed + tap * channels * isa.panel, target,
                            edge ? isa.panel : p.out_pixel, tap > 0, ends ? bias : nullptr, false);
      if (edge)
        for (int64_t r = 0; r < rows; ++r)
          std::copy_n(edge_rows + r * isa.panel, columns,
                      p.output + (i + r) / pixels * p.out_batch + (i + r) % pixels * p.out_pixel + filter);
    }
  }
}

void depthwise(const Isa& isa, const Problem& p) {
  const ConvolutionShape& s = p.shape;
  const int64_t channels = s.in_channels, taps = s.window_height * s.window_width;
  Scratch weights;
  float* by_tap = weights.at_least(taps * channels);
  isa.transpose(p.weight, taps, channels, taps, by_tap, channels);
  run_parallel_tasks(s.batch * s.out_height, [&](int64_t begin, int64_t end) {
    std::vector<const float*> under(static_cast<size_t>(taps));
    for (int64_t row = begin; row < end; ++row)
      for (int64_t x = 0; x < s.out_width; ++x) {
        const int64_t n = row / s.out_height, pixel = row % s.out_height * s.out_width + x;
        for (int64_t t = 0; t < taps; ++t) under[static_cast<size_t>(t)] = pixel_under(p, n, pixel, t);
        isa.depthwise_pixel(channels, taps, under.data(), by_tap, p.bias, p.output + n * p.out_batch + pixel * p.out_pixel);
      }
  });
}

bool is_pointwise(const ConvolutionShape& s) {
  const auto all = [](const std::array<int64_t, 2>& x, int64_t value) { return x[0] == value && x[1] == value; };
  return s.window_height == 1 && s.window_width == 1 && all(s.stride, 1) && all(s.padding, 0) && s.groups == 1;
}

void run(const Isa& isa, const Problem& p) {
  const ConvolutionShape& s = p.shape;
  const int64_t pixels = s.out_height * s.out_width;
  if (is_pointwise(s) && p.in_batch == pixels * p.in_pixel && p.out_batch == pixels * p.out_pixel) {
    return matmul(Element::F32, s.batch * pixels, s.out_channels, s.in_channels, {p.input, p.in_pixel, 1}, {p.weight, 1, s.in_channels},
                  p.output, p.out_pixel, p.bias);
  }
  if (s.groups == s.in_channels && s.groups == s.out_channels && s.groups > 1) return depthwise(isa, p);
  const int64_t panels = (s.out_channels / s.groups + isa.panel - 1) / isa.panel * s.groups;
  const int64_t all_pixels = s.batch * pixels, threads = thread_count();
  int64_t parts = 1;
  while (panels % threads != 0 && panels * parts < threads * 4 && all_pixels / (parts * 2) >= 4 * isa.tile_rows) parts *= 2;
  const int64_t each = ((all_pixels + parts - 1) / parts + isa.tile_rows - 1) / isa.tile_rows * isa.tile_rows;
  run_parallel_tasks(panels * parts, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t first = t % parts * each, last = std::min(all_pixels, first + each);
      const int64_t panel = t / parts, per_group = panels / s.groups;
      if (first < last) filter_panel(isa, p, panel / per_group, panel % per_group, first, last);
    }
  });
}

bool is_planes(const ImageTensor& t, int64_t width) { return t.strides[3] == 1 && t.strides[2] == width; }

}  // namespace

void convolution(const ConvolutionShape& s, const ImageTensor& input, const float* weight, const float* bias,
                 const ImageTensor& output) {
  const Isa& isa = *cpu::isa();
  const bool in_last = is_channels_last(input, s.in_channels, s.width);
  const bool out_last = is_channels_last(output, s.out_channels, s.out_width);
  const int64_t in_pixels = s.height * s.width, out_pixels = s.out_height * s.out_width;
  // One pixel after the other without a window is a product of the filters with each image's planes as they stand.
  if (is_pointwise(s) && bias == nullptr && !in_last && !out_last && is_planes(input, s.width) && is_planes(output, s.out_width))
    return matmul_batch(Element::F32, s.batch, s.out_channels, in_pixels, s.in_channels, {weight, s.in_channels, 1}, 0,
                        {input.data, input.strides[1], 1}, input.strides[0], output.data, output.strides[1], output.strides[0]);
  std::optional<ChannelsLast> in_copy, out_copy;
  const std::vector<float> zeros(static_cast<size_t>(s.in_channels / s.groups));
  Problem p{s, input.data, input.strides[0], input.strides[2], input.strides[3], weight, bias,
            output.data, output.strides[0], output.strides[3], zeros.data()};
  if (!in_last) {
    in_copy.emplace(s.batch * in_pixels * s.in_channels);
    convert(isa, s.batch, s.in_channels, s.height, s.width, input, in_copy->data(), true);
    p.input = in_copy->data();
    p.in_pixel = s.in_channels;
    p.in_row = s.in_channels * s.width;
    p.in_batch = in_pixels * s.in_channels;
  }
  if (!out_last) {
    out_copy.emplace(s.batch * out_pixels * s.out_channels);
    p.output = out_copy->data();
    p.out_pixel = s.out_channels;
    p.out_batch = out_pixels * s.out_channels;
  }
  run(isa, p);
  if (!out_last) convert(isa, s.batch, s.out_channels, s.out_height, s.out_width, output, out_copy->data(), false);
}

}  // namespace braze::runtime
