#include "braze/trace/modes.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/anomaly_mode.h>

namespace braze::trace {
namespace {

// The fields of the word, from the lowest bit.
enum Field : unsigned {
  kGrad, kInference, kCpuAutocast, kCudaAutocast, kDeterministic, kDeterministicWarn, kFillUninitialized,
  kTorchFunctionMode, kDispatchMode, kMkldnn, kFlash, kMemoryEfficient, kMathAttention, kCudnnAttention,
  kAnomaly, kSavedTensorHooks, kCudnn, kForwardGrad, kTransform, kCudnnBenchmark, kCudnnDeterministic,
  kAutocastCache, kMultithreading, kViewReplay,
  kDefaultDtype = 24, kCpuDtype = 32, kCudaDtype = 40,   // 8 bits each
};

constexpr uint64_t bit(bool on, Field field) { return static_cast<uint64_t>(on) << field; }
constexpr uint64_t byte(c10::ScalarType type, Field field) { return static_cast<uint64_t>(static_cast<uint8_t>(type)) << field; }

}  // namespace

uint64_t pack_modes() {
  const c10::AutogradState autograd = c10::AutogradState::get_tls_state();
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  const auto& context = at::globalContext();
  // Autocast is on where its key is not excluded.
  const bool cpu_autocast = !local.excluded_.has(c10::DispatchKey::AutocastCPU);
  const bool cuda_autocast = !local.excluded_.has(c10::DispatchKey::AutocastCUDA);
  uint64_t word = bit(autograd.get_grad_mode(), kGrad) | bit(autograd.get_inference_mode(), kInference) |
                  bit(autograd.get_fw_grad_mode(), kForwardGrad) | bit(cpu_autocast, kCpuAutocast) |
                  bit(cuda_autocast, kCudaAutocast) | bit(context.deterministicAlgorithms(), kDeterministic) |
                  bit(context.deterministicAlgorithmsWarnOnly(), kDeterministicWarn) |
                  bit(context.deterministicFillUninitializedMemory(), kFillUninitialized) |
                  bit(at::impl::PythonTorchFunctionTLS::stack_len() > 0, kTorchFunctionMode) |
                  bit(c10::impl::TorchDispatchModeTLS::any_modes_set(), kDispatchMode) |
                  bit(context.userEnabledMkldnn(), kMkldnn) | bit(context.userEnabledFlashSDP(), kFlash) |
                  bit(context.userEnabledMemEfficientSDP(), kMemoryEfficient) |
                  bit(context.userEnabledMathSDP(), kMathAttention) |
                  bit(context.userEnabledCuDNNSDP(), kCudnnAttention) | bit(context.userEnabledCuDNN(), kCudnn) |
                  bit(context.benchmarkCuDNN(), kCudnnBenchmark) | bit(context.deterministicCuDNN(), kCudnnDeterministic) |
                  bit(at::autocast::is_autocast_cache_enabled(), kAutocastCache) |
                  bit(autograd.get_multithreading_enabled(), kMultithreading) |
                  bit(autograd.get_view_replay_enabled(), kViewReplay) |
                  bit(torch::autograd::AnomalyMode::is_enabled(), kAnomaly) |
                  bit(local.included_.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode), kTransform) |
                  bit(at::SavedTensorDefaultHooks::is_enabled() &&
                          !at::SavedTensorDefaultHooks::get_tls_state().stack.empty(), kSavedTensorHooks) |
                  byte(c10::get_default_dtype_as_scalartype(), kDefaultDtype);
  // Also where autocast is off: the program may set them there.
  return word | byte(at::autocast::get_autocast_dtype(c10::kCPU), kCpuDtype) |
         byte(at::autocast::get_autocast_dtype(c10::kCUDA), kCudaDtype);
}

std::string describe_modes(uint64_t modes) {
  static constexpr std::pair<Field, const char*> kNames[] = {
      {kGrad, "grad"}, {kInference, "inference"}, {kCpuAutocast, "autocast(cpu)"}, {kCudaAutocast, "autocast(cuda)"},
      {kDeterministic, "deterministic"}, {kDeterministicWarn, "deterministic(warn)"},
      {kFillUninitialized, "fill uninitialized memory"}, {kTorchFunctionMode, "torch function mode"},
      {kDispatchMode, "torch dispatch mode"}, {kMkldnn, "mkldnn"}, {kFlash, "flash attention"},
      {kMemoryEfficient, "memory-efficient attention"}, {kMathAttention, "math attention"},
      {kCudnnAttention, "cudnn attention"}, {kAnomaly, "anomaly detection"},
      {kSavedTensorHooks, "saved tensor hooks"}, {kCudnn, "cudnn"}, {kForwardGrad, "forward AD"},
      {kTransform, "functional transform"},
      {kCudnnBenchmark, "cudnn benchmark"}, {kCudnnDeterministic, "cudnn deterministic"},
      {kAutocastCache, "autocast cache"}, {kMultithreading, "multithreaded backward"}, {kViewReplay, "view replay"}};
  std::string out;
  for (auto [field, name] : kNames)
    if (modes >> field & 1) out += (out.empty() ? "" : ", ") + std::string(name);
  const auto dtype = [&](Field field) { return c10::toString(static_cast<c10::ScalarType>(modes >> field & 0xff)); };
  out += std::string(out.empty() ? "" : ", ") + "default " + dtype(kDefaultDtype);
  if (modes >> kCpuAutocast & 1) out += std::string(", autocast to ") + dtype(kCpuDtype);
  if (modes >> kCudaAutocast & 1) out += std::string(", autocast to ") + dtype(kCudaDtype);
  return out;
}

