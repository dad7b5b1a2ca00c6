#include "braze/trace/natives.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/Size.h>
#include <torch/csrc/TypeInfo.h>
#include <torch/csrc/autograd/python_variable.h>

#include <string_view>
#include <unordered_map>

namespace braze::trace {
namespace {

using capture::NativeKind;
using capture::Ref;

struct Row {
  NativeKind kind;
  const char* reason = "";
};

// Keyed by method definition, which a function, its descriptor and each bound copy share; else by the object itself.
std::unordered_map<const void*, Row>& table() {
  static std::unordered_map<const void*, Row> rows;
  return rows;
}

const void* key_of(PyObject* callable) {
  if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  PyTypeObject* type = Py_TYPE(callable);
  if (type == &PyInstanceMethod_Type) return key_of(PyInstanceMethod_GET_FUNCTION(callable));   // pybind11's methods
  if (type == &PyMethod_Type) return key_of(PyMethod_GET_FUNCTION(callable));
  if (type == &PyMethodDescr_Type || type == &PyClassMethodDescr_Type)
    return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
  if (type == &PyGetSetDescr_Type) return reinterpret_cast<PyGetSetDescrObject*>(callable)->d_getset;
  if (type == &PyWrapperDescr_Type) return callable;
  if (type == capture::method_wrapper_type()) {
    // x.__getitem__: found through the slot wrapper of its type.
    const Ref name = Ref::steal(PyObject_GetAttrString(callable, "__name__"));
    const Ref self = Ref::steal(PyObject_GetAttrString(callable, "__self__"));
    if (self.get() == nullptr || name.get() == nullptr) {
      PyErr_Clear();
      return callable;
    }
    PyObject* found = _PyType_Lookup(Py_TYPE(self.get()), name.get());
    return found == nullptr ? callable : static_cast<const void*>(found);
  }
  return callable;
}

bool add_attribute(PyObject* owner, const char* name, Row row, bool required = false) {
  const Ref object = Ref::steal(PyObject_GetAttrString(owner, name));
  if (object.get() == nullptr) {
    if (required) return false;
    PyErr_Clear();     // not in this version of torch
    return true;
  }
  table()[key_of(object.get())] = row;
  return true;
}

bool is_native(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return PyCFunction_Check(object) || type == &PyMethodDescr_Type || type == &PyGetSetDescr_Type ||
         type == &PyWrapperDescr_Type || type == &PyClassMethodDescr_Type;
}

// Every native in the dict of a module or type.
bool add_all(PyObject* owner) {
  const Ref names = Ref::steal(PyObject_Dir(owner));
  if (names.get() == nullptr) return false;
  const Ref object_type = Ref::borrow(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names.get()); ++i) {
    PyObject* name = PyList_GET_ITEM(names.get(), i);
    const Ref value = Ref::steal(PyObject_GetAttr(owner, name));
    if (value.get() == nullptr) {
      PyErr_Clear();
      continue;
    }
    if (!is_native(value.get())) continue;
    // What object itself provides (__init_subclass__, __reduce__, ...) says nothing about tensors.
    PyObject* inherited = _PyType_Lookup(&PyBaseObject_Type, name);
    if (inherited != nullptr && key_of(inherited) == key_of(value.get())) continue;
    table().emplace(key_of(value.get()), Row{NativeKind::Tensor});
  }
  return true;
}

Ref torch_attribute(PyObject* c_module, const char* path) { return Ref::steal(PyObject_GetAttrString(c_module, path)); }

}  // namespace

