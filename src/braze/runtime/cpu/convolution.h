// Two-dimensional convolution on the CPU in single precision, built ahead for each instruction set.
//
// Computed on channels-last data: the pixels under one tap of the window are rows of contiguous channels, so a
// convolution is a matrix product whose rows are found through pointers (no im2col copy). Tensors in another layout are
// transposed into thread-shared scratch first, and the result is transposed back.
#pragma once

#include <array>
#include <cstdint>

namespace braze::runtime {

struct ImageTensor {                       // [batch, channels, height, width] by strides in elements
  float* data;
  std::array<int64_t, 4> strides;
};

struct ConvolutionShape {
  int64_t batch, in_channels, height, width;
  int64_t out_channels, out_height, out_width;
  int64_t window_height, window_width;
  std::array<int64_t, 2> stride, padding, dilation;
  int64_t groups;
};

// weight: [out_channels, in_channels / groups, window_height, window_width], contiguous. bias: [out_channels] or nullptr.
void convolution(const ConvolutionShape& shape, const ImageTensor& input, const float* weight, const float* bias,
                 const ImageTensor& output);

}  // namespace braze::runtime
