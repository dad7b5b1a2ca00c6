#include "braze/trace/tensor_guard.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "braze/trace/transforms.h"

namespace braze::trace {
namespace {

struct TensorState {
  PyTypeObject* type;
  uint64_t keys;
  c10::ScalarType dtype;
  c10::Device device{c10::kCPU};
  bool requires_grad;
  bool leaf;                           // looked at where a tensor requires grad and is no parameter
  bool exact_storage;
  bool no_hooks;
  int64_t offset = 0;
  size_t storage_bytes = 0;
  std::vector<int64_t> sizes;          // -1: dynamic
  std::vector<int64_t> strides;        // by value, unless order is set
  std::vector<int> order;              // dynamic: dense with these dimensions, innermost first
};

bool strides_match(const TensorState& state, const c10::TensorImpl& impl) {
  if (state.order.empty()) return impl.strides() == at::IntArrayRef(state.strides);
  const at::IntArrayRef sizes = impl.sizes(), strides = impl.strides();
  int64_t expected = 1;
  for (int d : state.order) {
    const auto i = static_cast<size_t>(d);
    if (strides[i] != expected) return false;
    expected *= std::max<int64_t>(sizes[i], 1);
  }
  return true;
}

bool sizes_match(const TensorState& state, at::IntArrayRef sizes) {
  if (state.order.empty()) return sizes == at::IntArrayRef(state.sizes);
  if (sizes.size() != state.sizes.size()) return false;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (state.sizes[i] < 0 ? sizes[i] < 2 : sizes[i] != state.sizes[i]) return false;
  return true;
}

bool storage_matches(const TensorState& state, const c10::TensorImpl& impl) {
  return impl.storage_offset() == state.offset && impl.unsafe_storage().nbytes() == state.storage_bytes;
}

// What may be written in place, and where gradients go, differs.
bool leaf_matches(const TensorState& state, const c10::TensorImpl& impl) {
  if (!state.requires_grad || state.type == reinterpret_cast<PyTypeObject*>(ParameterClass)) return true;
  const auto& autograd = *static_cast<const torch::autograd::AutogradMeta*>(impl.autograd_meta());
  return (autograd.requires_grad_ && !autograd.grad_fn_) == state.leaf;
}

bool check(const void* opaque, PyObject* object) {
  const auto& state = *static_cast<const TensorState*>(opaque);
  if (Py_TYPE(object) != state.type) return false;
  const at::Tensor& tensor = THPVariable_Unpack(object);
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (impl.key_set().raw_repr() != state.keys || c10::typeMetaToScalarType(impl.dtype()) != state.dtype ||
      impl.device() != state.device || impl.requires_grad() != state.requires_grad)
    return false;
  return sizes_match(state, impl.sizes()) && strides_match(state, impl) &&
         (!state.exact_storage || storage_matches(state, impl)) && leaf_matches(state, impl) &&
         !has_tangent(impl) && !(state.no_hooks && has_hooks(tensor));
}

// Nothing but sizes differs: the layout is dense in the same order of dimensions as before.
bool changed_sizes(const void* opaque, PyObject* object, std::vector<int64_t>* dimensions) {
  const auto& state = *static_cast<const TensorState*>(opaque);
  if (Py_TYPE(object) != state.type || state.exact_storage) return false;
  const c10::TensorImpl& impl = *THPVariable_Unpack(object).unsafeGetTensorImpl();
  if (impl.key_set().raw_repr() != state.keys || c10::typeMetaToScalarType(impl.dtype()) != state.dtype ||
      impl.device() != state.device || impl.requires_grad() != state.requires_grad ||
      impl.sizes().size() != state.sizes.size() || !leaf_matches(state, impl) || has_tangent(impl) ||
      (state.no_hooks && has_hooks(THPVariable_Unpack(object)))) {
    return false;
  }
  for (size_t i = 0; i < state.sizes.size(); ++i) {
    if (impl.sizes()[i] == state.sizes[i] || (state.sizes[i] < 0 && impl.sizes()[i] >= 2)) continue;
    // 0 and 1 are never symbolic.
    if (impl.sizes()[i] < 2 || (state.sizes[i] >= 0 && state.sizes[i] < 2)) return false;
    dimensions->push_back(static_cast<int64_t>(i));
  }
  if (!state.order.empty()) return strides_match(state, impl);
  const std::vector<int> before = dense_order(state.sizes, state.strides);
  return !before.empty() && before == dense_order(impl.sizes(), impl.strides());
}

std::string list(at::IntArrayRef values) {
  std::ostringstream out;
  out << "[";
  for (size_t i = 0; i < values.size(); ++i) {
    out << (i == 0 ? "" : ", ");
    if (values[i] < 0) out << "*"; else out << values[i];
  }
  out << "]";
  return out.str();
}

std::string expected(const TensorState& state) {
  std::ostringstream out;
  out << state.type->tp_name << " " << c10::toString(state.dtype) << " " << list(state.sizes);
  if (state.order.empty()) out << " strides " << list(state.strides);
  else out << " dense";
  out << " on " << state.device << (state.requires_grad ? " requires_grad" : "");
  return out.str();
}

std::string describe(const void* opaque, PyObject* object) {
  const auto& state = *static_cast<const TensorState*>(opaque);
  if (object == nullptr) return expected(state);
  std::ostringstream out;
  const auto differ = [&](const std::string& what, const auto& now, const auto& before) {
    out << (out.tellp() == 0 ? "" : "; ") << what << " is " << now << ", was " << before;
  };
  if (Py_TYPE(object) != state.type) {
    differ("type", std::string(Py_TYPE(object)->tp_name), std::string(state.type->tp_name));
    return out.str();
  }
  const c10::TensorImpl& impl = *THPVariable_Unpack(object).unsafeGetTensorImpl();
  if (c10::typeMetaToScalarType(impl.dtype()) != state.dtype)
    differ("dtype", c10::toString(c10::typeMetaToScalarType(impl.dtype())), c10::toString(state.dtype));
  if (impl.device() != state.device) differ("device", impl.device().str(), state.device.str());
  if (impl.requires_grad() != state.requires_grad) differ("requires_grad", impl.requires_grad(), state.requires_grad);
  else if (!leaf_matches(state, impl)) differ("leaf", !state.leaf, state.leaf);
  if (!sizes_match(state, impl.sizes())) differ("size", list(impl.sizes()), list(state.sizes));
  else if (!strides_match(state, impl)) differ("stride", list(impl.strides()), list(state.strides));
  if (state.exact_storage && !storage_matches(state, impl)) out << (out.tellp() == 0 ? "" : "; ") << "storage changed";
  if (state.no_hooks && has_hooks(THPVariable_Unpack(object))) out << (out.tellp() == 0 ? "" : "; ") << "it has hooks";
  if (has_tangent(impl)) out << (out.tellp() == 0 ? "" : "; ") << "it has a forward-mode tangent";
  if (impl.key_set().raw_repr() != state.keys && out.tellp() == 0) out << "dispatch keys changed";
  return out.str();
}

}  // namespace

bool has_hooks(const at::Tensor& tensor) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  if (meta == nullptr) return false;
  if (!meta->hooks_.empty() || meta->post_acc_grad_hooks_ != nullptr) return true;
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(tensor);
  return accumulator && (!accumulator->pre_hooks().empty() || !accumulator->post_hooks().empty() ||
                         !accumulator->tensor_pre_hooks().empty() || accumulator->tensor_post_acc_grad_hooks() != nullptr);
}

