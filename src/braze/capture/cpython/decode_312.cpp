// Decoding of CPython 3.12's instructions.
#include "braze/capture/cpython/native_opcodes.h"

#if PY_MINOR_VERSION == 12

namespace braze::capture::cpython {

Decoded canonical(uint8_t opcode, uint32_t arg) {
  switch (opcode) {
#define SAME(native, op) case k##native: return {Op::op, arg};
#include "braze/capture/cpython/opcodes_same.def"
#undef SAME
    case kCOMPARE_OP: return {Op::CompareOp, arg >> 4};   // below: a mask for specialisation
    case kBINARY_SLICE: return {Op::BinarySlice};
    case kSTORE_SLICE: return {Op::StoreSlice};
    case kLOAD_FAST_CHECK: case kLOAD_CLOSURE: return {Op::LoadFast, arg};
    case kLOAD_FAST_AND_CLEAR: return {Op::LoadFastAndClear, arg};
    case kLOAD_FROM_DICT_OR_DEREF: return {Op::LoadClassDeref, arg};
    case kLOAD_LOCALS: case kLOAD_FROM_DICT_OR_GLOBALS: return {Op::LoadName, arg};   // of class bodies, not executed
    case kLOAD_ATTR: return {(arg & 1) != 0 ? Op::LoadMethod : Op::LoadAttr, arg >> 1};
    case kLOAD_SUPER_ATTR: return {Op::LoadSuperAttr, arg};
    case kFORMAT_VALUE: return {Op::FormatValue, arg};
    case kCALL_INTRINSIC_1: return intrinsic(arg);
    case kFOR_ITER: return {Op::ForIter, arg, Jump::Forward, 1};   // behind END_FOR
    case kJUMP_FORWARD: return {Op::Jump, arg, Jump::Forward};
    case kJUMP_BACKWARD: case kJUMP_BACKWARD_NO_INTERRUPT: return {Op::Jump, arg, Jump::Backward};
    case kPOP_JUMP_IF_FALSE: return {Op::PopJumpIfFalse, arg, Jump::Forward};
    case kPOP_JUMP_IF_TRUE: return {Op::PopJumpIfTrue, arg, Jump::Forward};
    case kPOP_JUMP_IF_NONE: return {Op::PopJumpIfNone, arg, Jump::Forward};
    case kPOP_JUMP_IF_NOT_NONE: return {Op::PopJumpIfNotNone, arg, Jump::Forward};
    case kKW_NAMES: return {Op::KwNames, arg};
    case kMAKE_FUNCTION: return {Op::MakeFunction, arg};
    case kRETURN_CONST: return {Op::ReturnConst, arg};
    case kYIELD_VALUE: return {Op::YieldValue};
    case kSEND: return {Op::Send, kSendKeepsIterator, Jump::Forward};
    case kEND_SEND: return {Op::EndSend};
    case kCLEANUP_THROW: return {Op::CleanupThrow};
    default: return {};   // async, exception groups, type parameters, annotations
  }
}

}  // namespace braze::capture::cpython

#endif
