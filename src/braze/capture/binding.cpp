#include "braze/capture/binding.h"

#include <vector>

namespace braze::capture {

namespace {

bool same_name(PyObject* a, PyObject* b) {
  if (a == b) return true;
  const int order = PyUnicode_Compare(a, b);
  if (order != 0 && PyErr_Occurred()) PyErr_Clear();
  return order == 0;
}

}  // namespace

bool binds(PyFunctionObject* function, int64_t n_positional, PyObject* kwnames) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  const int64_t n_params = code->co_argcount, n_named = n_params + code->co_kwonlyargcount;
  if (n_positional > n_params && !(code->co_flags & CO_VARARGS)) return false;
  Ref names = Ref::steal(PyCode_GetVarnames(code));
  if (!names) return PyErr_Clear(), true;

  std::vector<bool> given(static_cast<size_t>(n_named), false);
  for (int64_t i = 0; i < n_positional && i < n_params; i++) given[static_cast<size_t>(i)] = true;
  for (Py_ssize_t k = 0; kwnames != nullptr && k < PyTuple_GET_SIZE(kwnames); k++) {
    int64_t at = code->co_posonlyargcount;
    while (at < n_named && !same_name(PyTuple_GET_ITEM(names.get(), at), PyTuple_GET_ITEM(kwnames, k))) at++;
    if (at == n_named) {
      if (!(code->co_flags & CO_VARKEYWORDS)) return false;
    } else {
      if (given[static_cast<size_t>(at)]) return false;
      given[static_cast<size_t>(at)] = true;
    }
  }
  const int64_t n_defaults = function->func_defaults == nullptr ? 0 : PyTuple_GET_SIZE(function->func_defaults);
  for (int64_t i = 0; i < n_params - n_defaults; i++) {
    if (!given[static_cast<size_t>(i)]) return false;
  }
  for (int64_t i = n_params; i < n_named; i++) {
    if (given[static_cast<size_t>(i)]) continue;
    PyObject* defaults = function->func_kwdefaults;
    if (defaults == nullptr || PyDict_Contains(defaults, PyTuple_GET_ITEM(names.get(), i)) != 1) return PyErr_Clear(), false;
  }
  return true;
}

}  // namespace braze::capture