std::string modes_obstacle() {
  if (c10::impl::TorchDispatchModeTLS::any_modes_set()) return "a torch dispatch mode is active";
  if (at::impl::PythonTorchFunctionTLS::stack_len() > 0) return "a torch function mode is active";
  if (torch::autograd::AnomalyMode::is_enabled()) return "anomaly detection is on";
  if (at::SavedTensorDefaultHooks::is_enabled() && !at::SavedTensorDefaultHooks::get_tls_state().stack.empty())
    return "saved tensor hooks are active";
  if (in_transform() || c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Functionalize))
    return "a functional transform is active";
  if (in_forward_level()) return "a level of forward-mode differentiation is active";
  return {};
}

int autocast_nesting() {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting();
}

Result<std::vector<capture::TraceSession::ModeCall>> mode_calls(uint64_t from, uint64_t to, int nesting) {
  using capture::Ref;
  const Unsupported no{"a torch mode that the call leaves changed (" + describe_modes(to) + ")", ""};
  constexpr uint64_t kKnown = bit(true, kGrad) | bit(true, kCpuAutocast) | bit(true, kCudaAutocast) |
                              uint64_t{0xff} << kDefaultDtype | uint64_t{0xff} << kCpuDtype | uint64_t{0xff} << kCudaDtype;
  const uint64_t changed = from ^ to;
  if ((changed & ~kKnown) != 0) return no;
  const Ref torch = Ref::steal(PyImport_ImportModule("torch"));
  std::vector<capture::TraceSession::ModeCall> calls;
  bool ok = static_cast<bool>(torch);
  const auto add = [&](const char* name, std::initializer_list<PyObject*> arguments) {
    Ref callable = ok ? Ref::steal(PyObject_GetAttrString(torch.get(), name)) : Ref();
    ok = ok && static_cast<bool>(callable);
    capture::TraceSession::ModeCall call{std::move(callable), {}};
    for (PyObject* argument : arguments) call.arguments.push_back(Ref::borrow(argument));
    calls.push_back(std::move(call));
  };
  const auto truth = [&](Field field) { return (to >> field & 1) != 0 ? Py_True : Py_False; };
  const auto dtype = [&](Field field) {
    return reinterpret_cast<PyObject*>(torch::getTHPDtype(static_cast<c10::ScalarType>(to >> field & 0xff)));
  };
  if ((changed >> kDefaultDtype & 0xff) != 0) add("set_default_dtype", {dtype(kDefaultDtype)});
  const auto autocast = [&](const char* device, Field enabled, Field type) {
    if ((changed >> enabled & 1) == 0 && (changed >> type & 0xff) == 0) return;
    const Ref name = Ref::steal(PyUnicode_FromString(device));
    if ((to >> enabled & 1) != 0 || (changed >> type & 0xff) != 0) add("set_autocast_dtype", {name.get(), dtype(type)});
    add("set_autocast_enabled", {name.get(), truth(enabled)});
  };
  autocast("cpu", kCpuAutocast, kCpuDtype);
  autocast("cuda", kCudaAutocast, kCudaDtype);
  for (int i = 0; i < nesting; i++) add("autocast_increment_nesting", {});
  for (int i = nesting; i < 0; i++) add("autocast_decrement_nesting", {});
  if (nesting < 0) add("clear_autocast_cache", {});
  if ((changed >> kGrad & 1) != 0) {
    const Ref c = ok ? Ref::steal(PyObject_GetAttrString(torch.get(), "_C")) : Ref();
    Ref setter = c ? Ref::steal(PyObject_GetAttrString(c.get(), "_set_grad_enabled")) : Ref();
    ok = ok && static_cast<bool>(setter);
    calls.push_back({std::move(setter), {Ref::borrow(truth(kGrad))}});
  }
  if (!ok) return PyErr_Clear(), no;
  return calls;
}

ModeGuard::ModeGuard()
    : autograd_(c10::AutogradState::get_tls_state()),
      keys_(c10::impl::tls_local_dispatch_key_set()),
      cpu_autocast_(at::autocast::is_autocast_enabled(c10::kCPU)),
      cuda_autocast_(at::autocast::is_autocast_enabled(c10::kCUDA)),
      autocast_cache_(at::autocast::is_autocast_cache_enabled()),
      cpu_dtype_(at::autocast::get_autocast_dtype(c10::kCPU)),
      cuda_dtype_(at::autocast::get_autocast_dtype(c10::kCUDA)),
      default_dtype_(c10::get_default_dtype_as_scalartype()),
      nesting_(autocast_nesting()) {}

void ModeGuard::restore() {
  if (std::exchange(restored_, true)) return;
  transforms_.restore();   // first: levels put back the modes that they found
  c10::AutogradState::set_tls_state(autograd_);
  at::autocast::set_autocast_enabled(c10::kCPU, cpu_autocast_);
  at::autocast::set_autocast_enabled(c10::kCUDA, cuda_autocast_);
  at::autocast::set_autocast_cache_enabled(autocast_cache_);
  at::autocast::clear_cache();   // of traced weights
  while (autocast_nesting() > nesting_) at::autocast::decrement_nesting();
  while (autocast_nesting() < nesting_) at::autocast::increment_nesting();
  at::autocast::set_autocast_dtype(c10::kCPU, cpu_dtype_);
  at::autocast::set_autocast_dtype(c10::kCUDA, cuda_dtype_);
  if (c10::get_default_dtype_as_scalartype() != default_dtype_)
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(default_dtype_));
  c10::impl::_force_tls_local_dispatch_key_set(keys_);
}

}  // namespace braze::trace
