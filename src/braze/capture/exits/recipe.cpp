#include "braze/capture/exits/recipe.h"

#include <algorithm>
#include <array>

#include "braze/capture/execute/types.h"
#include "braze/capture/exits/frame_hook.h"
#include "braze/capture/guards/constant.h"
#include "braze/support/check.h"

namespace braze::capture {

namespace {

PyObject* tuple_of(std::span<PyObject* const> values) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(values.size()));
  if (tuple == nullptr) return nullptr;
  for (size_t i = 0; i < values.size(); i++) {
    Py_INCREF(values[i]);
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), values[i]);
  }
  return tuple;
}

bool is_struct_sequence(PyTypeObject* type) {
  return PyType_IsSubtype(type, &PyTuple_Type) && type->tp_base == &PyTuple_Type && type_dict(type) != nullptr &&
         PyDict_GetItemString(type_dict(type), "n_sequence_fields") != nullptr;
}

// Without __init__ and without a Python __new__: the object's state comes from the instructions that follow.
PyObject* new_instance(PyTypeObject* type, std::span<PyObject* const> values) {
  if (is_struct_sequence(type)) {
    PyObject* out = PyStructSequence_New(type);
    if (out == nullptr) return nullptr;
    for (size_t i = 0; i < values.size(); i++) {
      Py_INCREF(values[i]);
      PyStructSequence_SET_ITEM(out, static_cast<Py_ssize_t>(i), values[i]);
    }
    return out;
  }
  PyTypeObject* base = native_base(type);
  if (base->tp_new == nullptr) return PyErr_Format(PyExc_TypeError, "cannot create '%s' instances", type->tp_name);
  Ref args;
  if (PyType_IsSubtype(base, &PyTuple_Type) || PyType_IsSubtype(base, &PyFrozenSet_Type)) {   // filled when made
    Ref elements = Ref::steal(tuple_of(values));
    if (!elements) return nullptr;
    PyObject* whole = elements.get();
    args = Ref::steal(tuple_of({&whole, 1}));
  } else {
    args = Ref::steal(tuple_of(values));
  }
  if (!args) return nullptr;
  return base->tp_new(type, args.get(), nullptr);
}

PyObject* new_reference(PyObject* object) {
  Py_XINCREF(object);
  return object;
}

PyObject* new_function(PyObject* code, std::span<PyObject* const> parts) {
  Ref function = Ref::steal(PyFunction_NewWithQualName(code, parts[0], parts[5]));
  if (!function) return nullptr;
  const bool bad = (parts[1] != nullptr && PyFunction_SetClosure(function.get(), parts[1]) < 0) ||
                   (parts[2] != nullptr && PyFunction_SetDefaults(function.get(), parts[2]) < 0) ||
                   (parts[3] != nullptr && PyFunction_SetKwDefaults(function.get(), parts[3]) < 0) ||
                   (parts[4] != nullptr && PyDict_Check(parts[4]) && PyFunction_SetAnnotations(function.get(), parts[4]) < 0);
  if (parts[4] != nullptr && PyTuple_Check(parts[4])) {   // names and values, until the function is asked for them
    reinterpret_cast<PyFunctionObject*>(function.get())->func_annotations = new_reference(parts[4]);
  }
  return bad ? nullptr : function.release();
}

PyObject* new_list(std::span<PyObject* const> values) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(values.size()));
  if (list == nullptr) return nullptr;
  for (size_t i = 0; i < values.size(); i++) {
    Py_INCREF(values[i]);
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), values[i]);
  }
  return list;
}

int write_pairs(PyObject* dict, std::span<PyObject* const> pairs) {
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const int rc = PyODict_Check(dict) ? PyODict_SetItem(dict, pairs[i], pairs[i + 1])
                                       : PyDict_SetItem(dict, pairs[i], pairs[i + 1]);
    if (rc < 0) return -1;
  }
  return 0;
}

PyObject* new_dict(std::span<PyObject* const> pairs) {
  Ref dict = Ref::steal(PyDict_New());
  if (!dict || write_pairs(dict.get(), pairs) < 0) return nullptr;
  return dict.release();
}

PyObject* new_set(std::span<PyObject* const> values) {
  Ref set = Ref::steal(PySet_New(nullptr));
  if (!set) return nullptr;
  for (PyObject* value : values) {
    if (PySet_Add(set.get(), value) < 0) return nullptr;
  }
  return set.release();
}

