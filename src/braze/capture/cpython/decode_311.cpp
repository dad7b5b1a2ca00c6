// Decoding of CPython 3.11's instructions.
#include "braze/capture/cpython/native_opcodes.h"

#if PY_MINOR_VERSION == 11

namespace braze::capture::cpython {

Decoded canonical(uint8_t opcode, uint32_t arg) {
  switch (opcode) {
#define SAME(native, op) case k##native: return {Op::op, arg};
#include "braze/capture/cpython/opcodes_same.def"
#undef SAME
    case kPRECALL: return {Op::Nop};
    case kUNARY_POSITIVE: return {Op::UnaryPositive};
    case kCOMPARE_OP: return {Op::CompareOp, arg};
    case kLOAD_CLOSURE: return {Op::LoadFast, arg};
    case kLOAD_CLASSDEREF: return {Op::LoadClassDeref, arg};
    case kLOAD_ATTR: return {Op::LoadAttr, arg};
    case kLOAD_METHOD: return {Op::LoadMethod, arg};
    case kFORMAT_VALUE: return {Op::FormatValue, arg};
    case kLIST_TO_TUPLE: return {Op::ListToTuple};
    case kFOR_ITER: return {Op::ForIter, arg, Jump::Forward};
    case kJUMP_FORWARD: return {Op::Jump, arg, Jump::Forward};
    case kJUMP_BACKWARD: case kJUMP_BACKWARD_NO_INTERRUPT: return {Op::Jump, arg, Jump::Backward};
    case kPOP_JUMP_FORWARD_IF_FALSE: return {Op::PopJumpIfFalse, arg, Jump::Forward};
    case kPOP_JUMP_BACKWARD_IF_FALSE: return {Op::PopJumpIfFalse, arg, Jump::Backward};
    case kPOP_JUMP_FORWARD_IF_TRUE: return {Op::PopJumpIfTrue, arg, Jump::Forward};
    case kPOP_JUMP_BACKWARD_IF_TRUE: return {Op::PopJumpIfTrue, arg, Jump::Backward};
    case kPOP_JUMP_FORWARD_IF_NONE: return {Op::PopJumpIfNone, arg, Jump::Forward};
    case kPOP_JUMP_BACKWARD_IF_NONE: return {Op::PopJumpIfNone, arg, Jump::Backward};
    case kPOP_JUMP_FORWARD_IF_NOT_NONE: return {Op::PopJumpIfNotNone, arg, Jump::Forward};
    case kPOP_JUMP_BACKWARD_IF_NOT_NONE: return {Op::PopJumpIfNotNone, arg, Jump::Backward};
    case kJUMP_IF_FALSE_OR_POP: return {Op::JumpIfFalseOrPop, arg, Jump::Forward};
    case kJUMP_IF_TRUE_OR_POP: return {Op::JumpIfTrueOrPop, arg, Jump::Forward};
    case kKW_NAMES: return {Op::KwNames, arg};
    case kMAKE_FUNCTION: return {Op::MakeFunction, arg};
    case kYIELD_VALUE: return {Op::YieldValue};
    case kSEND: return {Op::Send, kSendDropsIterator, Jump::Forward};
    default: return {};   // async, exception groups, class bodies' annotations
  }
}

}  // namespace braze::capture::cpython

#endif
