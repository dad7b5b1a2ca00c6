// How values stand in generated C++: the register form and the storage form of each dtype.
//
// A kernel works on vectors of L lanes. Register forms (typedefs of the prelude): VF float, VD double, VI int, VU
// unsigned, VL and VK 64-bit. bf16 and f16 live in VF, rounded after each op; integers of up to 32 bits in VI, wrapped
// after each op; a bool is a VI mask of 0 and -1.
#pragma once

#include <string>

#include "braze/support/dtype.h"

namespace braze::codegen {

enum class Register : uint8_t { Float, Double, Int, Unsigned, Long, UnsignedLong, Mask };

Register register_of(DType dtype);
const char* vector_type(Register r);      // "VF"
const char* element_type(Register r);     // "float"
char suffix_of(Register r);               // 'f': helpers of the prelude end in _f, _d, _i, _u, _l, _k, _m
const char* storage_type(DType dtype);    // "unsigned short" for bf16
std::string text_suffix(DType dtype);     // "bf16": ld_bf16, st_bf16
bool is_reduced_float(DType dtype);       // bf16, f16

// Text that turns a value of one dtype (in its register form) into another, as static_cast does.
std::string cast_text(const std::string& value, DType from, DType to);
// Rounds or wraps a result to the dtype that its register form is too wide for.
std::string fit_text(const std::string& value, DType dtype);
// A constant in register form.
std::string constant_text(DType dtype, double real, int64_t integer);

}  // namespace braze::codegen
