#include "braze/trace/python_number.h"

#include <ATen/ScalarOps.h>
#include <c10/core/SymBool.h>
#include <c10/core/SymFloat.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include "braze/trace/abort.h"
#include "braze/trace/sym_node.h"

namespace braze::trace {
namespace {

// The symbolic number that the argument parser attached to the tensor's Python object; only symbolic ones have one. A
// null object if there is none. Needs the GIL.
py::object attached(const at::Tensor& wrapped) {
  const py::object object = py::cast(wrapped);
  return py::hasattr(object, "_wrapped_number") ? object.attr("_wrapped_number") : py::object();
}

bool may_be_symbolic(const at::Tensor& wrapped) {
  return wrapped.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj() != nullptr;
}

std::optional<graph::Argument> symbolic_number(const at::Tensor& wrapped) {
  if (!may_be_symbolic(wrapped)) return std::nullopt;
  const py::gil_scoped_acquire gil;
  const py::object number = attached(wrapped);
  if (!number) return std::nullopt;
  if (torch::is_symint(number)) return to_expr(number.cast<c10::SymInt>());
  if (torch::is_symfloat(number)) return number.cast<c10::SymFloat>().guard_float(__FILE__, __LINE__);
  if (torch::is_symbool(number)) return number.cast<c10::SymBool>().guard_bool(__FILE__, __LINE__);
  return std::nullopt;
}

}  // namespace

bool is_symbolic_number(const at::Tensor& wrapped) {
  if (!may_be_symbolic(wrapped)) return false;
  const py::gil_scoped_acquire gil;
  return static_cast<bool>(attached(wrapped));
}

std::optional<FloatId> symbolic_float(const at::Tensor& wrapped) {
  if (!may_be_symbolic(wrapped)) return std::nullopt;
  const py::gil_scoped_acquire gil;
  const py::object number = attached(wrapped);
  if (!number || !torch::is_symfloat(number)) return std::nullopt;
  return to_float_id(number.cast<c10::SymFloat>());
}

at::Tensor wrap_number(const at::Scalar& number) {
  at::Tensor wrapped = c10::scalar_to_tensor(number.isSymbolic() ? at::Scalar(0.0) : number);
  wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
  if (!number.isSymbolic()) return wrapped;
  const py::gil_scoped_acquire gil;
  if (number.isSymInt()) py::cast(wrapped).attr("_wrapped_number") = py::cast(number.toSymInt());
  else if (number.isSymFloat()) py::cast(wrapped).attr("_wrapped_number") = py::cast(number.toSymFloat());
  else unsupported("a symbolic bool as an operand");
  return wrapped;
}

std::optional<graph::Argument> python_number(const at::Tensor& wrapped) {
  if (auto symbolic = symbolic_number(wrapped)) return symbolic;
  if (wrapped.dim() != 0) return std::nullopt;
  switch (wrapped.scalar_type()) {
    case c10::kDouble: return *wrapped.const_data_ptr<double>();
    case c10::kLong: return graph::Argument(sym::Expr(*wrapped.const_data_ptr<int64_t>()));
    case c10::kBool: return *wrapped.const_data_ptr<bool>();
    case c10::kComplexDouble: {
      const auto value = *wrapped.const_data_ptr<c10::complex<double>>();
      return std::complex<double>(value.real(), value.imag());
    }
    default: return std::nullopt;
  }
}

}  // namespace braze::trace
