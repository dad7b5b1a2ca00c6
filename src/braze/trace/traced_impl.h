// TracedImpl: a tensor without storage that stands for one value of the graph under construction. It sits inside a
// FunctionalTensorWrapper, so user code and autograd never see it; its key leads every operator to our handler.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include "braze/graph/graph.h"
#include "braze/trace/sym_node.h"
#include "braze/trace/torch_compat.h"

namespace braze::trace {

class TracedImpl final : public c10::TensorImpl {
 public:
  // `trace` identifies the recording that owns `value`; the pointer is used only while that recording is alive.
  TracedImpl(graph::Value* value, uint64_t trace, const EnvPtr& env);

  graph::Value* value() const { return value_; }
  uint64_t trace() const { return trace_; }

  // The known contents of a constant; undefined for computed values.
  const at::Tensor& constant() const { return constant_; }
  void set_constant(at::Tensor constant) { constant_ = std::move(constant); }
  // A meta tensor of this type, made once, for type rules of libtorch.
  const at::Tensor& meta() const { return meta_; }
  void set_meta(at::Tensor meta) { meta_ = std::move(meta); }

  // Below functionalization nothing may autocast again.
  void remove_autocast_keys() { key_set_ = key_set_ - c10::autocast_dispatch_keyset; }

  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                              bool allow_metadata_change) const override;
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                              bool allow_metadata_change) const override;

 private:
  TracedImpl(const TracedImpl& other, int /*copy*/);
  const char* tensorimpl_type_name() const override { return "TracedImpl"; }

  graph::Value* value_;
  uint64_t trace_;
  at::Tensor constant_;
  at::Tensor meta_;
};

// The TracedImpl behind a tensor that is not wrapped, else nullptr.
inline TracedImpl* traced(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const c10::DispatchKeySet keys = tensor.key_set();
  if (!keys.has(kTraceKey) || keys.has(c10::DispatchKey::Functionalize)) return nullptr;
  return static_cast<TracedImpl*>(tensor.unsafeGetTensorImpl());
}

// True for the wrappers that user code holds.
inline bool is_wrapper(const at::Tensor& tensor) {
  return tensor.defined() && tensor.key_set().has_all(c10::DispatchKeySet({kTraceKey, c10::DispatchKey::Functionalize}));
}

}  // namespace braze::trace
