// The instructions of the Python that this is compiled for: their numbers, and what its decoder needs of each.
#pragma once

#include "braze/capture/cpython/decode.h"

#if PY_MINOR_VERSION == 11
#define BRAZE_OPCODES "braze/capture/cpython/opcodes_311.def"
#elif PY_MINOR_VERSION == 12
#define BRAZE_OPCODES "braze/capture/cpython/opcodes_312.def"
#else
#define BRAZE_OPCODES "braze/capture/cpython/opcodes_313.def"
#endif

namespace braze::capture::cpython {

enum Native : uint8_t {
#define OPCODE(number, name, caches) k##name = number,
#include BRAZE_OPCODES
#undef OPCODE
};

#if PY_MINOR_VERSION >= 12
// CALL_INTRINSIC_1's argument.
inline Decoded intrinsic(uint32_t arg) {
  switch (arg) {
    case 3: return {Op::StopIterationError};
    case 5: return {Op::UnaryPositive};
    case 6: return {Op::ListToTuple};
    default: return {};
  }
}
#endif

}  // namespace braze::capture::cpython
