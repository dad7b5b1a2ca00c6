#include "braze/capture/guards/program.h"

#include <algorithm>

#include "braze/capture/execute/handled.h"
#include "braze/capture/guards/constant.h"
#include "braze/capture/guards/load.h"
#include "braze/capture/guards/object.h"

namespace braze::capture {

namespace {

// The state of a group's container, 0 where it has no version.
uint64_t instance_version(PyObject* object) {
  const object::Storage storage = object::instance_storage(object);
  return storage.dict == nullptr ? 0 : object::dict_version(storage.dict);
}

bool found_matches(const FoundRecord& record, PyTypeObject* type) {
  PyObject* now = _PyType_Lookup(type, record.name);
  if (now == nullptr) return PyErr_Clear(), record.how == FoundRecord::How::Nothing;
  switch (record.how) {
    case FoundRecord::How::Nothing: return false;
    case FoundRecord::How::Pointer: return now == record.object;
    case FoundRecord::How::Value: return constants_equal(now, record.object);
    case FoundRecord::How::Container: return Py_TYPE(now) == record.type;
    case FoundRecord::How::Wrapper: {
      if (Py_TYPE(now) != record.type) return false;
      PyObject* inner[3];
      load::wrapped_functions(now, inner);
      return std::equal(inner, inner + 3, record.inner);
    }
  }
  return false;
}

}  // namespace

bool FlatProgram::check_shapes(const ShapeRow& row) const {
  PyObject* few[16];
  std::vector<PyObject*> many;
  PyObject** tensors = few;
  if (row.tensors.size() > std::size(few)) {
    many.resize(row.tensors.size());
    tensors = many.data();
  }
  for (size_t i = 0; i < row.tensors.size(); i++) tensors[i] = registers_[row.tensors[i]];
  return row.check->run(tensors);
}

bool FlatProgram::all_distinct(const std::vector<uint32_t>& registers) const {
  // Open addressing, at most half full.
  size_t size = 16;
  while (size < registers.size() * 2) size *= 2;
  PyObject* few[256] = {};
  std::vector<PyObject*> many;
  PyObject** table = few;
  if (size > std::size(few)) {
    many.resize(size);
    table = many.data();
  }
  for (const uint32_t r : registers) {
    PyObject* const object = registers_[r];
    size_t at = (reinterpret_cast<uintptr_t>(object) >> 4) * 0x9e3779b97f4a7c15u >> 20;
    for (;; at++) {
      PyObject*& entry = table[at & (size - 1)];
      if (entry == object) return false;
      if (entry != nullptr) continue;
      entry = object;
      break;
    }
  }
  return true;
}

PyObject* FlatProgram::make_key_tuple(KeyTuple& tuple) const {
  tuple.made = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(tuple.elements.size())));
  if (!tuple.made) return PyErr_Clear(), nullptr;
  for (size_t i = 0; i < tuple.elements.size(); i++) {
    PyTuple_SET_ITEM(tuple.made.get(), static_cast<Py_ssize_t>(i), Ref::borrow(registers_[tuple.elements[i]]).release());
  }
  return tuple.made.get();
}

void FlatProgram::forget_versions() const {
  for (Group& group : groups_) group.version = 0;
}

