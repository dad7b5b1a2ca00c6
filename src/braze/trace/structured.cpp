#include "braze/trace/structured.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/ops/_linalg_det_meta_dispatch.h>
#include <ATen/ops/_linalg_det_ops.h>
#include <ATen/ops/_linalg_eigh_meta_dispatch.h>
#include <ATen/ops/_linalg_eigh_ops.h>
#include <ATen/ops/_linalg_slogdet_meta_dispatch.h>
#include <ATen/ops/_linalg_slogdet_ops.h>
#include <ATen/ops/_linalg_solve_ex_meta_dispatch.h>
#include <ATen/ops/_linalg_solve_ex_ops.h>
#include <ATen/ops/_linalg_svd_meta_dispatch.h>
#include <ATen/ops/_linalg_svd_ops.h>
#include <ATen/ops/fractional_max_pool2d_meta_dispatch.h>
#include <ATen/ops/fractional_max_pool2d_ops.h>
#include <ATen/ops/linalg_cholesky_ex_meta_dispatch.h>
#include <ATen/ops/linalg_cholesky_ex_ops.h>
#include <ATen/ops/linalg_cross_meta_dispatch.h>
#include <ATen/ops/linalg_cross_ops.h>
#include <ATen/ops/linalg_inv_ex_meta_dispatch.h>
#include <ATen/ops/linalg_inv_ex_ops.h>
#include <ATen/ops/linalg_ldl_factor_ex_meta_dispatch.h>
#include <ATen/ops/linalg_ldl_factor_ex_ops.h>
#include <ATen/ops/linalg_ldl_solve_meta_dispatch.h>
#include <ATen/ops/linalg_ldl_solve_ops.h>
#include <ATen/ops/linalg_lu_factor_ex_meta_dispatch.h>
#include <ATen/ops/linalg_lu_factor_ex_ops.h>
#include <ATen/ops/linalg_lu_meta_dispatch.h>
#include <ATen/ops/linalg_lu_ops.h>
#include <ATen/ops/linalg_lu_solve_meta_dispatch.h>
#include <ATen/ops/linalg_lu_solve_ops.h>
#include <ATen/ops/linalg_qr_meta_dispatch.h>
#include <ATen/ops/linalg_qr_ops.h>
#include <ATen/ops/lu_unpack_meta_dispatch.h>
#include <ATen/ops/lu_unpack_ops.h>
#include <ATen/ops/renorm_meta_dispatch.h>
#include <ATen/ops/renorm_ops.h>
#include <ATen/ops/special_airy_ai_meta_dispatch.h>
#include <ATen/ops/special_airy_ai_ops.h>
#include <ATen/ops/special_modified_bessel_i0_meta_dispatch.h>
#include <ATen/ops/special_modified_bessel_i0_ops.h>
#include <ATen/ops/special_modified_bessel_i1_meta_dispatch.h>
#include <ATen/ops/special_modified_bessel_i1_ops.h>
#include <ATen/ops/special_modified_bessel_k0_meta_dispatch.h>
#include <ATen/ops/special_modified_bessel_k0_ops.h>
#include <ATen/ops/special_modified_bessel_k1_meta_dispatch.h>
#include <ATen/ops/special_modified_bessel_k1_ops.h>
#include <ATen/ops/special_scaled_modified_bessel_k0_meta_dispatch.h>
#include <ATen/ops/special_scaled_modified_bessel_k0_ops.h>
#include <ATen/ops/special_scaled_modified_bessel_k1_meta_dispatch.h>
#include <ATen/ops/special_scaled_modified_bessel_k1_ops.h>
#include <ATen/ops/special_spherical_bessel_j0_meta_dispatch.h>
#include <ATen/ops/special_spherical_bessel_j0_ops.h>
#include <ATen/ops/triangular_solve_meta_dispatch.h>
#include <ATen/ops/triangular_solve_ops.h>

#include <string>
#include <unordered_map>

namespace braze::trace {
namespace {

template <class Overload>
std::pair<std::string, c10::KernelFunction> row(typename Overload::schema* function) {
  std::string name = Overload::name;
  if (*Overload::overload_name != '\0') name += std::string(".") + Overload::overload_name;
  return {name, c10::KernelFunction::makeFromUnboxedRuntimeFunction(function)};
}

const std::unordered_map<std::string, c10::KernelFunction>& table() {
  static const std::unordered_map<std::string, c10::KernelFunction> rows = {
#define STRUCTURED(function, overload) row<at::_ops::overload>(&at::meta::function),
#include "braze/trace/structured.def"
#undef STRUCTURED
  };
  return rows;
}

}  // namespace

const c10::KernelFunction* structured_function(const c10::OperatorHandle& op) {
  const auto found = table().find(c10::toString(op.operator_name()));
  return found == table().end() ? nullptr : &found->second;
}

}  // namespace braze::trace
