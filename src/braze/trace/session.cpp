#include "braze/trace/session.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_assert_async.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "braze/support/check.h"
#include "braze/trace/abort.h"
#include "braze/trace/clock.h"
#include "braze/trace/subscripts.h"
#include "braze/trace/tensor_guard.h"
#include "braze/trace/torch_types.h"
#include "braze/trace/transforms.h"
#include "braze/trace/types.h"

namespace braze::trace {
namespace {

using capture::Ref;
using capture::Src;
namespace functional = at::functionalization::impl;

// What the current Python error says; clears it. Interrupts and exhausted memory stay set.
std::string take_python_error() {
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) || PyErr_ExceptionMatches(PyExc_MemoryError)) return "interrupted";
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Ref owned_type = Ref::steal(type), owned_value = Ref::steal(value), owned_traceback = Ref::steal(traceback);
  std::string text = type == nullptr ? "error" : reinterpret_cast<PyTypeObject*>(type)->tp_name;
  if (const Ref words = Ref::steal(PyObject_Str(value)); words.get() != nullptr) {
    Py_ssize_t size = 0;
    const char* utf8 = PyUnicode_AsUTF8AndSize(words.get(), &size);
    if (utf8 != nullptr) {
      const std::string_view all(utf8, static_cast<size_t>(size));
      text += ": " + std::string(all.substr(0, all.find('\n')));
    }
  }
  PyErr_Clear();
  return text;
}

bool is_partial(const at::Tensor& tensor) {
  if (tensor.storage_offset() != 0) return true;
  int64_t extent = tensor.numel() == 0 ? 0 : 1;
  for (int64_t d = 0; d < tensor.dim() && extent > 0; ++d) extent += (tensor.size(d) - 1) * tensor.stride(d);
  return static_cast<size_t>(extent) * tensor.element_size() != tensor.storage().nbytes();
}

// An argument of the call, possibly inside its containers: no attribute, global or closure on the way.
bool is_user_input(const capture::SourceTable* sources, Src src) {
  if (sources == nullptr) return false;
  while (src != capture::kNoSource) {
    const capture::Source& source = (*sources)[src];
    switch (source.kind) {
      case capture::SourceKind::Arg: return true;
      case capture::SourceKind::Item:
      case capture::SourceKind::Key: src = source.base; break;
      default: return false;
    }
  }
  return false;
}

// Attributes that show what a traced tensor does not have, or what no guard covers.
bool is_hidden_attribute(std::string_view name) {
  static constexpr std::array<std::string_view, 14> kHidden = {
      "_base", "_version", "_cdata", "_backward_hooks", "_post_accumulate_grad_hooks", "__dict__",
      "__array_interface__", "__cuda_array_interface__", "output_nr", "_python_dispatch", "volatile", "_grad", "name",
      "__weakref__"};
  return std::find(kHidden.begin(), kHidden.end(), name) != kHidden.end();
}

bool is_storage_offset(PyObject* callable) {
  return Py_IS_TYPE(callable, &PyMethodDescr_Type) &&
         PyUnicode_CompareWithASCIIString(PyDescr_NAME(callable), "storage_offset") == 0;
}

}  // namespace

Session::Session(const capture::TraceOptions& options) : start_modes_(pack_modes()), options_(options) {
  recorder_.host_numbers().set_elements([this](const graph::Value& value) { return element(value); });
}

Session::~Session() = default;

Result<std::vector<capture::TraceSession::ModeCall>> Session::leave_modes() {
  if (in_transform()) return Unsupported{"a functional transform that the call does not leave", ""};
  auto calls = mode_calls(start_modes_, pack_modes(), autocast_nesting() - mode_guard_.nesting());
  mode_guard_.restore();
  return calls;
}

