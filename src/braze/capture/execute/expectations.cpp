// Branches on a tensor's value of which one side raises: assertions and checks of arguments. The trace takes the other
// side, and the graph checks that it is the right one. Where it is not, CPython makes the call again, and raises.
#include "braze/capture/differentiation.h"
#include "braze/capture/execute/executor.h"

namespace braze::capture {

namespace {

constexpr size_t kLongestArm = 64;

// Straight on to a raise statement.
bool raises(const Code& code, size_t pc) {
  for (size_t n = 0; n < kLongestArm && pc < code.insns.size(); n++, pc++) {
    switch (code.insns[pc].op) {
      case Op::RaiseVarargs: return true;
      case Op::Jump: case Op::PopJumpIfFalse: case Op::PopJumpIfTrue: case Op::PopJumpIfNone: case Op::PopJumpIfNotNone:
      case Op::JumpIfFalseOrPop: case Op::JumpIfTrueOrPop: case Op::ForIter: case Op::Send: case Op::YieldValue:
      case Op::ReturnValue: case Op::ReturnConst: case Op::Reraise: case Op::BeforeWith: case Op::Unknown:
        return false;
      default: break;
    }
  }
  return false;
}

}  // namespace

bool Executor::take_expected_branch(Frame& f, const Insn& insn) {
  const Value v = seen(f.top());
  if (!session.expects_branches() || prov.category(v.object) != Category::Tensor) return false;
  const bool jump_raises = raises(*f.code, insn.target);
  if (jump_raises == raises(*f.code, f.pc + 1)) return false;
  const bool jumps = !jump_raises;
  const Ref traced = stand_in(*this, v);
  const Result<bool> assumed = session.assume(traced.get(), jumps == (insn.op == Op::PopJumpIfTrue));
  if (!assumed.ok()) throw Abort{assumed.why()};
  if (!*assumed) return false;
  f.pop();
  f.pc = jumps ? insn.target : f.pc + 1;
  return true;
}

}  // namespace braze::capture
