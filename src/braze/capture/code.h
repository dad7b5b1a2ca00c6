// Decoded code objects: canonical instructions, the same for all Python versions, with jump targets resolved.
//
// Decoding happens once per code object, from PyCode_GetCode (which specialisation and instrumentation don't affect).
// cpython/decode_311.cpp and its neighbours know numbers, inline caches and argument encodings.
#pragma once

#include <cstdint>
#include <vector>

#include "braze/capture/cpython/version.h"
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
  void decode_instructions();
  std::vector<uint32_t> index_;
};

const Code& decode(PyCodeObject* code);

// Binary operators in the order of BinaryOp's argument (CPython's own on all versions).
enum class Binary : uint8_t {
  Add, And, FloorDivide, LeftShift, MatrixMultiply, Multiply, Remainder, Or, Power, RightShift, Subtract, TrueDivide,
  Xor,   // followed by the in-place forms in the same order
};
inline constexpr uint32_t kFirstInPlace = 13;

// CompareOp's argument: the comparison, and whether its result becomes a bool.
inline constexpr uint32_t kCompareToBool = 8;
// FormatValue's argument: the conversion (as ConvertValue's), and whether a format specification is on the stack.
inline constexpr uint32_t kFormatWithSpec = 4;
// Send's argument: whether EndSend drops the iterator.
inline constexpr uint32_t kSendDropsIterator = 0, kSendKeepsIterator = 1;
// LoadSuperAttr's argument: the name is arg >> 2.
inline constexpr uint32_t kSuperMethod = 1, kSuperWithArguments = 2;
// What MakeFunction takes from the stack, and SetFunctionAttribute sets.
inline constexpr uint32_t kDefaults = 1, kKeywordDefaults = 2, kAnnotations = 4, kClosure = 8;
inline PyObject*& function_part(PyObject* function, uint32_t part) {
  auto* const f = reinterpret_cast<PyFunctionObject*>(function);
  return part == kDefaults ? f->func_defaults
         : part == kKeywordDefaults ? f->func_kwdefaults
         : part == kAnnotations     ? f->func_annotations
                                    : f->func_closure;
}

}  // namespace braze::capture