Status Session::check_supported(PyObject* real) const {
  const auto no = [](std::string reason) { return Unsupported{std::move(reason), ""}; };
  if (!THPVariable_CheckExact(real)) return no(std::string("tensor subclass ") + Py_TYPE(real)->tp_name);
  const at::Tensor& tensor = THPVariable_Unpack(real);
  if (!tensor.defined()) return no("an undefined tensor");
  if (tensor.layout() != c10::kStrided) return no("a tensor with layout " + std::string(tensor.options().layout() == c10::kSparse ? "sparse" : "that is not strided"));
  if (tensor.is_quantized() || tensor.is_nested()) return no("a quantized or nested tensor");
  if (tensor.is_conj() || tensor.is_neg()) return no("a lazily conjugated or negated tensor");
  if (tensor.is_meta()) return no("a tensor on the meta device");
  if (!tensor.is_cpu() && !tensor.is_cuda()) return no("a tensor on device " + tensor.device().str());
  if (from_torch(tensor.scalar_type()) == DType::Other) return no(std::string("a tensor of type ") + c10::toString(tensor.scalar_type()));
  const c10::DispatchKeySet keys = tensor.key_set();
  if (keys.has_any(c10::DispatchKeySet({c10::DispatchKey::Functionalize, c10::DispatchKey::Python,
                                        c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
                                        c10::DispatchKey::Batched})))
    return no("a tensor of a functional transform");
  if (!tensor.has_storage()) return no("a tensor without storage");
  if (tensor._fw_grad(0).defined()) return no("a tensor with a forward-mode tangent");
  return Ok{};
}

std::vector<bool> Session::dynamic_dims(const at::Tensor& real, Src src) const {
  std::vector<bool> dynamic(static_cast<size_t>(real.dim()));
  bool any = false;
  const bool all = options_.dynamic && is_user_input(options_.sources, src);
  std::string path;
  if (!options_.dynamic_dims.empty() && options_.sources != nullptr) path = options_.sources->describe(src);
  for (size_t d = 0; d < dynamic.size(); ++d) {
    if (real.size(static_cast<int64_t>(d)) < 2) continue;
    bool listed = false;
    for (const auto& [name, dim] : options_.dynamic_dims) listed |= name == path && dim == static_cast<int64_t>(d);
    dynamic[d] = all || listed;
    any |= dynamic[d];
  }
  if (!any || options_.storage_bases || dense_order(real.sizes(), real.strides()).empty()) return {};
  return dynamic;
}

graph::TensorType Session::input_type(const at::Tensor& real, const std::vector<bool>& dynamic, Src src) {
  graph::TensorType type = type_of(real, real.device());
  type.offset = 0;    // counted from the tensor's own first element: guards don't look at offsets
  type.requires_grad = real.requires_grad();
  if (dynamic.empty()) return type;
  const std::string path = options_.sources != nullptr ? options_.sources->describe(src) : "input";
  for (size_t d = 0; d < dynamic.size(); ++d)
    if (dynamic[d])
      type.sizes[d] = recorder_.env()->new_size(real.size(static_cast<int64_t>(d)), path + ".size(" + std::to_string(d) + ")");
  graph::Expr stride = 1;
  for (int d : dense_order(real.sizes(), real.strides())) {
    const auto i = static_cast<size_t>(d);
    type.strides[i] = stride;
    if (type.sizes[i] != graph::Expr(0)) stride = stride * type.sizes[i];
  }
  return type;
}

std::string Session::input_name(Src src) {
  if (options_.sources == nullptr) return {};
  std::string name;
  for (char c : options_.sources->describe(src)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
    else if (!name.empty() && name.back() != '_') name += '_';
  }
  while (!name.empty() && name.back() == '_') name.pop_back();
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) return {};
  return names_.insert(name).second ? name : std::string();
}

void Session::make_plain(StandIn& input) {
  const bool parameter = Py_TYPE(input.object.get()) == reinterpret_cast<PyTypeObject*>(ParameterClass);
  input.value = recorder_.graph().add_input(input_type(input.real, input.dynamic, input.src),
                                            parameter ? graph::InputKind::Parameter : graph::InputKind::User,
                                            input_name(input.src));
  input.first = input.value;
  if (is_partial(input.real)) recorder_.mark_partial_input();
  input.wrapper = functional::to_functional_tensor(recorder_.tensor_for(input.value));
}

