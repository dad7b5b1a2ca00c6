#include "braze/trace/types.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/List.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <map>
#include <mutex>

#include "braze/trace/abort.h"
#include "braze/trace/compiler.h"
#include "braze/trace/probe.h"
#include "braze/trace/structured.h"
#include "braze/trace/torch_types.h"

namespace braze::trace {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;

struct Counters {
  std::mutex mutex;
  int64_t native = 0, structured = 0, cpp_meta = 0, python_meta = 0;
  std::map<std::string, int64_t> python_ops;
};
Counters& counters() {
  static Counters instance;
  return instance;
}

const DispatchKeySet kExcludedForMeta = c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                        c10::autocast_dispatch_keyset | kRecordingKeys |
                                        DispatchKeySet({DispatchKey::Python, DispatchKey::PythonTLSSnapshot});

at::Tensor make_meta(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset, c10::ScalarType dtype) {
  if (offset == 0) return at::Tensor(at::detail::empty_strided_meta(sizes, strides, dtype));
  int64_t extent = offset + 1;
  for (size_t i = 0; i < sizes.size(); ++i) extent += std::max<int64_t>(sizes[i] - 1, 0) * strides[i];
  at::Tensor meta(at::detail::empty_strided_meta({extent}, {1}, dtype));
  meta.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return meta;
}

at::Tensor to_meta(const at::Tensor& tensor) {
  if (TracedImpl* impl = traced(tensor)) {
    if (impl->meta().defined()) return impl->meta();
    at::Tensor meta =
        make_meta(specialized(impl->sym_sizes()), specialized(impl->sym_strides()),
                  impl->sym_storage_offset().guard_int(__FILE__, __LINE__), c10::typeMetaToScalarType(impl->dtype()));
    impl->set_meta(meta);
    return meta;
  }
  // Python numbers stay as they are: type promotion looks at the tensor itself.
  if (tensor.device().is_meta() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
  if (tensor.layout() != c10::kStrided || tensor.is_quantized()) unsupported("a tensor that is not strided");
  return make_meta(tensor.sizes(), tensor.strides(), tensor.storage_offset(), tensor.scalar_type());
}

IValue meta_argument(const IValue& value, ArgumentKind kind) {
  if (kind == ArgumentKind::Device) return c10::Device(c10::kMeta);
  if (kind == ArgumentKind::Generator) return {};
  return map_argument(value, kind, to_meta);
}

// Their type functions give other strides than the CPU kernels do.
bool is_misdescribed(const std::string& name) { return name == "aten::_fft_r2c" || name == "aten::linalg_eig"; }

MetaTier tier_of(const c10::OperatorHandle& op, OperatorInfo& info) {
  info.structured = structured_function(op);
  if (info.structured != nullptr) return MetaTier::Structured;
  if (!has_kernel(op, DispatchKey::Meta) || is_misdescribed(op.schema().name())) return can_probe(op) ? MetaTier::Probe : MetaTier::None;
  return has_python_kernel(op, DispatchKey::Meta) ? MetaTier::Python : MetaTier::Cpp;
}

void count(MetaTier tier, const c10::OperatorHandle& op) {
  Counters& c = counters();
  const std::lock_guard lock(c.mutex);
  switch (tier) {
    case MetaTier::Structured: ++c.structured; break;
    case MetaTier::Cpp: ++c.cpp_meta; break;
    case MetaTier::Python:
      ++c.python_meta;
      ++c.python_ops[c10::toString(op.operator_name())];
      break;
    case MetaTier::Probe:
    case MetaTier::Unknown:
    case MetaTier::None: break;
  }
}

}  // namespace

ExcludeTracing::ExcludeTracing() : off_(kExcludedForMeta) {}

c10::SmallVector<int64_t, 6> specialized(c10::SymIntArrayRef values) {
  c10::SmallVector<int64_t, 6> out;
  for (const c10::SymInt& v : values) out.push_back(v.guard_int(__FILE__, __LINE__));
  return out;
}

IValue specialized(const IValue& value) {
  if (value.isSymInt()) return value.toSymInt().guard_int(__FILE__, __LINE__);
  if (!value.isList() || value.isIntList()) return value;
  c10::List<int64_t> out;
  for (const IValue& item : value.toListRef())
    out.push_back(item.isSymInt() ? item.toSymInt().guard_int(__FILE__, __LINE__) : item.toInt());
  return out;
}

void count_native_rule() {
  Counters& c = counters();
  const std::lock_guard lock(c.mutex);
  ++c.native;
}

TypeStatistics type_statistics() {
  Counters& c = counters();
  const std::lock_guard lock(c.mutex);
  return {c.native, c.structured, c.cpp_meta, c.python_meta, {c.python_ops.begin(), c.python_ops.end()}};
}

void reset_type_statistics() {
  Counters& c = counters();
  const std::lock_guard lock(c.mutex);
  c.native = c.structured = c.cpp_meta = c.python_meta = 0;
  c.python_ops.clear();
}

torch::jit::Stack run_meta(const c10::OperatorHandle& op, OperatorInfo& info, at::ArrayRef<IValue> arguments) {
  if (info.tier == MetaTier::Unknown) info.tier = tier_of(op, info);
  if (info.tier == MetaTier::None) unsupported("operator " + info.op->name + " has no rule for its result's type");
  count(info.tier, op);
  if (info.tier == MetaTier::Probe) return run_probe(op, info, arguments, /*dynamic=*/false);

  torch::jit::Stack stack;
  stack.reserve(arguments.size() + 2);
  for (size_t i = 0; i < arguments.size(); ++i) stack.push_back(meta_argument(arguments[i], info.arguments[i]));
  // A factory without a device argument would allocate on the CPU; an operator with tensors follows these.
  if (info.device_argument >= 0 && info.op->has(graph::kFactory))
    stack[static_cast<size_t>(info.device_argument)] = c10::Device(c10::kMeta);
  else if (info.device_argument >= 0 && arguments[static_cast<size_t>(info.device_argument)].isNone())
    stack[static_cast<size_t>(info.device_argument)] = IValue();

  const ExcludeTracing off;
  try {
    if (info.tier == MetaTier::Structured)
      info.structured->callBoxed(op, DispatchKeySet(DispatchKey::Meta), &stack);
    else
      op.redispatchBoxed(DispatchKeySet(DispatchKey::Meta), &stack);
  } catch (const Abort&) {
    throw;
  } catch (const std::exception& error) {
    // The user's own error (shapes that don't fit) or a type function with gaps: eager will tell.
    const std::string text = error.what();
    unsupported(info.op->name + ": " + text.substr(0, text.find('\n')));
  }
  return stack;
}

graph::TensorType type_of(const at::Tensor& tensor, c10::Device device) {
  graph::TensorType type;
  type.dtype = from_torch(tensor.scalar_type());
  type.device = from_torch(device);
  type.is_strided = tensor.layout() == c10::kStrided;
  for (const c10::SymInt& s : tensor.sym_sizes()) type.sizes.push_back(to_expr(s));
  if (type.is_strided) {
    for (const c10::SymInt& s : tensor.sym_strides()) type.strides.push_back(to_expr(s));
    type.offset = to_expr(tensor.sym_storage_offset());
  }
  return type;
}

}  // namespace braze::trace
