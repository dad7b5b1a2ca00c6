#include "braze/trace/python_number.h"

#include <c10/core/SymBool.h>
#include <c10/core/SymFloat.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include "braze/trace/sym_node.h"

namespace braze::trace {
namespace {

// The symbolic number that the argument parser attached to the tensor's Python object; only symbolic ones have one.
std::optional<graph::Argument> attached(const at::Tensor& wrapped) {
  if (wrapped.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj() == nullptr) return std::nullopt;
  const py::gil_scoped_acquire gil;
  const py::object object = py::cast(wrapped);
  if (!py::hasattr(object, "_wrapped_number")) return std::nullopt;
  const py::object number = object.attr("_wrapped_number");
  if (torch::is_symint(number)) return to_expr(number.cast<c10::SymInt>());
  if (torch::is_symfloat(number)) return number.cast<c10::SymFloat>().guard_float(__FILE__, __LINE__);
  if (torch::is_symbool(number)) return number.cast<c10::SymBool>().guard_bool(__FILE__, __LINE__);
  return std::nullopt;
}

}  // namespace

bool is_symbolic_number(const at::Tensor& wrapped) { return attached(wrapped).has_value(); }

std::optional<graph::Argument> python_number(const at::Tensor& wrapped) {
  if (auto symbolic = attached(wrapped)) return symbolic;
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
