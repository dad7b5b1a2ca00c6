#include "braze/trace/transforms.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <stdexcept>
#include <utility>

#include "braze/capture/ref.h"

// Declared in ATen/functorch/DynamicLayer.h, which includes a file that torch's packages lack.
namespace at::functorch {
TORCH_API void setInplaceRequiresGradAllowed(bool allowed);
TORCH_API bool getInplaceRequiresGradAllowed();
}  // namespace at::functorch

namespace braze::trace {
namespace {

using c10::DispatchKey;
using capture::Ref;

PyObject* functorch_function(const char* name) {
  const Ref module = Ref::steal(PyImport_ImportModule("torch._C._functorch"));
  Ref function = module.get() == nullptr ? Ref() : Ref::steal(PyObject_GetAttrString(module.get(), name));
  if (function.get() == nullptr) {
    PyErr_Clear();
    throw std::runtime_error(std::string("torch has no ") + name);
  }
  return function.release();   // lives as long as the process
}

// The class of gradient wrappers is not in the headers.
at::Tensor inside_gradient_wrapper(const at::Tensor& tensor) {
  static PyObject* const unwrap = functorch_function("get_unwrapped");
  const Ref wrapper = Ref::steal(THPVariable_Wrap(tensor));
  const Ref inside = wrapper.get() == nullptr ? Ref() : Ref::steal(PyObject_CallOneArg(unwrap, wrapper.get()));
  if (inside.get() == nullptr) {
    PyErr_Clear();
    throw std::runtime_error("a tensor of a functional transform can't be unwrapped");
  }
  return THPVariable_Unpack(inside.get());
}

bool is_gradient_wrapper(const at::Tensor& tensor) { return tensor.key_set().has(DispatchKey::FuncTorchGradWrapper); }

constexpr uint64_t kForwardLevel = 0;   // libtorch has no other

// All of them: a trace starts outside. The keys do not tell, since a mode object of the program's may have restored others.
void leave_levels() {
  static PyObject* const pop = functorch_function("pop_dynamic_layer_stack_and_undo_to_depth");
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  const Ref zero = Ref::steal(PyLong_FromLong(0));
  const Ref done = Ref::steal(PyObject_CallOneArg(pop, zero.get()));
  if (done.get() == nullptr) PyErr_WriteUnraisable(pop);
  PyErr_Restore(type, value, traceback);
}

}  // namespace

bool is_transformed(const at::Tensor& tensor) {
  return tensor.defined() && (at::functorch::isBatchedTensor(tensor) || is_gradient_wrapper(tensor));
}

at::Tensor below_transforms(const at::Tensor& tensor) {
  at::Tensor inside = tensor;
  while (is_transformed(inside)) {
    const auto* batched = at::functorch::maybeGetBatchedImpl(inside);
    inside = batched != nullptr ? at::Tensor(batched->value()) : inside_gradient_wrapper(inside);
  }
  return inside;
}

bool in_transform() {
  return c10::impl::tls_local_dispatch_key_set().included_.has(DispatchKey::FuncTorchDynamicLayerFrontMode);
}

bool in_forward_level() { return torch::autograd::ForwardADLevel::try_get_by_idx(kForwardLevel) != nullptr; }

bool in_transform_kernel() {
  return c10::impl::tls_local_dispatch_key_set().excluded_.has(DispatchKey::FuncTorchDynamicLayerFrontMode);
}

bool has_tangent(const c10::TensorImpl& tensor) {
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(tensor.autograd_meta());
  return meta != nullptr && meta->fw_grad_ != nullptr && !meta->fw_grad_->empty();
}

TransformState::TransformState()
    : inplace_requires_grad_(at::functorch::getInplaceRequiresGradAllowed()),
      hooks_message_(at::SavedTensorDefaultHooks::get_disabled_error_message()) {}

void TransformState::note_forward_level(bool before, bool now) {
  if (before != now) in_forward_level_ = now;
}

void TransformState::restore() {
  if (std::exchange(in_forward_level_, false)) torch::autograd::ForwardADLevel::release_idx(kForwardLevel);
  leave_levels();
  at::functorch::setInplaceRequiresGradAllowed(inplace_requires_grad_);
  if (at::SavedTensorDefaultHooks::get_disabled_error_message() == hooks_message_) return;
  if (hooks_message_) at::SavedTensorDefaultHooks::disable(*hooks_message_);
  else at::SavedTensorDefaultHooks::enable();
}

}  // namespace braze::trace
