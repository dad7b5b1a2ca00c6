#include "braze/sym/size_program.h"

#include <algorithm>

#include "braze/support/check.h"
#include "braze/sym/range.h"

namespace braze::sym {

SizeProgram::SizeProgram(std::span<const Expr> inputs) : n_inputs_(inputs.size()) {
  for (const Expr& input : inputs) {
    CHECK(input.is_symbol());
    CHECK(known_.emplace(input, next_slot_).second, "input " << input << " twice");
    ++next_slot_;
  }
}

int SizeProgram::add(Expr e) { return slot_of(e); }

int SizeProgram::slot_of(Expr e) {
  if (const auto it = known_.find(e); it != known_.end()) return it->second;
  CHECK(!e.is_symbol(), "symbol " << e << " is no input");
  int slot;
  if (e.is_constant()) {
    slot = next_slot_++;
    code_.push_back({Op::Constant, slot, 0, 0, e.constant()});
  } else {
    const std::span<const Expr> operands = e.operands();
    slot = slot_of(operands[0]);
    if (operands.size() == 1) {
      code_.push_back({e.op(), next_slot_, slot, slot, 0});
      slot = next_slot_++;
    }
    for (const Expr& operand : operands.subspan(1)) {
      const int right = slot_of(operand);
      code_.push_back({e.op(), next_slot_, slot, right, 0});
      slot = next_slot_++;
    }
  }
  known_.emplace(e, slot);
  return slot;
}

void SizeProgram::run(int64_t* values) const {
  for (const Insn& insn : code_) {
    const int64_t a = values[insn.a], b = values[insn.b];
    int64_t& out = values[insn.dst];
    switch (insn.op) {
      case Op::Constant:
        out = insn.constant;
        break;
      case Op::Add:
        out = a + b;
        break;
      case Op::Mul:
        out = a * b;
        break;
      case Op::FloorDiv:
        out = b == 0 ? 0 : floor_div_int(a, b);   // a guard of the same program fails
        break;
      case Op::Mod:
        out = b == 0 ? 0 : mod_int(a, b);
        break;
      case Op::Min:
        out = std::min(a, b);
        break;
      case Op::Max:
        out = std::max(a, b);
        break;
      case Op::Eq:
        out = a == b ? 1 : 0;
        break;
      case Op::Ne:
        out = a != b ? 1 : 0;
        break;
      case Op::Lt:
        out = a < b ? 1 : 0;
        break;
      case Op::Le:
        out = a <= b ? 1 : 0;
        break;
      case Op::And:
        out = a != 0 && b != 0 ? 1 : 0;
        break;
      case Op::Or:
        out = a != 0 || b != 0 ? 1 : 0;
        break;
      case Op::Not:
        out = a == 0 ? 1 : 0;
        break;
      case Op::Symbol:
        break;
    }
  }
}

}  // namespace braze::sym
