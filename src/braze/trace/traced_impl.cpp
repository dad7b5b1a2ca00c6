#include "braze/trace/traced_impl.h"

#include "braze/trace/torch_types.h"

namespace braze::trace {
namespace {

c10::DispatchKeySet keys_of(const graph::TensorType& type) {
  const bool cuda = type.device.kind == Device::Kind::Cuda;
  return c10::DispatchKeySet(kTraceKey) | c10::DispatchKeySet(cuda ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU);
}

c10::SmallVector<int64_t, 6> integers(const graph::Shape& shape) {
  c10::SmallVector<int64_t, 6> out;
  for (graph::Expr e : shape) out.push_back(e.constant());
  return out;
}

bool is_static(const graph::Shape& shape) {
  for (graph::Expr e : shape)
    if (!e.is_constant()) return false;
  return true;
}

}  // namespace

TracedImpl::TracedImpl(graph::Value* value, uint64_t trace, const EnvPtr& env)
    : TensorImpl(keys_of(value->type), c10::scalarTypeToTypeMeta(to_torch(value->type.dtype)),
                 to_torch(value->type.device)),
      value_(value),
      trace_(trace) {
  const graph::TensorType& type = value->type;
  if (!type.is_strided) {
    const c10::SmallVector<c10::SymInt, 6> unknown(type.sizes.size(), unknown_size());
    set_sizes_and_strides(c10::SymIntArrayRef(unknown), c10::SymIntArrayRef(unknown), c10::SymInt(0));
    return;
  }
  if (is_static(type.sizes) && is_static(type.strides) && type.offset.is_constant()) {
    set_sizes_and_strides(integers(type.sizes), integers(type.strides), type.offset.constant());
    return;
  }
  c10::SmallVector<c10::SymInt, 6> sizes, strides;
  for (graph::Expr e : type.sizes) sizes.push_back(to_symint(e, env));
  for (graph::Expr e : type.strides) strides.push_back(to_symint(e, env));
  set_sizes_and_strides(c10::SymIntArrayRef(sizes), c10::SymIntArrayRef(strides), to_symint(type.offset, env));
}

TracedImpl::TracedImpl(const TracedImpl& other, int)
    : TensorImpl(other.key_set(), other.dtype(), other.device()),
      value_(other.value_),
      trace_(other.trace_),
      constant_(other.constant_),
      meta_(other.meta_) {}

c10::intrusive_ptr<c10::TensorImpl> TracedImpl::shallow_copy_and_detach(const c10::VariableVersion& version,
                                                                        bool allow_metadata_change) const {
  c10::intrusive_ptr<TracedImpl> copy(c10::intrusive_ptr<TracedImpl>::reclaim(new TracedImpl(*this, 0)));
  copy_tensor_metadata(this, copy.get(), version, allow_metadata_change);
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> TracedImpl::shallow_copy_and_detach(c10::VariableVersion&& version,
                                                                        bool allow_metadata_change) const {
  c10::intrusive_ptr<TracedImpl> copy(c10::intrusive_ptr<TracedImpl>::reclaim(new TracedImpl(*this, 0)));
  copy_tensor_metadata(this, copy.get(), std::move(version), allow_metadata_change);
  return copy;
}

}  // namespace braze::trace
