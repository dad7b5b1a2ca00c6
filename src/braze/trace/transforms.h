// Functional transforms (torch.func, torch.vmap). libtorch keeps them as levels of a stack for each thread; a tensor
// inside has a wrapper for each level. A trace lets them run for real: what comes out below the last level are plain
// operators on our tensors. Needs the GIL.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <string>

namespace braze::trace {

// Whether the tensor is wrapped by a transform, be it over or not.
bool is_transformed(const at::Tensor& tensor);
// The tensor inside all such wrappers.
at::Tensor below_transforms(const at::Tensor& tensor);

// Whether the thread is inside a transform.
bool in_transform();
// Whether some thread of the process is in a level of forward-mode differentiation; there is one at most.
bool in_forward_level();
// Whether a level is at work on an operator, which will come again below it.
bool in_transform_kernel();
// Whether the tensor has a forward-mode tangent.
bool has_tangent(const c10::TensorImpl& tensor);

// While alive, operators of this thread pass the levels by.
class BelowTransforms {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::DispatchKeySet(
      {c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode})};
};

// The state that transforms leave changed where they are not left in order. At first the thread is in none.
class TransformState {
 public:
  TransformState();
  void restore();
  // After each call that the traced program makes: whether the forward-mode level has been there before and is now.
  void note_forward_level(bool before, bool now);
  bool in_forward_level() const { return in_forward_level_; }

 private:
  bool inplace_requires_grad_;
  std::optional<std::string> hooks_message_;   // why hooks for saved tensors are disabled
  bool in_forward_level_ = false;              // that the program has entered
};

}  // namespace braze::trace
