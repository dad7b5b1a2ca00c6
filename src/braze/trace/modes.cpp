#include "braze/trace/modes.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/anomaly_mode.h>

namespace braze::trace {
namespace {

// The fields of the word, from the lowest bit.
enum Field : unsigned {
  kGrad, kInference, kCpuAutocast, kCudaAutocast, kDeterministic, kDeterministicWarn, kFillUninitialized,
  kTorchFunctionMode, kDispatchMode, kMkldnn, kFlash, kMemoryEfficient, kMathAttention, kCudnnAttention,
  kAnomaly, kSavedTensorHooks, kCudnn, kForwardGrad,
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
                  bit(torch::autograd::AnomalyMode::is_enabled(), kAnomaly) |
                  bit(at::SavedTensorDefaultHooks::is_enabled() &&
                          !at::SavedTensorDefaultHooks::get_tls_state().stack.empty(), kSavedTensorHooks) |
                  byte(c10::get_default_dtype_as_scalartype(), kDefaultDtype);
  if (cpu_autocast) word |= byte(at::autocast::get_autocast_dtype(c10::kCPU), kCpuDtype);
  if (cuda_autocast) word |= byte(at::autocast::get_autocast_dtype(c10::kCUDA), kCudaDtype);
  return word;
}

std::string describe_modes(uint64_t modes) {
  static constexpr std::pair<Field, const char*> kNames[] = {
      {kGrad, "grad"}, {kInference, "inference"}, {kCpuAutocast, "autocast(cpu)"}, {kCudaAutocast, "autocast(cuda)"},
      {kDeterministic, "deterministic"}, {kDeterministicWarn, "deterministic(warn)"},
      {kFillUninitialized, "fill uninitialized memory"}, {kTorchFunctionMode, "torch function mode"},
      {kDispatchMode, "torch dispatch mode"}, {kMkldnn, "mkldnn"}, {kFlash, "flash attention"},
      {kMemoryEfficient, "memory-efficient attention"}, {kMathAttention, "math attention"},
      {kCudnnAttention, "cudnn attention"}, {kAnomaly, "anomaly detection"},
      {kSavedTensorHooks, "saved tensor hooks"}, {kCudnn, "cudnn"}, {kForwardGrad, "forward AD"}};
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
  const auto included = c10::impl::tls_local_dispatch_key_set().included_;
  if (included.has(c10::DispatchKey::Functionalize) || included.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode))
    return "a functional transform is active";
  return {};
}

ModeGuard::ModeGuard()
    : autograd_(c10::AutogradState::get_tls_state()),
      keys_(c10::impl::tls_local_dispatch_key_set()),
      cpu_autocast_(at::autocast::is_autocast_enabled(c10::kCPU)),
      cuda_autocast_(at::autocast::is_autocast_enabled(c10::kCUDA)),
      autocast_cache_(at::autocast::is_autocast_cache_enabled()),
      cpu_dtype_(at::autocast::get_autocast_dtype(c10::kCPU)),
      cuda_dtype_(at::autocast::get_autocast_dtype(c10::kCUDA)),
      default_dtype_(c10::get_default_dtype_as_scalartype()) {}

void ModeGuard::restore() {
  if (std::exchange(restored_, true)) return;
  c10::AutogradState::set_tls_state(autograd_);
  at::autocast::set_autocast_enabled(c10::kCPU, cpu_autocast_);
  at::autocast::set_autocast_enabled(c10::kCUDA, cuda_autocast_);
  at::autocast::set_autocast_cache_enabled(autocast_cache_);
  at::autocast::set_autocast_dtype(c10::kCPU, cpu_dtype_);
  at::autocast::set_autocast_dtype(c10::kCUDA, cuda_dtype_);
  if (c10::get_default_dtype_as_scalartype() != default_dtype_)
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(default_dtype_));
  c10::impl::_force_tls_local_dispatch_key_set(keys_);
}

}  // namespace braze::trace
