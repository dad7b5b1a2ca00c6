#include "braze/capture/markings.h"

#include "braze/capture/natives/natives.h"

namespace braze::capture {

namespace {

bool is_true(PyObject* dict, const char* name) {
  return PyDict_GetItemWithError(dict, interned(name)) == Py_True;
}

bool starts_with(PyObject* text, const char* prefix) {
  const Ref start = Ref::steal(PyUnicode_FromString(prefix));
  return text != nullptr && PyUnicode_Check(text) && start &&
         PyUnicode_Tailmatch(text, start.get(), 0, PY_SSIZE_T_MAX, -1) == 1;
}

// torch disables dynamo for functions of its own that braze traces well.
bool is_disabled_by_torch_itself(PyObject* dict) {
  PyObject* const original = PyDict_GetItemWithError(dict, interned("_torchdynamo_orig_callable"));
  const Ref module = original == nullptr ? Ref() : Ref::steal(PyObject_GetAttr(original, interned("__module__")));
  if (!module) PyErr_Clear();
  return starts_with(module.get(), "torch.");
}

// The set of ids that torch.compiler.allow_in_graph keeps, once torch._dynamo is loaded.
bool is_allowed_by_torch(PyObject* function) {
  PyObject* const rules = PyDict_GetItemWithError(PyImport_GetModuleDict(), interned("torch._dynamo.trace_rules"));
  if (rules == nullptr || !PyModule_Check(rules)) return false;
  PyObject* const table = PyDict_GetItemWithError(PyModule_GetDict(rules), interned("_allowed_callable_ids"));
  const Ref ids = table == nullptr ? Ref() : Ref::steal(PyObject_GetAttr(table, interned("function_ids")));
  if (!ids || !PySet_Check(ids.get()) || PySet_GET_SIZE(ids.get()) == 0) return PyErr_Clear(), false;
  const Ref id = Ref::steal(PyLong_FromVoidPtr(function));
  return id && PySet_Contains(ids.get(), id.get()) == 1;
}

}  // namespace

bool is_of_module(PyObject* function, const char* prefix) {
  return PyFunction_Check(function) && starts_with(reinterpret_cast<PyFunctionObject*>(function)->func_module, prefix);
}

bool is_torchs_own(PyObject* function) { return is_of_module(function, "torch."); }

bool is_librarys(PyObject* function) {
  if (is_torchs_own(function)) return true;
  PyObject* const module = PyFunction_Check(function) ? reinterpret_cast<PyFunctionObject*>(function)->func_module : nullptr;
  return starts_with(module, "contextlib") || starts_with(module, "braze.polyfills");
}

Marking marking_of(PyFunctionObject* function) {
  if (function->func_dict != nullptr && PyDict_GET_SIZE(function->func_dict) > 0) {
    if (is_true(function->func_dict, "_braze_disabled")) return Marking::Disabled;
    if (is_true(function->func_dict, "_braze_allowed_in_graph")) return Marking::AllowedInGraph;
    if (is_true(function->func_dict, "_torchdynamo_disable") && !is_disabled_by_torch_itself(function->func_dict)) {
      return Marking::Disabled;
    }
  }
  if (starts_with(function->func_module, "torch._dynamo.decorators") &&
      PyUnicode_CompareWithASCIIString(function->func_name, "graph_break") == 0) {
    return Marking::GraphBreak;
  }
  return is_allowed_by_torch(reinterpret_cast<PyObject*>(function)) ? Marking::AllowedInGraph : Marking::None;
}

}  // namespace braze::capture
