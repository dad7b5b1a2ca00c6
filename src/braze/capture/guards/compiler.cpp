#include "braze/capture/guards/compiler.h"

#include <structmember.h>

#include "braze/capture/guards/constant.h"
#include "braze/capture/guards/load.h"
#include "braze/support/check.h"

namespace braze::capture {

GuardCompiler::GuardCompiler(GuardSet& set)
    : set_(set), program_(std::make_unique<FlatProgram>()), nodes_(set.sources_.size()) {}

std::unique_ptr<GuardProgram> GuardCompiler::compile() {
  program_->operands_ = std::move(set_.operands_);
  program_->requirements_ = set_.requirements_;
  program_->sources_ = set_.sources_.snapshot();
  for (size_t i = 0; i < set_.requirements_.size(); i++) {
    if (set_.requirements_[i].kind == GuardKind::Modes) emit_last(set_.requirements_[i], static_cast<int32_t>(i));
  }
  attach_requirements();
  for (Src src = 1; src < nodes_.size(); src++) resolve(src);   // a base stands before what is read from it
  move_to_containers();
  mark_loads();

  for (size_t i = 0; i < containers_.size(); i++) emit_container(i);
  for (Src src = 1; src < nodes_.size(); src++) {
    if (nodes_[src].load && nodes_[src].place == Place::Root) {
      emit_load(src, 0);
      emit_body(src);
    }
  }
  for (size_t i = 0; i < containers_.size(); i++) {
    for (const Src src : std::vector<Src>(containers_[i].loads)) emit_body(src);
  }
  for (Src src = 1; src < nodes_.size(); src++) {
    if (!nodes_[src].load || nodes_[src].place != Place::Late) continue;
    emit_load(src, nodes_[source(src).base].reg);
    emit_body(src);
  }
  for (size_t i = 0; i < set_.requirements_.size(); i++) {
    const Requirement& r = set_.requirements_[i];
    if (r.kind != GuardKind::Modes) emit_last(r, static_cast<int32_t>(i));
  }
  emit_function_codes();
  for (const Src src : set_.fetched_) program_->fetched_.push_back(nodes_[src].reg);
  bind_constant_registers();
  for (Requirement& r : program_->requirements_) {
    for (PyObject** object : {&r.key, &r.value, &r.found}) keep_printable(*object);
  }
  return std::move(program_);
}

// ---- Emission

GuardCompiler::Reg GuardCompiler::emit(GuardOp op, Reg a, uint32_t b, int32_t requirement, Src src) {
  CHECK(program_->code_.size() < (1u << 28), "too many guards");
  program_->code_.push_back({op, 0, 0, a, b});
  program_->why_.push_back({requirement, src});
  return static_cast<Reg>(program_->code_.size()) - 1;
}

uint32_t GuardCompiler::open_group(GuardOp op, Reg a, PyObject* object, Src src) {
  const auto group = static_cast<uint32_t>(program_->groups_.size());
  program_->groups_.push_back({0, 0, 0, object});
  emit(op, a, group, -1, src);
  return group;
}

void GuardCompiler::close_group(uint32_t group, bool is_type) {
  const Reg pc = emit(GuardOp::GroupEnd, 0, group, -1, kNoSource);
  program_->code_[pc].flag = is_type ? 1 : 0;
  program_->groups_[group].end = pc + 1;
}

void GuardCompiler::emit_container(size_t i) {
  const Container& c = containers_[i];
  if (c.loads.empty() && c.requirements.empty()) return;
  const uint32_t group = open_group(c.is_type ? GuardOp::ConstTypeGroup : GuardOp::ConstDictGroup, 0, c.object, kNoSource);
  for (const int32_t number : c.requirements) {
    const Requirement& r = requirement(number);
    if (r.kind == GuardKind::TypeAttribute) emit(GuardOp::TypeAttribute, group, found(r), number, r.src);
    else if (r.kind == GuardKind::TypeSlots) emit(GuardOp::TypeSlots, group, this->number(r.number), number, r.src);
    else emit(GuardOp::ConstKeyAbsent, group, constant(r.key), number, r.src);
  }
  for (const Src src : c.loads) emit_load(src, group);
  close_group(group, c.is_type);
}

// Loads the value and runs the checks that can't change while it stands where it was loaded from.
void GuardCompiler::emit_load(Src src, Reg base) {
  Node& node = nodes_[src];
  const Source& s = source(src);
  const auto load = [&](GuardOp op, uint32_t b) { return emit(op, base, b, -1, src); };
  const auto index = static_cast<uint32_t>(s.index);
  switch (s.kind) {
    case SourceKind::None: CHECK(false, "a guard on a value without a source"); break;
    case SourceKind::Callee: node.reg = load(GuardOp::Callee, 0); break;
    case SourceKind::Arg: node.reg = load(GuardOp::Arg, index); break;
    case SourceKind::Handled: node.reg = load(GuardOp::Handled, index); break;
    case SourceKind::Constant: node.reg = constant_register(node.known); break;
    case SourceKind::ImportedModule: node.reg = load(GuardOp::ConstDictKey, constant(s.key.get())); break;
    case SourceKind::Global:
    case SourceKind::Attr:
    case SourceKind::Key:
      if (node.place == Place::ConstDict) node.reg = load(GuardOp::ConstDictKey, constant(s.key.get()));
      else if (s.kind == SourceKind::Global) node.reg = load(GuardOp::Global, constant(s.key.get()));
      else if (s.kind == SourceKind::Attr) node.reg = load(GuardOp::Attr, constant(s.key.get()));
      else node.reg = load(GuardOp::Key, constant(s.key.get()));
      break;
    case SourceKind::Closure: node.reg = load(GuardOp::Closure, index); break;
    case SourceKind::ClosureCell: node.reg = load(GuardOp::ClosureCell, index); break;
    case SourceKind::FuncDefaults: node.reg = load(GuardOp::FuncDefaults, 0); break;
    case SourceKind::FuncKwDefaults: node.reg = load(GuardOp::FuncKwDefaults, 0); break;
    case SourceKind::FuncCode: node.reg = load(GuardOp::FuncCode, 0); break;
    case SourceKind::Member: {
      PyTypeObject* type = nodes_[s.base].type;
      PyObject* descriptor = type == nullptr ? nullptr : _PyType_Lookup(type, s.key.get());
      const PyMemberDef* member = descriptor != nullptr && Py_IS_TYPE(descriptor, &PyMemberDescr_Type)
                                      ? reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member : nullptr;
      if (member != nullptr && (member->type == T_OBJECT || member->type == T_OBJECT_EX)) {
        node.reg = load(GuardOp::MemberObject, static_cast<uint32_t>(member->offset));
        program_->code_.back().flag = member->type == T_OBJECT ? 1 : 0;
      } else {
        node.reg = load(GuardOp::Member, constant(s.key.get()));
        CHECK(program_->temporaries_.size() < size_t{0xffff});
        program_->code_.back().hint = static_cast<uint16_t>(program_->temporaries_.size());
        // A gradient lives as long as its tensor has it, what a weak reference names as long as somebody else holds it,
        // and must not live longer.
        program_->code_.back().flag = is_gradient(src) || s.key.get() == load::weak_referent() ? 1 : 0;
        program_->temporaries_.emplace_back();
      }
      break;
    }
    case SourceKind::TypeAttr:
      node.reg = load(node.place == Place::ConstType ? GuardOp::ConstTypeAttr : GuardOp::TypeAttr, constant(s.key.get()));
      break;
    case SourceKind::Type: node.reg = load(GuardOp::TypeOf, 0); break;
    case SourceKind::Dict:
      node.reg = node.place == Place::Root ? constant_register(node.known) : load(GuardOp::DictOf, 0);
      break;
    case SourceKind::Item: node.reg = load(GuardOp::Item, index); break;
    case SourceKind::DictValue: node.reg = load(GuardOp::DictValue, index); break;
    case SourceKind::DictKey: node.reg = load(GuardOp::DictKey, index); break;
    case SourceKind::Lookup: node.reg = load(GuardOp::Lookup, nodes_[static_cast<Src>(s.index)].reg); break;
    case SourceKind::KeyTuple: {
      FlatProgram::KeyTuple tuple;
      for (const Src element : set_.sources_.elements(src)) {
        tuple.elements.push_back(nodes_[element].reg);
        if (source(element).kind != SourceKind::Constant) continue;
        if (is_value_constant(nodes_[element].known)) program_->held_.push_back(Ref::borrow(nodes_[element].known));
        else program_->watched_.watch(nodes_[element].known);
      }
      node.reg = emit(GuardOp::KeyTuple, static_cast<Reg>(program_->key_tuples_.size()), 0, -1, src);
      program_->key_tuples_.push_back(std::move(tuple));
      break;
    }
    case SourceKind::Method: node.reg = load(GuardOp::Method, index); break;
    case SourceKind::SuperAttr:
      node.reg = load(node.place == Place::ConstType ? GuardOp::ConstSuperAttr : GuardOp::SuperAttr, key_and_class(s));
      break;
  }
  for (const int32_t i : node.requirements) {
    if (checked_at_load(requirement(i)) && !implied(requirement(i))) emit_check(i, node.reg);
  }
}

template <class Take>
void GuardCompiler::emit_group(Src src, GuardOp op, size_t cheap, const Take& take_requirement,
                               const std::vector<Src>& children) {
  std::vector<int32_t> checks;
  for (const int32_t i : nodes_[src].requirements) {
    const Requirement& r = requirement(i);
    if (take_requirement(r) && !checked_at_load(r) && !implied(r)) checks.push_back(i);
  }
  const Reg reg = nodes_[src].reg;
  const bool grouped = children.size() * 2 + checks.size() > cheap;
  const uint32_t group = grouped ? open_group(op, reg, nullptr, src) : 0;
  for (const int32_t i : checks) emit_check(i, reg);
  for (const Src child : children) emit_load(child, reg);
  if (grouped) close_group(group, false);
}

// Everything about a loaded value but its load: its own checks, then what is read from it.
void GuardCompiler::emit_body(Src src) {
  const Node& node = nodes_[src];
  const Reg reg = node.reg;
  for (const int32_t i : node.requirements) {
    const Requirement& r = requirement(i);
    if (checked_at_load(r) || implied(r) || in_instance_group(r) || in_dict_group(r)) continue;
    emit_check(i, reg);
  }
  std::vector<Src> from_instance, from_dict;
  for (const Src child : node.children) {
    if (loaded_from_instance(child)) from_instance.push_back(child);
    else if (loaded_from_dict(child)) from_dict.push_back(child);
  }
  emit_group(src, GuardOp::InstanceGroup, 1, [&](const Requirement& r) { return in_instance_group(r); }, from_instance);
  emit_group(src, GuardOp::DictGroup, 1, [&](const Requirement& r) { return in_dict_group(r); }, from_dict);
  for (const Src child : node.children) {
    if (!loaded_from_instance(child) && !loaded_from_dict(child)) emit_load(child, reg);
  }
  for (const Src child : node.children) emit_body(child);
}

uint32_t GuardCompiler::slot_offset(const Requirement& r) const {
  PyTypeObject* const type = nodes_[r.src].type;
  PyObject* const descriptor = type == nullptr ? nullptr : _PyType_Lookup(type, r.key);
  CHECK(descriptor != nullptr && Py_IS_TYPE(descriptor, &PyMemberDescr_Type), "a slot of a class that is not known");
  return static_cast<uint32_t>(reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member->offset);
}

void GuardCompiler::emit_check(int32_t i, Reg reg) {
  const Requirement& r = requirement(i);
  const auto test = [&](GuardOp op, uint32_t b) { emit(op, reg, b, i, r.src); };
  switch (r.kind) {
    case GuardKind::Type: test(GuardOp::Type, watched_constant(r.value)); break;
    case GuardKind::Identity: test(GuardOp::Is, watched_constant(r.value)); break;
    case GuardKind::Constant:
      if (is_value_constant(r.value)) test(GuardOp::Equals, constant(r.value));
      else test(GuardOp::Equals, watched_constant(r.value));   // enum members, dtypes
      break;
    case GuardKind::Truth: test(GuardOp::Truth, static_cast<uint32_t>(r.number)); break;
    case GuardKind::Absent: test(GuardOp::Absent, constant(r.key)); break;
    case GuardKind::KeyAbsent: test(GuardOp::KeyAbsent, constant(r.key)); break;
    case GuardKind::EmptySlot: test(GuardOp::EmptySlot, slot_offset(r)); break;
    case GuardKind::Length: test(GuardOp::Length, number(r.number)); break;
    case GuardKind::Keys: test(GuardOp::Keys, constant(r.value)); break;
    case GuardKind::Tensor: test(GuardOp::Tensor, static_cast<uint32_t>(r.number)); break;
    case GuardKind::TypeAttribute: test(GuardOp::TypeOrSelf, watched_constant(r.value)); break;
    case GuardKind::TypeSlots:   // emit_container
    case GuardKind::AbcToken:
    case GuardKind::LookupAbsent:
    case GuardKind::Same:
    case GuardKind::Distinct:
    case GuardKind::Modes:
    case GuardKind::AllDistinct:
    case GuardKind::Shapes: break;   // emit_last
  }
}

void GuardCompiler::emit_last(const Requirement& r, int32_t i) {
  if (r.kind == GuardKind::Modes) emit(GuardOp::Modes, 0, number(r.number), i, kNoSource);
  if (r.kind == GuardKind::AbcToken) emit(GuardOp::AbcToken, 0, number(r.number), i, kNoSource);
  if (r.kind == GuardKind::LookupAbsent) emit(GuardOp::LookupAbsent, nodes_[r.src].reg, nodes_[r.other].reg, i, r.src);
  if (r.kind == GuardKind::Same) emit(GuardOp::Same, nodes_[r.src].reg, nodes_[r.other].reg, i, r.src);
  if (r.kind == GuardKind::Distinct) emit(GuardOp::Distinct, nodes_[r.src].reg, nodes_[r.other].reg, i, r.src);
  if (r.kind == GuardKind::AllDistinct) {
    std::vector<uint32_t> registers;
    for (const Src src : set_.distinct_[static_cast<size_t>(r.number)]) registers.push_back(nodes_[src].reg);
    emit(GuardOp::AllDistinct, 0, static_cast<uint32_t>(program_->distinct_.size()), i, kNoSource);
    program_->distinct_.push_back(std::move(registers));
  }
  if (r.kind == GuardKind::Shapes) {
    auto& [check, tensors] = set_.shapes_[static_cast<size_t>(r.number)];
    FlatProgram::ShapeRow row{std::move(check), {}};
    for (const Src src : tensors) row.tensors.push_back(nodes_[src].reg);
    emit(GuardOp::Shapes, 0, static_cast<uint32_t>(program_->shapes_.size()), i, kNoSource);
    program_->shapes_.push_back(std::move(row));
  }
}

// A function that is known by identity was compiled with the code that it has now.
void GuardCompiler::emit_function_codes() {
  std::unordered_set<PyObject*> functions;
  const auto add = [&](PyObject* object) {
    if (object != nullptr && PyFunction_Check(object)) functions.insert(object);
  };
  for (const Node& node : nodes_) {
    if (node.place != Place::Unneeded) add(node.known);
  }
  for (const FoundRecord& record : program_->found_) {
    add(record.object);
    for (PyObject* function : record.inner) add(function);
  }
  for (PyObject* function : functions) {
    PyObject* code = PyFunction_GET_CODE(function);
    const auto at = static_cast<uint32_t>(program_->constants_.size());
    for (PyObject* object : {function, code}) {
      program_->watched_.watch(object);
      program_->constants_.push_back(object);
    }
    emit(GuardOp::FunctionCode, 0, at, -1, kNoSource);
  }
}

void GuardCompiler::bind_constant_registers() {
  const auto base = static_cast<Reg>(program_->code_.size());
  const auto bind = [&](Reg& reg) {
    if (reg != kNoReg && (reg & kConstant) != 0) reg = base + (reg & ~kConstant);
  };
  for (GuardInsn& insn : program_->code_) {
    bind(insn.a);
    if (insn.op == GuardOp::Same || insn.op == GuardOp::Distinct || insn.op == GuardOp::Lookup ||
        insn.op == GuardOp::LookupAbsent) {
      bind(insn.b);
    }
  }
  for (FlatProgram::KeyTuple& tuple : program_->key_tuples_) {
    for (Reg& reg : tuple.elements) bind(reg);
  }
  for (Reg& reg : program_->fetched_) bind(reg);
  for (std::vector<uint32_t>& registers : program_->distinct_) {
    for (Reg& reg : registers) bind(reg);
  }
  for (auto& row : program_->shapes_) {
    for (Reg& reg : row.tensors) bind(reg);
  }
  program_->registers_.assign(base, nullptr);
  program_->registers_.insert(program_->registers_.end(), register_values_.begin(), register_values_.end());
}

// ---- Operands

// Explanations print what the requirements name, so it has to be held or watched; the user's containers and properties
// are neither.
void GuardCompiler::keep_printable(PyObject*& object) {
  if (object == nullptr || constant_index_.contains(object)) return;
  if (is_value_constant(object)) program_->held_.push_back(Ref::borrow(object));
  else if (load::is_mutable_container(object) || load::is_wrapper(object)) object = nullptr;
  else program_->watched_.watch(object);
}

uint32_t GuardCompiler::constant(PyObject* object) {
  const auto [it, fresh] = constant_index_.try_emplace(object, static_cast<uint32_t>(program_->constants_.size()));
  if (fresh) {
    program_->constants_.push_back(object);
    program_->held_.push_back(Ref::borrow(object));
  }
  return it->second;
}

uint32_t GuardCompiler::watched_constant(PyObject* object) {
  const auto [it, fresh] = constant_index_.try_emplace(object, static_cast<uint32_t>(program_->constants_.size()));
  if (fresh) {
    program_->constants_.push_back(object);
    program_->watched_.watch(object);
  }
  return it->second;
}

GuardCompiler::Reg GuardCompiler::constant_register(PyObject* object) {
  const auto [it, fresh] = constant_registers_.try_emplace(object, kConstant | static_cast<Reg>(register_values_.size()));
  if (fresh) register_values_.push_back(object);
  return it->second;
}

uint32_t GuardCompiler::number(int64_t value) {
  program_->numbers_.push_back(value);
  return static_cast<uint32_t>(program_->numbers_.size()) - 1;
}

// A key and the class whose successors are searched stand beside each other.
uint32_t GuardCompiler::key_and_class(const Source& s) {
  const auto at = static_cast<uint32_t>(program_->constants_.size());
  program_->held_.push_back(Ref::borrow(s.key.get()));
  program_->watched_.watch(s.extra.get());
  program_->constants_.push_back(s.key.get());
  program_->constants_.push_back(s.extra.get());
  return at;
}

uint32_t GuardCompiler::found(const Requirement& r) {
  FoundRecord record;
  program_->held_.push_back(Ref::borrow(r.key));
  record.name = r.key;
  if (r.found == nullptr) {
    record.how = FoundRecord::How::Nothing;
  } else if (load::is_wrapper(r.found)) {
    record.how = FoundRecord::How::Wrapper;
    record.type = Py_TYPE(r.found);
    load::wrapped_functions(r.found, record.inner);
    for (PyObject* function : record.inner) {
      if (function != nullptr) program_->watched_.watch(function);
    }
  } else if (load::is_mutable_container(r.found)) {
    record.how = FoundRecord::How::Container;
    record.type = Py_TYPE(r.found);
  } else if (is_value_constant(r.found)) {
    record.how = FoundRecord::How::Value;
    record.object = r.found;
    program_->held_.push_back(Ref::borrow(r.found));
  } else {
    record.how = FoundRecord::How::Pointer;
    record.object = r.found;
    program_->watched_.watch(r.found);
  }
  program_->found_.push_back(record);
  return static_cast<uint32_t>(program_->found_.size()) - 1;
}

}  // namespace braze::capture
