// Strides as PyTorch chooses them. Questions about symbolic strides go through the Call and may record guards.
#pragma once

#include <span>

#include "braze/graph/type_rules/call.h"

namespace braze::graph {

// c10::TensorImpl's flags.
bool is_contiguous(const Call& call, const TensorType& t);
bool is_channels_last_contiguous(const Call& call, const TensorType& t);        // 4-D and 5-D
bool is_non_overlapping_and_dense(const Call& call, const TensorType& t);
bool has_channels_last_strides(const Call& call, const TensorType& t);          // strides_like_channels_last
// 2 or 3 if the strides look like channels last, else 0: suggest_memory_format().
int suggested_format(const Call& call, const TensorType& t);

Shape channels_last_strides(const Shape& sizes);                                // 4-D and 5-D
Shape strides_of_format(const Shape& sizes, int format);                        // 0, 2, 3

// Of a new tensor with t's sizes in preserve_format: t's strides if dense, else its order of dimensions, dense.
Shape preserved_strides(const Call& call, const TensorType& t);

// A new dense contiguous tensor.
TensorType contiguous_type(DType dtype, Shape sizes, Device device);

// Broadcast shape; nullopt if the sizes disagree.
std::optional<Shape> broadcast(const Call& call, std::span<const TensorType* const> operands);

// The strides that TensorIterator gives a fresh output of `shape` for these operands.
Shape iterator_strides(const Call& call, const Shape& shape, std::span<const TensorType* const> operands);

}  // namespace braze::graph
