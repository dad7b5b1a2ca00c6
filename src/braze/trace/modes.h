// Torch's thread-wide and process-wide state that a trace depends on, packed into one word for guards.
#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <string>
#include <vector>

#include "braze/capture/tensor_domain.h"
#include "braze/trace/transforms.h"

namespace braze::trace {

uint64_t pack_modes();
std::string describe_modes(uint64_t modes);
// Why nothing can be traced in this state (dispatch modes, functorch levels); empty if it can.
std::string modes_obstacle();

// The calls of torch's own functions that lead from one state to the other; `nesting` counts the autocast regions that
// were entered and not left.
Result<std::vector<capture::TraceSession::ModeCall>> mode_calls(uint64_t from, uint64_t to, int nesting);
int autocast_nesting();

// Saves the state that traced code may change (it enters modes for real); restores it once, at the latest when it dies.
class ModeGuard {
 public:
  ModeGuard();
  ~ModeGuard() { restore(); }
  void restore();
  int nesting() const { return nesting_; }   // at the start
  TransformState& transforms() { return transforms_; }
  const TransformState& transforms() const { return transforms_; }
  ModeGuard(const ModeGuard&) = delete;
  ModeGuard& operator=(const ModeGuard&) = delete;

 private:
  c10::AutogradState autograd_;
  c10::impl::LocalDispatchKeySet keys_;
  bool cpu_autocast_, cuda_autocast_, autocast_cache_;
  at::ScalarType cpu_dtype_, cuda_dtype_, default_dtype_;
  int nesting_;
  TransformState transforms_;
  bool restored_ = false;
};

}  // namespace braze::trace
