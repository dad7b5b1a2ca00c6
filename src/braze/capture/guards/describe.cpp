// What guards say, in the user's words.
#include "braze/capture/guards/constant.h"
#include "braze/capture/guards/load.h"
#include "braze/capture/guards/program.h"

namespace braze::capture {

namespace {

constexpr const char* kGone = "a function, class or module that the compiled code used no longer exists\n";

std::string plural_text(int64_t n) { return n < 0 ? "no container" : std::to_string(n) + (n == 1 ? " element" : " elements"); }

bool is_same_kind_of_number(PyObject* a, PyObject* b) {
  return Py_TYPE(a) == Py_TYPE(b) && (PyLong_CheckExact(a) || PyFloat_CheckExact(a));
}

std::string truth_text(int truth) { return truth < 0 ? "undecided" : truth != 0 ? "true" : "false or empty"; }

}  // namespace

std::string FlatProgram::requirement_text(const Requirement& r) const {
  const auto subject = [&] { return sources_.describe(r.src); };
  switch (r.kind) {
    case GuardKind::Type: return "type(" + subject() + ") is " + constant_text(r.value);
    case GuardKind::Identity: return subject() + " is " + constant_text(r.value);
    case GuardKind::Constant: return subject() + " == " + constant_text(r.value);
    case GuardKind::Truth: return subject() + " is " + truth_text(static_cast<int>(r.number));
    case GuardKind::Absent: return subject() + " has no own attribute " + constant_text(r.key);
    case GuardKind::EmptySlot: return "the slot " + constant_text(r.key) + " of " + subject() + " is empty";
    case GuardKind::KeyAbsent: {
      const bool is_function = sources_[r.src].kind != SourceKind::Dict && sources_[r.src].kind != SourceKind::Attr;
      return constant_text(r.key) + " is not in " + (is_function ? "the names of " : "") + subject();
    }
    case GuardKind::LookupAbsent: return sources_.describe(r.other) + " is not in " + subject();
    case GuardKind::Length: return subject() + " has " + plural_text(r.number);
    case GuardKind::Keys: return "the keys of " + subject() + " are " + constant_text(r.value);
    case GuardKind::Same: return subject() + " is " + sources_.describe(r.other);
    case GuardKind::Distinct: return subject() + " is not " + sources_.describe(r.other);
    case GuardKind::Tensor: {
      const TensorOperand& operand = operands_[static_cast<size_t>(r.number)];
      return subject() + ": " + (operand.describe == nullptr ? "a tensor as before" : operand.describe(operand.state.get(), nullptr));
    }
    case GuardKind::TypeAttribute:
      if (r.found == nullptr) return std::string("class ") + constant_text(r.value) + " keeps " + constant_text(r.key);
      return std::string("class ") + constant_text(r.value) + ": " + constant_text(r.key) + " is " + constant_text(r.found);
    case GuardKind::TypeSlots: return std::string("class ") + constant_text(r.value) + " has the same special methods";
    case GuardKind::AbcToken: return "no class was registered with an abstract one";
    case GuardKind::Modes: return "torch modes: " + domain().describe_modes(static_cast<uint64_t>(r.number));
    case GuardKind::Shapes: return "relations between sizes hold";
    case GuardKind::AllDistinct: return "objects that were different ones still are";
  }
  return "?";
}

// What stands there now; only natives are printed by value, so that no Python code runs.
std::string FlatProgram::found_text(const GuardInsn& insn, const CallArgs&) const {
  switch (insn.op) {
    case GuardOp::Is:
    case GuardOp::Equals: return "now " + constant_text(registers_[insn.a]);
    case GuardOp::Type:
    case GuardOp::TypeOrSelf: return std::string("now ") + Py_TYPE(registers_[insn.a])->tp_name;
    case GuardOp::Truth: return "now " + truth_text(load::truth(registers_[insn.a]));
    case GuardOp::Length: return "now " + plural_text(load::length(registers_[insn.a]));
    case GuardOp::Absent:
    case GuardOp::KeyAbsent:
    case GuardOp::LookupAbsent:
    case GuardOp::EmptySlot:
    case GuardOp::ConstKeyAbsent: return "now it has";
    case GuardOp::Tensor: {
      const TensorOperand& operand = operands_[insn.b];
      return operand.describe == nullptr ? "it differs" : operand.describe(operand.state.get(), registers_[insn.a]);
    }
    case GuardOp::TypeAttribute: {
      PyObject* now = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(groups_[insn.a].object), found_[insn.b].name);
      if (now == nullptr) PyErr_Clear();
      return "now " + constant_text(now);
    }
    case GuardOp::Modes: return "now " + domain().describe_modes(domain().modes());
    case GuardOp::Shapes: {
      const ShapeRow& row = shapes_[insn.b];
      std::vector<PyObject*> tensors;
      for (const uint32_t reg : row.tensors) tensors.push_back(registers_[reg]);
      return row.check->explain(tensors.data());
    }
    default: return "it differs";   // loads and groups are explained by failure_text; Same, Distinct, Keys say enough
  }
}

std::string FlatProgram::failure_text(size_t pc, const CallArgs& call) const {
  const Why& why = why_[pc];
  if (code_[pc].op == GuardOp::FunctionCode) {
    return constant_text(constants_[code_[pc].b]) + " has the code that was compiled (its __code__ was replaced)";
  }
  if (why.requirement < 0) return sources_.describe(why.src) + " is missing, or no longer readable natively";
  return requirement_text(requirements_[static_cast<size_t>(why.requirement)]) + " (" + found_text(code_[pc], call) + ")";
}

std::string FlatProgram::explain_failure(const CallArgs& call) const {
  if (!alive()) return kGone;
  forget_versions();
  const int64_t pc = first_failure(call, 0);
  return pc == kAllHold ? "" : failure_text(static_cast<size_t>(pc), call);
}

GuardProgram::Differences FlatProgram::differences(const CallArgs& call) const {
  Differences out;
  if (!alive()) return out;
  forget_versions();
  for (int64_t pc = first_failure(call, 0); pc != kAllHold; pc = first_failure(call, static_cast<size_t>(pc) + 1)) {
    const GuardInsn& insn = code_[static_cast<size_t>(pc)];
    const auto source = [&] { return sources_.describe(why_[static_cast<size_t>(pc)].src); };
    // Relations were made for the old sizes and numbers.
    if (insn.op == GuardOp::Shapes && !out.empty()) continue;
    if (insn.op == GuardOp::Equals && is_same_kind_of_number(registers_[insn.a], constants_[insn.b])) {
      out.numbers.push_back(source());
      continue;
    }
    if (insn.op != GuardOp::Tensor || operands_[insn.b].changed_sizes == nullptr) return {};
    const TensorOperand& operand = operands_[insn.b];
    std::vector<int64_t> dimensions;
    if (!operand.changed_sizes(operand.state.get(), registers_[insn.a], &dimensions) || dimensions.empty()) return {};
    for (const int64_t d : dimensions) out.sizes.emplace_back(source(), d);
  }
  return out;
}

std::string FlatProgram::describe() const {
  if (!alive()) return kGone;
  std::string out;
  for (const Requirement& r : requirements_) out += requirement_text(r) + "\n";
  return out;
}

}  // namespace braze::capture