void Session::make_based(StandIn& input) {
  const c10::Storage& storage = input.real.storage();
  Base& base = bases_[{storage.unsafeGetStorageImpl(), input.real.scalar_type()}];
  if (base.value == nullptr) {
    graph::TensorType type;
    type.dtype = from_torch(input.real.scalar_type());
    type.device = from_torch(input.real.device());
    type.sizes = {static_cast<int64_t>(storage.nbytes() / input.real.element_size())};
    type.strides = {1};
    base.value = recorder_.graph().add_input(type, graph::InputKind::User, input_name(input.src));
    base.wrapper = functional::to_functional_tensor(recorder_.tensor_for(base.value));
  }
  input.base = &base;
  input.value = base.value;
  {
    // Below autograd: the tensors are views in memory, not for autograd.
    const RecordingScope recording(recorder_);
    const at::AutoDispatchBelowADInplaceOrView below;
    input.wrapper = base.wrapper.as_strided(input.real.sizes(), input.real.strides(), input.real.storage_offset());
    input.first = traced(functional::from_functional_tensor(input.wrapper))->value();
  }
}

Result<Ref> Session::stand_in(PyObject* real, Src src) {
  CHECK(!finished_);
  const TraceClock clock;
  if (THPVariable_Check(real)) {
    const at::Tensor& tensor = THPVariable_Unpack(real);
    if (auto known = by_real_.find(tensor.unsafeGetTensorImpl()); known != by_real_.end())
      return stand_ins_[known->second].python;
    if (is_traced(real)) return Ref::borrow(real);
  }
  TRY_STATUS(check_supported(real));
  StandIn input;
  input.object = Ref::borrow(real);
  input.real = THPVariable_Unpack(real);
  input.src = src;
  try {
    const BelowTransforms below;
    input.dynamic = dynamic_dims(input.real, src);
    input.operand = tensor_operand(real, {input.dynamic, options_.storage_bases});
    {
      // A stand-in has the autograd keys of its tensor, whatever the mode is now. In a call in inference mode none has, since
      // views of ordinary tensors would have to share a version counter that the wrappers made there lack.
      const c10::InferenceMode as_made(input.real.is_inference() || starts_in_inference_mode_);
      if (options_.storage_bases && input.real.numel() > 0) make_based(input);
      else make_plain(input);
    }
    give_gradient_edge(input);
    if (!input.wrapper.is_inference()) input.first_version = static_cast<uint32_t>(input.wrapper._version());
    if (input.wrapper.has_storage())
      input.wrapper.storage().unsafeGetStorageImpl()->set_throw_on_mutable_data_ptr();
    input.python = Ref::steal(THPVariable_Wrap(input.wrapper));
    if (input.python.get() == nullptr) return failure();
    if (input.value->type.requires_grad || Py_TYPE(real) == reinterpret_cast<PyTypeObject*>(ParameterClass))
      if (PyObject_SetAttrString(input.python.get(), "_is_param", Py_TYPE(real) == reinterpret_cast<PyTypeObject*>(ParameterClass) ? Py_True : Py_False) < 0)
        return failure();
  } catch (const Abort& abort) {
    return abort.why;
  } catch (const std::exception& error) {
    return Unsupported{std::string("a tensor can't be traced: ") + error.what(), ""};
  }
  const size_t index = stand_ins_.size();
  by_real_[input.real.unsafeGetTensorImpl()] = index;
  by_wrapper_[input.wrapper.unsafeGetTensorImpl()] = index;
  stand_ins_.push_back(std::move(input));
  return stand_ins_.back().python;
}

bool Session::is_traced(PyObject* object) const {
  if (!THPVariable_CheckExact(object)) return false;
  const at::Tensor& tensor = THPVariable_Unpack(object);
  return is_wrapper(tensor) || (trace::is_transformed(tensor) && is_wrapper(below_transforms(tensor)));
}