PyObject* filled(PyObject* target, int rc) { return rc < 0 ? nullptr : new_reference(target); }

int append_all(PyObject* list, std::span<PyObject* const> values) {
  for (PyObject* value : values) {
    if (PyList_Append(list, value) < 0) return -1;
  }
  return 0;
}

GeneratorState unpack_state(PyObject* position_and_kind) {
  return {static_cast<GeneratorState::Kind>(PyLong_AsLong(PyTuple_GET_ITEM(position_and_kind, 1))),
          PyLong_AsLongLong(PyTuple_GET_ITEM(position_and_kind, 0)), nullptr};
}

// `target`: the object that a fill writes to; `values`: the operands (nullptr for operand -1).
PyObject* run_insn(const RecipeInsn& insn, PyObject* target, std::span<PyObject* const> values,
                   PyObject* const* outputs, PyObject* const* numbers) {
  switch (insn.op) {
    case RecipeOp::Fetched: break;   // before all others
    case RecipeOp::Output: return new_reference(outputs[insn.a]);
    case RecipeOp::Number: return new_reference(numbers[insn.a]);
    case RecipeOp::Constant: return new_reference(insn.object.get());
    case RecipeOp::NewList: return new_list(values);
    case RecipeOp::NewTuple: return tuple_of(values);
    case RecipeOp::NewDict: return new_dict(values);
    case RecipeOp::NewSet: return new_set(values);
    case RecipeOp::NewInstance: return new_instance(reinterpret_cast<PyTypeObject*>(insn.object.get()), values);
    case RecipeOp::NewCell: return PyCell_New(values.empty() ? nullptr : values[0]);
    case RecipeOp::NewFunction: return new_function(insn.object.get(), values);
    case RecipeOp::NewSlice: return PySlice_New(values[0], values[1], values[2]);
    case RecipeOp::NewGenerator: return new_generator(values[0], reinterpret_cast<PyCodeObject*>(insn.object.get()));
    case RecipeOp::NewMethod: return PyMethod_New(values[0], values[1]);
    case RecipeOp::NewTraceback: return new_traceback(insn.object.get(), values[0]).release();
    case RecipeOp::GetAttr: return PyObject_GetAttr(values[0], insn.object.get());
    case RecipeOp::SetItem: return filled(target, PyObject_SetItem(target, values[0], values[1]));
    case RecipeOp::SetAttr:
      if (PyCell_Check(target)) return filled(target, PyCell_Set(target, values[0]));
      return filled(target, PyObject_GenericSetAttr(target, insn.object.get(), values[0]));
    case RecipeOp::SetGenerator: {
      GeneratorState state = unpack_state(insn.object.get());
      state.handled = values[0];
      set_generator(target, state, values.data() + 1, values.size() - 1);
      return new_reference(target);
    }
    case RecipeOp::Append: return filled(target, append_all(target, values));
    case RecipeOp::Call: {
      const size_t n_keywords = insn.object ? static_cast<size_t>(PyTuple_GET_SIZE(insn.object.get())) : 0;
      return PyObject_Vectorcall(values[0], values.data() + 1, values.size() - 1 - n_keywords, insn.object.get());
    }
    case RecipeOp::DictUpdate: return filled(target, write_pairs(target, values));
  }
  PyErr_SetString(PyExc_SystemError, "unknown recipe instruction");
  return nullptr;
}

// `a` is a slot, not an index in fetched values or outputs.
bool fills(RecipeOp op) {
  return op == RecipeOp::SetItem || op == RecipeOp::SetAttr || op == RecipeOp::Append || op == RecipeOp::DictUpdate ||
         op == RecipeOp::SetGenerator;
}

const char* name_of(RecipeOp op) {
  switch (op) {
    case RecipeOp::Fetched: return "fetched";
    case RecipeOp::Output: return "output";
    case RecipeOp::Number: return "number";
    case RecipeOp::Constant: return "constant";
    case RecipeOp::NewList: return "list";
    case RecipeOp::NewTuple: return "tuple";
    case RecipeOp::NewDict: return "dict";
    case RecipeOp::NewSet: return "set";
    case RecipeOp::NewInstance: return "instance";
    case RecipeOp::NewCell: return "cell";
    case RecipeOp::NewFunction: return "function";
    case RecipeOp::NewSlice: return "slice";
    case RecipeOp::NewMethod: return "method";
    case RecipeOp::NewGenerator: return "generator";
    case RecipeOp::SetGenerator: return "set_generator";
    case RecipeOp::NewTraceback: return "traceback";
    case RecipeOp::GetAttr: return "get_attr";
    case RecipeOp::SetItem: return "set_item";
    case RecipeOp::SetAttr: return "set_attr";
    case RecipeOp::Append: return "append";
    case RecipeOp::DictUpdate: return "dict_update";
    case RecipeOp::Call: return "call";
  }
  return "?";
}

}  // namespace

