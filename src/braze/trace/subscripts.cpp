#include "braze/trace/subscripts.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <string_view>
#include <utility>
#include <vector>

namespace braze::trace {
namespace {

using capture::Ref;

// How many dimensions of the tensor an item takes; -1: not known.
int64_t dimensions_of(PyObject* item) {
  if (item == Py_None || PyBool_Check(item)) return 0;
  if (PySlice_Check(item) || PyLong_Check(item) || torch::is_symint(item)) return 1;
  if (!THPVariable_Check(item)) return -1;
  const at::Tensor& tensor = THPVariable_Unpack(item);
  const bool is_mask = tensor.scalar_type() == c10::kBool || tensor.scalar_type() == c10::kByte;
  return is_mask ? tensor.dim() : 1;
}

bool is_named(PyObject* callable, const char* name, const char* method) {
  if (PyCFunction_Check(callable)) {
    PyObject* const self = PyCFunction_GET_SELF(callable);
    return self != nullptr && PyModule_Check(self) && std::string_view(reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name) == name &&
           std::string_view(PyModule_GetName(self)) == "_operator";
  }
  return Py_IS_TYPE(callable, &PyWrapperDescr_Type) && PyUnicode_CompareWithASCIIString(PyDescr_NAME(callable), method) == 0;
}

}  // namespace

std::optional<Subscript> select_symbolic(const at::Tensor& tensor, PyObject* key) {
  std::vector<PyObject*> items;
  if (PyTuple_CheckExact(key)) items.assign(&PyTuple_GET_ITEM(key, 0), &PyTuple_GET_ITEM(key, 0) + PyTuple_GET_SIZE(key));
  else items.push_back(key);
  bool any = false;
  for (PyObject* item : items) any = any || torch::is_symint(item);
  if (!any) return std::nullopt;

  int64_t total = 0;
  for (PyObject* item : items) {
    const int64_t n = item == Py_Ellipsis ? 0 : dimensions_of(item);
    if (n < 0) return std::nullopt;
    total += n;
  }
  if (total > tensor.dim()) return std::nullopt;   // an error, which torch says
  Subscript out{tensor, {}};
  std::vector<Ref> left;
  const Ref whole = Ref::steal(PySlice_New(nullptr, nullptr, nullptr));
  int64_t dim = 0, behind = total;   // of out.tensor; dimensions that this item and those behind it take
  bool from_end = false;             // the ellipsis has been there
  for (PyObject* item : items) {
    const int64_t n = item == Py_Ellipsis ? 0 : dimensions_of(item);
    if (item == Py_Ellipsis && std::exchange(from_end, true)) return std::nullopt;
    if (item == Py_Ellipsis) dim = out.tensor.dim() - behind;
    if (torch::is_symint(item)) {
      out.tensor = out.tensor.select_symint(dim, py::cast<c10::SymInt>(py::handle(item)));
    } else if (item == Py_None) {    // in its place: the strides of the new dimension are those before the select
      out.tensor = out.tensor.unsqueeze(dim++);
      left.push_back(whole);
    } else {
      dim += n;
      left.push_back(Ref::borrow(item));
    }
    behind -= n;
  }
  out.key = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(left.size())));
  for (size_t i = 0; i < left.size(); ++i) PyTuple_SET_ITEM(out.key.get(), static_cast<Py_ssize_t>(i), left[i].release());
  return out;
}

bool reads_subscript(PyObject* callable) { return is_named(callable, "getitem", "__getitem__"); }
bool writes_subscript(PyObject* callable) { return is_named(callable, "setitem", "__setitem__"); }

}  // namespace braze::trace
