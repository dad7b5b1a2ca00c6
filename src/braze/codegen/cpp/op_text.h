// Scalar operations as C++ text over values in register form.
#pragma once

#include <span>
#include <string>

#include "braze/loop/loop_ir.h"
#include "braze/loop/scalar.h"

namespace braze::codegen {

// The text of `s` (no Constant, Index, Load or Reduced) over its operands' texts, rounded or wrapped to its dtype.
// `live` is the mask of the lanes in which an error counts.
std::string op_text(const loop::Scalar& s, std::span<const std::string> operands, const std::string& live);

// a `op` b for values of `dtype` in register form: one step of a reduction (not ArgMax and ArgMin).
std::string combine_text(loop::ReduceOp op, DType dtype, const std::string& a, const std::string& b);
std::string neutral_text(loop::ReduceOp op, DType dtype);

// Roughly the instructions of one vector; a transcendental function has kHeavy. Above kLight a loop without accumulators
// has one body for whole and partial vectors: the branches cost little there, and half of the text is compiled.
int weight_of(const loop::Scalar& s);
inline constexpr int kHeavy = 24, kLight = 6;

}  // namespace braze::codegen
