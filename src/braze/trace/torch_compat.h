// What the tracer assumes of libtorch 2.11 to 2.13 and might change in another version, in one place.
#pragma once

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/version.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 11
#error "braze needs torch 2.11 or newer"
#endif

namespace braze::trace {

// The key of traced tensors: below autograd, autocast and functionalization, above every backend. PyTorch reserves it
// for out-of-tree fake tensors and registers nothing there; start-up checks that.
inline constexpr c10::DispatchKey kTraceKey = c10::DispatchKey::Fake;

// The key that sees a call first, before autograd and decomposition. Reserved for out-of-tree deferred initialisation.
// Only operators that write their arguments have kernels of ours there; all others fall through at no cost.
inline constexpr c10::DispatchKey kEntryKey = c10::DispatchKey::DeferredInit;

// Included in thread-local state while user code's tensor operations are recorded; this makes factories visible too.
inline constexpr c10::DispatchKeySet kRecordingKeys({kTraceKey, kEntryKey, c10::DispatchKey::Functionalize});

// Functionalization otherwise runs each in-place operator once more on meta tensors, through Python kernels, to check
// shapes and types; entry.cpp does these checks. libtorch reads the variable once, at its first in-place operator.
inline void disable_functionalization_reference() {
  setenv("TORCH_DISABLE_FUNCTIONALIZATION_META_REFERENCE", "1", /*overwrite=*/0);
}

// What the dispatcher would run for `key`: the place of registration, kept only as text, and its kind; "" is nothing.
inline std::string kernel_text(const c10::OperatorHandle& op, c10::DispatchKey key) {
  const std::string table = op.dumpComputedTable();
  const std::string label = std::string("\n") + c10::toString(key) + ": ";
  const size_t begin = table.find(label);
  return begin == std::string::npos ? "" : table.substr(begin, table.find('\n', begin + 1) - begin);
}

// Whether the operator has a kernel for `key` beside the backend's fallback (that of Meta only refuses).
inline bool has_kernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.hasComputedKernelForDispatchKey(key) && kernel_text(op, key).find("[backend fallback]") == std::string::npos;
}

inline bool has_python_kernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  const std::string line = kernel_text(op, key);
  return line.find(".py:") != std::string::npos || line.find("/dev/null") != std::string::npos;
}

// Whether a wrapper was made through a view whose writes libtorch can't carry back: the inverse of expand sums the
// elements that share memory, and that of unfold forgets elements between the windows and sums shared ones.
inline bool has_lossy_view(const at::FunctionalTensorWrapper& wrapper) {
  for (const auto& meta : wrapper.view_metas()) {
    const std::string_view type = typeid(*meta).name();
    if (type.find("expand_") != type.npos || type.find("unfold_") != type.npos) return true;
  }
  return false;
}

// A node of libtorch's autograd graph. Nodes are held by shared_ptr in some versions, by intrusive_ptr in others.
template <class T, class... Args>
auto make_autograd_node(Args&&... args) {
  using Pointer = decltype(torch::autograd::Edge::function);
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>) {
    return std::shared_ptr<T>(new T(std::forward<Args>(args)...), [](T* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<T>(std::forward<Args>(args)...);
  }
}

template <class T>
using AutogradNode = std::conditional_t<
    std::is_same_v<decltype(torch::autograd::Edge::function), std::shared_ptr<torch::autograd::Node>>, std::shared_ptr<T>,
    c10::intrusive_ptr<T>>;

}  // namespace braze::trace