bool Session::is_transformed(PyObject* traced) const { return trace::is_transformed(THPVariable_Unpack(traced)); }

bool Session::in_transform() const { return trace::in_transform() || mode_guard_.transforms().in_forward_level(); }

PyObject* Session::real_of(PyObject* object) const {
  if (!is_traced(object)) return nullptr;
  const auto found = by_wrapper_.find(THPVariable_Unpack(object).unsafeGetTensorImpl());
  return found == by_wrapper_.end() ? nullptr : stand_ins_[found->second].object.get();
}

Unsupported Session::failure() {
  std::optional<Unsupported> noted = recorder_.take_failure();
  const std::string error = PyErr_Occurred() != nullptr ? take_python_error() : "error without a message";
  if (noted) return *noted;
  return {error, ""};
}

// Tensors that operators on constants gave become traced constants.
Ref Session::finish_call(PyObject* result) {
  const auto is_real = [&](PyObject* object) { return THPVariable_CheckExact(object) && !is_traced(object); };
  const auto wrap = [&](PyObject* object) {
    if (trace::is_transformed(THPVariable_Unpack(object))) unsupported("a transform of a tensor that the trace has not seen");
    return Ref::steal(THPVariable_Wrap(functional::to_functional_tensor(recorder_.constant(THPVariable_Unpack(object)))));
  };
  Ref owned = Ref::steal(result);
  if (is_real(result)) return wrap(result);
  const bool tuple = PyTuple_CheckExact(result), list = PyList_CheckExact(result);
  if (!tuple && !list) return owned;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(result);
  bool any = false;
  for (Py_ssize_t i = 0; i < n; ++i) any |= is_real(PySequence_Fast_GET_ITEM(result, i));
  if (!any) return owned;
  Ref copy = Ref::steal(tuple ? PyTuple_New(n) : PyList_New(n));
  if (copy.get() == nullptr) return copy;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(result, i);
    Ref replaced = is_real(item) ? wrap(item) : Ref::borrow(item);
    if (tuple) PyTuple_SET_ITEM(copy.get(), i, replaced.release());
    else PyList_SET_ITEM(copy.get(), i, replaced.release());
  }
  return copy;
}

