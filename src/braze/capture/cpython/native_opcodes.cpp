#include "braze/capture/cpython/native_opcodes.h"

namespace braze::capture::cpython {

uint32_t n_caches(uint8_t opcode) {
  switch (opcode) {
#define OPCODE(number, name, caches) case number: return caches;
#include BRAZE_OPCODES
#undef OPCODE
  }
  return 0;
}

bool is_extended_arg(uint8_t opcode) { return opcode == kEXTENDED_ARG; }

}  // namespace braze::capture::cpython