int32_t Recipe::add(RecipeOp op, int32_t a, std::span<const int32_t> operands, PyObject* object) {
  const auto slot = static_cast<int32_t>(code_.size());
  for (const int32_t operand : operands) CHECK(operand < slot, "recipe operands are defined before their use");
  if (fills(op)) CHECK(a < slot);
  RecipeInsn insn{op, a, static_cast<int32_t>(operands_.size()), static_cast<int32_t>(operands.size()),
                  Ref::borrow(object)};
  operands_.insert(operands_.end(), operands.begin(), operands.end());
  code_.push_back(std::move(insn));
  return slot;
}

PyObject* Recipe::run(PyObject* const* fetched, PyObject* const* outputs, PyObject** roots,
                      PyObject* const* numbers) const {
  std::array<PyObject*, 32> few_slots, few_values;
  std::vector<PyObject*> many;
  size_t most = 0;
  for (const RecipeInsn& insn : code_) most = std::max(most, static_cast<size_t>(insn.count));
  PyObject** slots = few_slots.data();
  PyObject** values = few_values.data();
  if (code_.size() > few_slots.size() || most > few_values.size()) {
    many.resize(code_.size() + most);
    slots = many.data();
    values = slots + code_.size();
  }

  // What guards fetched is borrowed, and a side effect may drop it.
  for (size_t i = 0; i < code_.size(); i++) {
    slots[i] = code_[i].op == RecipeOp::Fetched ? new_reference(fetched[code_[i].a]) : nullptr;
  }
  size_t done = 0;
  for (; done < code_.size(); done++) {
    const RecipeInsn& insn = code_[done];
    if (insn.op == RecipeOp::Fetched) continue;
    const auto count = static_cast<size_t>(insn.count);
    for (size_t k = 0; k < count; k++) {
      const int32_t operand = operands_[static_cast<size_t>(insn.first) + k];
      values[k] = operand < 0 ? nullptr : slots[operand];
    }
    PyObject* target = fills(insn.op) ? slots[insn.a] : nullptr;
    slots[done] = run_insn(insn, target, {values, count}, outputs, numbers);
    if (slots[done] == nullptr) break;
  }

  PyObject* result = nullptr;
  if (done == code_.size()) {
    result = new_reference(result_ < 0 ? Py_None : slots[result_]);
    for (size_t i = 0; roots != nullptr && i < roots_.size(); i++) {
      roots[i] = roots_[i] < 0 ? nullptr : new_reference(slots[roots_[i]]);
    }
  }
  for (size_t i = 0; i < code_.size(); i++) Ref::steal(slots[i]);
  return result;
}

int32_t Recipe::single_output() const {
  if (result_ < 0 || code_.size() != 1 || !roots_.empty()) return -1;
  const RecipeInsn& insn = code_[static_cast<size_t>(result_)];
  return insn.op == RecipeOp::Output ? insn.a : -1;
}

std::string Recipe::describe() const {
  std::string out;
  for (size_t i = 0; i < code_.size(); i++) {
    const RecipeInsn& insn = code_[i];
    out += "%" + std::to_string(i) + " = " + name_of(insn.op);
    if (fills(insn.op)) out += " %" + std::to_string(insn.a);
    if (insn.op == RecipeOp::Fetched || insn.op == RecipeOp::Output || insn.op == RecipeOp::Number) out += " " + std::to_string(insn.a);
    if (insn.object) out += " " + constant_text(insn.object.get());
    if (insn.count > 0) out += " (";
    for (int32_t k = 0; k < insn.count; k++) {
      const int32_t operand = operands_[static_cast<size_t>(insn.first + k)];
      out += (k > 0 ? ", " : "") + (operand < 0 ? std::string("none") : "%" + std::to_string(operand));
    }
    out += insn.count > 0 ? ")\n" : "\n";
  }
  return out + "return " + (result_ < 0 ? std::string("None") : "%" + std::to_string(result_)) + "\n";
}

}  // namespace braze::capture