bool load_natives() {
  const Ref torch = Ref::steal(PyImport_ImportModule("torch"));
  if (torch.get() == nullptr) return false;
  const Ref c_module = torch_attribute(torch.get(), "_C");
  if (c_module.get() == nullptr) return false;
  const Ref functions = torch_attribute(c_module.get(), "_VariableFunctions");
  const Ref tensor = torch_attribute(c_module.get(), "TensorBase");
  if (functions.get() == nullptr || tensor.get() == nullptr) return false;
  if (!add_all(functions.get()) || !add_all(tensor.get())) return false;
  for (const char* name : {"_nn", "_linalg", "_fft", "_special", "_sparse", "_nested"}) {
    const Ref module = torch_attribute(c_module.get(), name);
    if (module.get() == nullptr || !add_all(module.get())) return false;
  }
  const Ref inference_mode = torch_attribute(c_module.get(), "_InferenceMode");
  if (inference_mode.get() == nullptr) return false;
  const Ref functorch = torch_attribute(c_module.get(), "_functorch");
  const Ref autograd = torch_attribute(c_module.get(), "_autograd");
  if (functorch.get() == nullptr || autograd.get() == nullptr) return false;
  PyObject *Tensor = tensor.get(), *Functions = functions.get(), *_C = c_module.get();
  PyObject *InferenceMode = inference_mode.get(), *Functorch = functorch.get(), *Autograd = autograd.get();
  auto* const Device = reinterpret_cast<PyObject*>(&THPDeviceType);
  for (const char* name : {"Size", "device", "finfo", "iinfo"})
    if (!add_attribute(torch.get(), name, {NativeKind::Pure}, true)) return false;
  for (PyTypeObject* type : {&THPDeviceType, &THPDtypeType, &THPFInfoType, &THPIInfoType}) {
    const Ref names = Ref::steal(PyObject_Dir(reinterpret_cast<PyObject*>(type)));
    if (names.get() == nullptr) return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names.get()); ++i) {
      PyObject* value = _PyType_Lookup(type, PyList_GET_ITEM(names.get(), i));
      if (value != nullptr && is_native(value) && _PyType_Lookup(&PyBaseObject_Type, PyList_GET_ITEM(names.get(), i)) != value)
        table()[key_of(value)] = {NativeKind::Pure};
    }
  }
#define BREAK(owner, name, reason) if (!add_attribute(owner, #name, {NativeKind::Break, reason})) return false;
#define TENSOR(owner, name) if (!add_attribute(owner, #name, {NativeKind::Tensor})) return false;
#define PURE(owner, name) if (!add_attribute(owner, #name, {NativeKind::Pure})) return false;
#include "braze/trace/natives.def"
#undef BREAK
#undef TENSOR
#undef PURE
  for (const char* name : {"numel", "__add__", "__mul__", "__rmul__", "__getitem__", "__len__", "__eq__", "__contains__"})
    if (PyObject* value = PyDict_GetItemString(capture::type_dict(&THPSizeType), name)) table()[key_of(value)] = {NativeKind::Pure};
  return true;
}

void add_tensor_native(PyObject* native) { table()[key_of(native)] = {NativeKind::Tensor}; }

// What torch.ops.<namespace>.<name> calls: a function that torch makes per operator, in a module "torch._ops.<namespace>".
static bool is_operator(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return false;
  PyObject* module = reinterpret_cast<PyCFunctionObject*>(callable)->m_module;
  if (module == nullptr || !PyUnicode_Check(module)) return false;
  const char* name = PyUnicode_AsUTF8(module);
  if (name == nullptr) PyErr_Clear();
  return name != nullptr && std::string_view(name).starts_with("torch._ops.");
}

capture::NativeKind classify_native(PyObject* callable) {
  const auto found = table().find(key_of(callable));
  if (found != table().end()) return found->second.kind;
  return is_operator(callable) ? NativeKind::Tensor : NativeKind::Unknown;
}

std::string native_break_reason(PyObject* callable) {
  const auto found = table().find(key_of(callable));
  return found == table().end() || found->second.kind != NativeKind::Break ? "" : found->second.reason;
}

bool is_torch_constant(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return type == &THPDtypeType || type == &THPDeviceType || type == &THPLayoutType || type == &THPMemoryFormatType ||
         type == &THPSizeType || type == &THPFInfoType || type == &THPIInfoType;
}

}  // namespace braze::trace