int64_t FlatProgram::first_failure(const CallArgs& call, size_t start) const {
  PyObject** const reg = registers_.data();
  PyObject* const* const constants = constants_.data();
  const size_t n = code_.size();
  for (size_t pc = start; pc < n; pc++) {
    GuardInsn& insn = code_[pc];
    PyObject* value = nullptr;   // of a load
    bool known = true;
    switch (insn.op) {
      case GuardOp::Callee: value = call.callee; break;
      case GuardOp::Handled: value = handled_or_none(insn.b != 0); break;
      case GuardOp::Arg: value = insn.b < static_cast<uint64_t>(call.n_args) ? call.args[insn.b] : nullptr; break;
      case GuardOp::Global: value = load::global(reg[insn.a], constants[insn.b], insn.hint, known); break;
      case GuardOp::Closure: value = load::closure(reg[insn.a], insn.b); break;
      case GuardOp::ClosureCell: value = load::closure_cell(reg[insn.a], insn.b); break;
      case GuardOp::FuncDefaults: value = load::function_field(reg[insn.a], &PyFunctionObject::func_defaults); break;
      case GuardOp::FuncKwDefaults: value = load::function_field(reg[insn.a], &PyFunctionObject::func_kwdefaults); break;
      case GuardOp::FuncCode: value = load::function_field(reg[insn.a], &PyFunctionObject::func_code); break;
      case GuardOp::Attr:
        value = object::storage_lookup(object::instance_storage(reg[insn.a]), constants[insn.b], insn.hint, known);
        break;
      case GuardOp::MemberObject:
        value = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(reg[insn.a]) + insn.b);
        if (value == nullptr && insn.flag != 0) value = Py_None;
        break;
      case GuardOp::Member: {
        Ref& temporary = temporaries_[insn.hint];
        temporary = load::member(reg[insn.a], constants[insn.b]);
        value = temporary.get();
        if (insn.flag != 0) temporary = Ref();
        break;
      }
      case GuardOp::TypeAttr: value = load::type_attribute(reg[insn.a], constants[insn.b]); break;
      case GuardOp::TypeOf: value = reinterpret_cast<PyObject*>(Py_TYPE(reg[insn.a])); break;
      case GuardOp::DictOf: value = load::dict_of(reg[insn.a]); break;
      case GuardOp::Item: value = load::item(reg[insn.a], insn.b); break;
      case GuardOp::Key:
        if (PyDict_Check(reg[insn.a])) value = object::dict_lookup(reg[insn.a], constants[insn.b], insn.hint, known);
        break;
      case GuardOp::Lookup: value = load::lookup(reg[insn.a], reg[insn.b], known); break;
      case GuardOp::KeyTuple: value = make_key_tuple(key_tuples_[insn.a]); break;
      case GuardOp::DictValue: value = load::dict_value(reg[insn.a], insn.b); break;
      case GuardOp::DictKey: value = load::dict_key(reg[insn.a], insn.b); break;
      case GuardOp::Method: value = load::method_part(reg[insn.a], insn.b); break;
      case GuardOp::SuperAttr:
        value = load::super_attribute(Py_TYPE(reg[insn.a]), constants[insn.b + 1], constants[insn.b]);
        break;
      case GuardOp::ConstDictKey:
        value = object::dict_lookup(groups_[insn.a].object, constants[insn.b], insn.hint, known);
        break;
      case GuardOp::ConstTypeAttr: value = load::type_attribute(groups_[insn.a].object, constants[insn.b]); break;
      case GuardOp::ConstSuperAttr:
        value = load::super_attribute(reinterpret_cast<PyTypeObject*>(groups_[insn.a].object), constants[insn.b + 1],
                                      constants[insn.b]);
        break;

      case GuardOp::Is:
        if (reg[insn.a] != constants[insn.b]) return static_cast<int64_t>(pc);
        continue;
      case GuardOp::Equals:
        if (reg[insn.a] != constants[insn.b] && !constants_equal(reg[insn.a], constants[insn.b])) {
          return static_cast<int64_t>(pc);
        }
        continue;
      case GuardOp::Type:
        if (reinterpret_cast<PyObject*>(Py_TYPE(reg[insn.a])) != constants[insn.b]) return static_cast<int64_t>(pc);
        continue;
      case GuardOp::TypeOrSelf:
        if (reg[insn.a] != constants[insn.b] && reinterpret_cast<PyObject*>(Py_TYPE(reg[insn.a])) != constants[insn.b]) {
          return static_cast<int64_t>(pc);
        }
        continue;
      case GuardOp::Truth:
        if (load::truth(reg[insn.a]) != static_cast<int>(insn.b)) return static_cast<int64_t>(pc);
        continue;
      case GuardOp::Length:
        if (load::length(reg[insn.a]) != numbers_[insn.b]) return static_cast<int64_t>(pc);
        continue;
      case GuardOp::Absent:
        if (object::storage_lookup(object::instance_storage(reg[insn.a]), constants[insn.b], insn.hint, known) != nullptr ||
            !known) {
          return static_cast<int64_t>(pc);
        }
        continue;
      case GuardOp::KeyAbsent:
        if (!PyDict_Check(reg[insn.a]) ||
            object::dict_lookup(reg[insn.a], constants[insn.b], insn.hint, known) != nullptr || !known) {
          return static_cast<int64_t>(pc);
        }
        continue;
      case GuardOp::LookupAbsent:
        if (!PyDict_Check(reg[insn.a]) || load::lookup(reg[insn.a], reg[insn.b], known) != nullptr || !known) {
          return static_cast<int64_t>(pc);
        }
        continue;
      case GuardOp::EmptySlot:
        if (*reinterpret_cast<PyObject**>(reinterpret_cast<char*>(reg[insn.a]) + insn.b) != nullptr) {
          return static_cast<int64_t>(pc);
        }
        continue;
      case GuardOp::ConstKeyAbsent:
        if (object::dict_lookup(groups_[insn.a].object, constants[insn.b], insn.hint, known) != nullptr || !known) {
          return static_cast<int64_t>(pc);
        }
        continue;
      case GuardOp::Keys:
        if (!load::keys_equal(reg[insn.a], constants[insn.b])) return static_cast<int64_t>(pc);
        continue;
      case GuardOp::Same:
        if (reg[insn.a] != reg[insn.b]) return static_cast<int64_t>(pc);
        continue;
      case GuardOp::Distinct:
        if (reg[insn.a] == reg[insn.b]) return static_cast<int64_t>(pc);
        continue;
      case GuardOp::Tensor: {
        const TensorOperand& operand = operands_[insn.b];
        if (!operand.check(operand.state.get(), reg[insn.a])) return static_cast<int64_t>(pc);
        continue;
      }
      case GuardOp::TypeAttribute:
        if (!found_matches(found_[insn.b], reinterpret_cast<PyTypeObject*>(groups_[insn.a].object))) {
          return static_cast<int64_t>(pc);
        }
        continue;
      case GuardOp::TypeSlots:
        if (load::type_slots(reinterpret_cast<PyTypeObject*>(groups_[insn.a].object)) !=
            static_cast<uint64_t>(numbers_[insn.b])) {
          return static_cast<int64_t>(pc);
        }
        continue;
      case GuardOp::AbcToken:
        if (load::abc_token() != numbers_[insn.b]) return static_cast<int64_t>(pc);
        continue;
      case GuardOp::FunctionCode:
        if (reinterpret_cast<PyFunctionObject*>(constants[insn.b])->func_code != constants[insn.b + 1]) {
          return static_cast<int64_t>(pc);
        }
        continue;
      case GuardOp::Modes:
        if (domain().modes() != static_cast<uint64_t>(numbers_[insn.b])) return static_cast<int64_t>(pc);
        continue;
      case GuardOp::Shapes:
        if (!check_shapes(shapes_[insn.b])) return static_cast<int64_t>(pc);
        continue;
      case GuardOp::AllDistinct:
        if (!all_distinct(distinct_[insn.b])) return static_cast<int64_t>(pc);
        continue;

      case GuardOp::InstanceGroup:
      case GuardOp::DictGroup:
      case GuardOp::ConstDictGroup:
      case GuardOp::ConstTypeGroup: {
        Group& group = groups_[insn.b];
        uint64_t version = 0;
        if (insn.op == GuardOp::InstanceGroup) {
          version = instance_version(reg[insn.a]);
        } else if (insn.op == GuardOp::DictGroup) {
          if (!PyDict_Check(reg[insn.a])) return static_cast<int64_t>(pc);
          version = object::dict_version(reg[insn.a]);
        } else if (insn.op == GuardOp::ConstDictGroup) {
          version = object::dict_version(group.object);
        } else {
          version = object::type_version(reinterpret_cast<PyTypeObject*>(group.object));
        }
        if (version == group.version && version != 0) {
          pc = group.end - 1;
        } else {
          group.version = 0;
          group.pending = version;
        }
        continue;
      }
      case GuardOp::GroupEnd: {
        Group& group = groups_[insn.b];
        if (!object::versions_work()) continue;
        // Looking an attribute up may have given the class its tag: the state is the same, now it has a number.
        group.version = insn.flag != 0 ? object::type_version(reinterpret_cast<PyTypeObject*>(group.object))
                                       : group.pending;
        continue;
      }
    }
    if (value == nullptr || !known) return static_cast<int64_t>(pc);
    reg[pc] = value;
  }
  return kAllHold;
}

bool FlatProgram::run(const CallArgs& call, PyObject** fetched) const {
  if (!watched_.all_alive()) return false;
  const bool all_hold = first_failure(call, 0) == kAllHold;
  for (KeyTuple& tuple : key_tuples_) tuple.made = Ref();
  if (!all_hold) return false;
  for (size_t i = 0; i < fetched_.size(); i++) fetched[i] = registers_[fetched_[i]];
  return true;
}

}  // namespace braze::capture
