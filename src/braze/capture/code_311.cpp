// Decoding of CPython 3.11's instructions.
#include "braze/capture/code.h"

#include <cstring>
#include <string>

#include "braze/support/check.h"

namespace braze::capture {

namespace {

enum Native : uint8_t {
#define OPCODE(number, name, caches) k##name = number,
#include "braze/capture/opcodes_311.def"
#undef OPCODE
};

uint32_t n_caches(uint8_t opcode) {
  switch (opcode) {
#define OPCODE(number, name, caches) case number: return caches;
#include "braze/capture/opcodes_311.def"
#undef OPCODE
  }
  return 0;
}

enum class Jump : uint8_t { None, Forward, Backward };

struct Row {
  Op op = Op::Unknown;
  Jump jump = Jump::None;
};

Row row_of(uint8_t opcode) {
  switch (opcode) {
    case kCACHE: case kNOP: case kRESUME: case kPRECALL: return {Op::Nop};
    case kPOP_TOP: return {Op::PopTop};
    case kPUSH_NULL: return {Op::PushNull};
    case kCOPY: return {Op::Copy};
    case kSWAP: return {Op::Swap};
    case kUNARY_POSITIVE: return {Op::UnaryPositive};
    case kUNARY_NEGATIVE: return {Op::UnaryNegative};
    case kUNARY_NOT: return {Op::UnaryNot};
    case kUNARY_INVERT: return {Op::UnaryInvert};
    case kBINARY_OP: return {Op::BinaryOp};
    case kBINARY_SUBSCR: return {Op::BinarySubscr};
    case kSTORE_SUBSCR: return {Op::StoreSubscr};
    case kDELETE_SUBSCR: return {Op::DeleteSubscr};
    case kCOMPARE_OP: return {Op::CompareOp};
    case kIS_OP: return {Op::IsOp};
    case kCONTAINS_OP: return {Op::ContainsOp};
    case kLOAD_CONST: return {Op::LoadConst};
    case kLOAD_FAST: return {Op::LoadFast};
    case kSTORE_FAST: return {Op::StoreFast};
    case kDELETE_FAST: return {Op::DeleteFast};
    case kLOAD_NAME: return {Op::LoadName};
    case kSTORE_NAME: return {Op::StoreName};
    case kDELETE_NAME: return {Op::DeleteName};
    case kLOAD_GLOBAL: return {Op::LoadGlobal};
    case kSTORE_GLOBAL: return {Op::StoreGlobal};
    case kDELETE_GLOBAL: return {Op::DeleteGlobal};
    case kMAKE_CELL: return {Op::MakeCell};
    case kLOAD_CLOSURE: return {Op::LoadClosure};
    case kLOAD_DEREF: return {Op::LoadDeref};
    case kSTORE_DEREF: return {Op::StoreDeref};
    case kDELETE_DEREF: return {Op::DeleteDeref};
    case kLOAD_CLASSDEREF: return {Op::LoadClassDeref};
    case kCOPY_FREE_VARS: return {Op::CopyFreeVars};
    case kLOAD_ATTR: return {Op::LoadAttr};
    case kLOAD_METHOD: return {Op::LoadMethod};
    case kSTORE_ATTR: return {Op::StoreAttr};
    case kDELETE_ATTR: return {Op::DeleteAttr};
    case kBUILD_TUPLE: return {Op::BuildTuple};
    case kBUILD_LIST: return {Op::BuildList};
    case kBUILD_SET: return {Op::BuildSet};
    case kBUILD_MAP: return {Op::BuildMap};
    case kBUILD_CONST_KEY_MAP: return {Op::BuildConstKeyMap};
    case kBUILD_STRING: return {Op::BuildString};
    case kBUILD_SLICE: return {Op::BuildSlice};
    case kFORMAT_VALUE: return {Op::FormatValue};
    case kLIST_APPEND: return {Op::ListAppend};
    case kSET_ADD: return {Op::SetAdd};
    case kMAP_ADD: return {Op::MapAdd};
    case kLIST_EXTEND: return {Op::ListExtend};
    case kSET_UPDATE: return {Op::SetUpdate};
    case kDICT_UPDATE: return {Op::DictUpdate};
    case kDICT_MERGE: return {Op::DictMerge};
    case kLIST_TO_TUPLE: return {Op::ListToTuple};
    case kUNPACK_SEQUENCE: return {Op::UnpackSequence};
    case kUNPACK_EX: return {Op::UnpackEx};
    case kGET_ITER: return {Op::GetIter};
    case kGET_YIELD_FROM_ITER: return {Op::GetYieldFromIter};
    case kFOR_ITER: return {Op::ForIter, Jump::Forward};
    case kGET_LEN: return {Op::GetLen};
    case kMATCH_MAPPING: return {Op::MatchMapping};
    case kMATCH_SEQUENCE: return {Op::MatchSequence};
    case kMATCH_KEYS: return {Op::MatchKeys};
    case kMATCH_CLASS: return {Op::MatchClass};
    case kJUMP_FORWARD: return {Op::Jump, Jump::Forward};
    case kJUMP_BACKWARD: case kJUMP_BACKWARD_NO_INTERRUPT: return {Op::Jump, Jump::Backward};
    case kPOP_JUMP_FORWARD_IF_FALSE: return {Op::PopJumpIfFalse, Jump::Forward};
    case kPOP_JUMP_BACKWARD_IF_FALSE: return {Op::PopJumpIfFalse, Jump::Backward};
    case kPOP_JUMP_FORWARD_IF_TRUE: return {Op::PopJumpIfTrue, Jump::Forward};
    case kPOP_JUMP_BACKWARD_IF_TRUE: return {Op::PopJumpIfTrue, Jump::Backward};
    case kPOP_JUMP_FORWARD_IF_NONE: return {Op::PopJumpIfNone, Jump::Forward};
    case kPOP_JUMP_BACKWARD_IF_NONE: return {Op::PopJumpIfNone, Jump::Backward};
    case kPOP_JUMP_FORWARD_IF_NOT_NONE: return {Op::PopJumpIfNotNone, Jump::Forward};
    case kPOP_JUMP_BACKWARD_IF_NOT_NONE: return {Op::PopJumpIfNotNone, Jump::Backward};
    case kJUMP_IF_FALSE_OR_POP: return {Op::JumpIfFalseOrPop, Jump::Forward};
    case kJUMP_IF_TRUE_OR_POP: return {Op::JumpIfTrueOrPop, Jump::Forward};
    case kKW_NAMES: return {Op::KwNames};
    case kCALL: return {Op::Call};
    case kCALL_FUNCTION_EX: return {Op::CallFunctionEx};
    case kMAKE_FUNCTION: return {Op::MakeFunction};
    case kLOAD_BUILD_CLASS: return {Op::LoadBuildClass};
    case kLOAD_ASSERTION_ERROR: return {Op::LoadAssertionError};
    case kIMPORT_NAME: return {Op::ImportName};
    case kIMPORT_FROM: return {Op::ImportFrom};
    case kRETURN_VALUE: return {Op::ReturnValue};
    case kRETURN_GENERATOR: return {Op::ReturnGenerator};
    case kYIELD_VALUE: return {Op::YieldValue};
    case kSEND: return {Op::Send, Jump::Forward};
    case kRAISE_VARARGS: return {Op::RaiseVarargs};
    case kRERAISE: return {Op::Reraise};
    case kPUSH_EXC_INFO: return {Op::PushExcInfo};
    case kPOP_EXCEPT: return {Op::PopExcept};
    case kCHECK_EXC_MATCH: return {Op::CheckExcMatch};
    case kBEFORE_WITH: return {Op::BeforeWith};
    case kWITH_EXCEPT_START: return {Op::WithExceptStart};
    default: return {};   // async, match on exception groups, class bodies' annotations: Unknown answers Unsupported
  }
}

}  // namespace

void decode_instructions(PyCodeObject* code, Code& out) {
  const Ref bytes = Ref::steal(PyCode_GetCode(code));
  CHECK(static_cast<bool>(bytes));
  const auto* units = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(bytes.get()));
  const auto n = static_cast<uint32_t>(PyBytes_GET_SIZE(bytes.get()) / 2);
  std::vector<uint32_t> jump_to;   // native targets, 0 for no jump
  out.index_.assign(n + 1, 0);
  uint32_t start = 0;
  for (uint32_t i = 0; i < n;) {
    const auto index = static_cast<uint32_t>(out.insns.size());
    out.index_[i] = index;
    uint32_t arg = units[2 * i + 1];
    while (units[2 * i] == kEXTENDED_ARG) {
      i++;
      out.index_[i] = index;
      arg = (arg << 8) | units[2 * i + 1];
    }
    const uint8_t opcode = units[2 * i];
    const Row row = row_of(opcode);
    const uint32_t next = i + 1 + n_caches(opcode);
    if (row.op != Op::Nop) {
      out.insns.push_back({row.op, row.op == Op::Unknown ? opcode : arg, i, start, 0});
      start = next;
      jump_to.push_back(row.jump == Jump::None ? 0 : row.jump == Jump::Forward ? next + arg : next - arg);
    }
    for (uint32_t k = i + 1; k < next && k <= n; k++) out.index_[k] = static_cast<uint32_t>(out.insns.size());
    i = next;
  }
  out.index_[n] = static_cast<uint32_t>(out.insns.size());
  for (size_t k = 0; k < out.insns.size(); k++) {
    if (jump_to[k] != 0) out.insns[k].target = out.index_[jump_to[k]];
  }
}

}  // namespace braze::capture