std::vector<int> dense_order(at::IntArrayRef sizes, at::IntArrayRef strides) {
  std::vector<int> order(sizes.size());
  std::iota(order.rbegin(), order.rend(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return strides[static_cast<size_t>(a)] < strides[static_cast<size_t>(b)];
  });
  int64_t expected_stride = 1;
  for (int d : order) {
    const auto i = static_cast<size_t>(d);
    if (strides[i] != expected_stride) return {};
    expected_stride *= std::max<int64_t>(sizes[i], 1);
  }
  return order;
}

capture::TensorOperand tensor_operand(PyObject* object, const TensorGuardOptions& options) {
  const at::Tensor& tensor = THPVariable_Unpack(object);
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  auto state = std::make_shared<TensorState>();
  state->type = Py_TYPE(object);
  state->keys = impl.key_set().raw_repr();
  state->dtype = tensor.scalar_type();
  state->device = tensor.device();
  state->requires_grad = tensor.requires_grad();
  state->leaf = tensor.requires_grad() && tensor.is_leaf();
  state->exact_storage = options.exact_storage;
  state->no_hooks = options.no_hooks;
  state->sizes = impl.sizes().vec();
  state->strides = impl.strides().vec();
  if (options.exact_storage) {
    state->offset = impl.storage_offset();
    state->storage_bytes = impl.unsafe_storage().nbytes();
  }
  for (size_t i = 0; i < options.dynamic.size(); ++i)
    if (options.dynamic[i]) {
      state->sizes[i] = -1;
      state->order = dense_order(impl.sizes(), impl.strides());
    }
  return {state, &check, &describe, &changed_sizes};
}

}  // namespace braze::trace
