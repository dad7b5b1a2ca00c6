// One instruction of CPython, as a canonical one. decode_311.cpp and its neighbours, one for each version.
#pragma once

#include "braze/capture/code.h"

namespace braze::capture::cpython {

enum class Jump : uint8_t { None, Forward, Backward };

struct Decoded {
  Op op = Op::Unknown;
  uint32_t arg = 0;
  Jump jump = Jump::None;
  uint32_t beyond = 0;   // code units that a jump goes on behind its target
};

// `arg` with the bits of the instruction's EXTENDED_ARGs.
Decoded canonical(uint8_t opcode, uint32_t arg);
uint32_t n_caches(uint8_t opcode);
bool is_extended_arg(uint8_t opcode);

}  // namespace braze::capture::cpython
