// Decoded code objects: canonical instructions, the same for all Python versions, with jump targets resolved.
//
// Decoding happens once per code object, from PyCode_GetCode (which specialisation and instrumentation don't affect).
// One file per Python version (code_311.cpp) knows numbers, inline caches and argument encodings.
#pragma once

#include <cstdint>
#include <vector>

#include "braze/capture/ref.h"

namespace braze::capture {

enum class Op : uint8_t {
#define OP(name) name,
#include "braze/capture/ops.def"
#undef OP
};
const char* op_name(Op op);

struct Insn {
  Op op;
  uint32_t arg;
  uint32_t native;   // index of the code unit that is the instruction itself, after its EXTENDED_ARGs
  uint32_t start;    // where CPython can go on to run it: its EXTENDED_ARGs, and what only prepares it
  uint32_t target;   // jumps: index in Code::insns
};

struct Handler {     // the exception table's row: instructions [first, last) are handled at target
  uint32_t first, last, target;
  uint32_t depth;    // stack depth at the handler
  bool push_last_instruction;
};

struct Code {
  PyCodeObject* object;   // kept alive
  std::vector<Insn> insns;
  std::vector<Handler> handlers;
  PyObject* names;        // borrowed from object
  PyObject* constants;
  int n_slots;            // co_nlocalsplus
  int n_stack;
  bool generator, coroutine;

  const Handler* handler_of(uint32_t pc) const;
  // The instruction that starts at a code unit.
  uint32_t index_of(uint32_t native) const { return index_[native]; }

 private:
  friend const Code& decode(PyCodeObject* code);
  friend void decode_instructions(PyCodeObject* code, Code& out);
  std::vector<uint32_t> index_;
};

const Code& decode(PyCodeObject* code);
void decode_instructions(PyCodeObject* code, Code& out);   // per version

// Binary operators in the order of BinaryOp's argument (CPython's own on all versions).
enum class Binary : uint8_t {
  Add, And, FloorDivide, LeftShift, MatrixMultiply, Multiply, Remainder, Or, Power, RightShift, Subtract, TrueDivide,
  Xor,   // followed by the in-place forms in the same order
};
inline constexpr uint32_t kFirstInPlace = 13;

}  // namespace braze::capture
