#include "braze/runtime/inputs.h"

#include <ATen/ops/empty.h>

#include "braze/runtime/python_tensor.h"

namespace braze::runtime {
namespace {
constexpr int64_t kUnit = 1;
}

at::Tensor bind(const InputBinding& binding, const at::Tensor& callers) {
  switch (binding.kind) {
    case InputBinding::Kind::Tensor: return callers;
    case InputBinding::Kind::Constant: return binding.constant;
    case InputBinding::Kind::StorageBase: break;
  }
  const auto elements = static_cast<int64_t>(callers.storage().nbytes() / callers.element_size());
  at::Tensor base = at::empty({0}, callers.options().requires_grad(false));
  base.unsafeGetTensorImpl()->set_storage_keep_dtype(callers.storage());
  base.unsafeGetTensorImpl()->set_sizes_and_strides(c10::IntArrayRef(elements), c10::IntArrayRef(kUnit), 0);
  return base;
}

std::vector<int64_t> unpack_sizes(std::span<const int32_t> places, _object* const* inputs) {
  std::vector<int64_t> out;
  for (const int32_t place : places) out.push_back(unpack_integer(inputs[place]));
  return out;
}

}  // namespace braze::runtime
