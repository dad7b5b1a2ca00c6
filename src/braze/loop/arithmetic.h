// The meaning of each ScalarOp on one number: what constant folding and the reference evaluation compute with.
#pragma once

#include <cstdint>
#include <span>

#include "braze/loop/scalar.h"

namespace braze::loop {

// `real` for floating types, `integer` for integers and bool; the other is 0. A floating number is always a value of
// its dtype (bf16 1.0 + 2^-9 does not occur).
struct Number {
  double real = 0;
  int64_t integer = 0;
};

Number number_of(DType dtype, double value);       // rounded to the dtype; to integers as static_cast
Number number_of_int(DType dtype, int64_t value);  // integers wrap
double as_double(Number number, DType dtype);
bool is_true(Number number, DType dtype);
Number convert(Number number, DType from, DType to);
Number bitcast(Number number, DType from, DType to);

// `dtype` is the result's, `operand_dtype` the last operand's. Integer division by zero throws std::domain_error.
Number compute(ScalarOp op, DType dtype, DType operand_dtype, std::span<const Number> operands);

// True if every value of `from` is a value of `to`.
bool represents_all(DType to, DType from);

// Types that generated kernels can load, store and compute with.
bool is_kernel_dtype(DType dtype);

}  // namespace braze::loop