Result<Ref> Session::call(PyObject* callable, PyObject* const* args, int64_t n_args, PyObject* kwnames) {
  CHECK(!finished_);
  const TraceClock clock;
  // Guards look at the places of inputs in their storages, and the stand-ins know them, in a trace of the second kind.
  if (!options_.storage_bases && is_storage_offset(callable)) {
    recorder_.request_storage_bases();
    return Unsupported{"storage_offset() depends on where the caller's tensor lies in its storage", ""};
  }
  try {
    const RecordingScope recording(recorder_);
    recorder_.take_failure();
    const int64_t n_positional = n_args - (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
    if (n_args == 1)
      if (capture::Ref number = read_number(callable, args[0])) return number;
    const bool forward_level = in_forward_level(), inference = c10::InferenceMode::is_enabled();
    std::array<PyObject*, 3> other{};
    std::optional<Subscript> rest;   // of a subscript with symbolic ints, which torch would take for their values
    if (!recorder_.env()->symbols().empty())
      if ((n_args == 2 && reads_subscript(callable)) || (n_args == 3 && writes_subscript(callable)))
        if (THPVariable_Check(args[0])) rest = select_symbolic(THPVariable_Unpack(args[0]), args[1]);
    Ref selected;
    if (rest) {
      selected = Ref::steal(THPVariable_Wrap(rest->tensor));
      if (n_args == 2 && PyTuple_GET_SIZE(rest->key.get()) == 0) return selected;
      std::copy_n(args, n_args, other.begin());
      other[0] = selected.get();
      other[1] = rest->key.get();
      args = other.data();
    }
    PyObject* result = PyObject_Vectorcall(callable, args, static_cast<size_t>(n_positional), kwnames);
    mode_guard_.transforms().note_forward_level(forward_level, in_forward_level());
    if (inference && trace::in_transform() && !c10::InferenceMode::is_enabled()) {
      const Ref dropped = Ref::steal(result);
      PyErr_Clear();
      return Unsupported{"a transform that leaves inference mode", ""};
    }
    if (result == nullptr) return failure();
    Ref finished = finish_call(result);
    if (finished.get() == nullptr) return failure();
    return finished;
  } catch (const Abort& abort) {
    return abort.why;
  } catch (const std::exception& error) {
    return Unsupported{error.what(), ""};
  }
}

Result<bool> Session::assume(PyObject* object, bool truth) {
  const at::Tensor& tensor = THPVariable_Unpack(object);
  if (trace::is_transformed(tensor)) return false;
  const TraceClock clock;
  try {
    const RecordingScope recording(recorder_);
    recorder_.take_failure();
    if (tensor.sym_numel().maybe_as_int() != 1) return false;
    functional::sync(tensor);
    const TracedImpl* impl = traced(functional::from_functional_tensor(tensor));
    if (impl == nullptr || impl->constant().defined()) return false;
    const c10::NoGradGuard no_grad;
    const at::Tensor fits = truth ? tensor.ne(0) : tensor.eq(0);
    at::_assert_async(fits.reshape({}), std::string(capture::kUnexpectedBranch));
    return true;
  } catch (const Abort& abort) {
    return abort.why;
  } catch (const std::exception& error) {
    return Unsupported{error.what(), ""};
  }
}

Result<std::vector<at::Tensor>> Session::record(const std::function<std::vector<at::Tensor>()>& code) {
  CHECK(!finished_);
  const TraceClock clock;
  try {
    const RecordingScope recording(recorder_);
    recorder_.take_failure();
    return code();
  } catch (const Abort& abort) {
    return abort.why;
  } catch (const std::exception& error) {
    if (auto noted = recorder_.take_failure()) return *noted;
    return Unsupported{error.what(), ""};
  }
}

Result<Ref> Session::get_attribute(PyObject* object, PyObject* name) {
  CHECK(!finished_);
  const TraceClock clock;
  const char* text = PyUnicode_AsUTF8(name);
  if (text == nullptr) return failure();
  const std::string_view view(text);
  if (is_hidden_attribute(view)) return Unsupported{"attribute " + std::string(view) + " of a tensor", ""};
  if (PyObject* real = real_of(object)) {
    const at::Tensor& tensor = THPVariable_Unpack(real);
    if (view == "grad") return Unsupported{"the gradient of a tensor from outside", ""};
    if ((view == "grad_fn" || view == "is_leaf") && tensor.grad_fn() != nullptr)
      return Unsupported{"attribute " + std::string(view) + " of a tensor that has a gradient function", ""};
  }
  try {
    const RecordingScope recording(recorder_);
    recorder_.take_failure();
    PyObject* result = PyObject_GetAttr(object, name);
    if (result == nullptr) return failure();
    Ref finished = finish_call(result);
    if (finished.get() == nullptr) return failure();
    return finished;
  } catch (const Abort& abort) {
    return abort.why;
  } catch (const std::exception& error) {
    return Unsupported{error.what(), ""};
  }
}

std::vector<capture::TraceSession::Input> Session::inputs() const {
  std::vector<Input> out;
  std::vector<const StandIn*> callers(stand_ins_.size());
  size_t n = 0;
  for (const StandIn& input : stand_ins_)
    if (input.caller >= 0) {
      callers[static_cast<size_t>(input.caller)] = &input;
      ++n;
    }
  for (size_t i = 0; i < n; ++i) out.push_back({callers[i]->src, callers[i]->operand});
  return out;
}

std::vector<capture::TraceSession::Input> Session::guarded_only() const {
  std::vector<Input> out;
  for (const StandIn& input : stand_ins_)
    if (input.caller < 0) out.push_back({input.src, input.operand});
  return out;
}

}  // namespace braze::trace
