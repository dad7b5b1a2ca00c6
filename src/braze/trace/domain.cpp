// The tracer as capture's tensor domain, and the compiler that takes its graphs.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/python_variable.h>

#include <stdexcept>

#include "braze/graph/type_rules.h"
#include "braze/trace/compiler.h"
#include "braze/trace/custom_function.h"
#include "braze/trace/entry.h"
#include "braze/trace/modes.h"
#include "braze/trace/natives.h"
#include "braze/trace/random_state.h"
#include "braze/trace/recorder.h"
#include "braze/trace/session.h"

namespace braze::trace {
namespace {

class Domain final : public capture::TensorDomain {
 public:
  bool is_tensor(PyObject* object) const override {
    if (THPVariable_CheckExact(object)) return true;
    return PyType_IsSubtype(Py_TYPE(object), reinterpret_cast<PyTypeObject*>(THPVariableClass)) != 0;
  }
  capture::NativeKind classify(PyObject* callable) const override { return classify_native(callable); }
  std::string break_reason(PyObject* callable) const override { return native_break_reason(callable); }
  uint64_t modes() const override { return pack_modes(); }
  std::string describe_modes(uint64_t modes) const override { return ::braze::trace::describe_modes(modes); }
  Result<std::unique_ptr<capture::TraceSession>> begin(const capture::TraceOptions& options) override {
    drop_stale_keys();
    if (const std::string obstacle = modes_obstacle(); !obstacle.empty()) return Unsupported{obstacle, ""};
    if (current_recorder() != nullptr) return Unsupported{"a trace is already running on this thread", ""};
    return std::unique_ptr<capture::TraceSession>(std::make_unique<Session>(options));
  }
  bool is_constant(PyObject* object) const override { return is_torch_constant(object); }
  uint64_t traits(PyObject* object) const override {
    const at::Tensor& tensor = THPVariable_Unpack(object);
    return (tensor.key_set().raw_repr() << 1) | (tensor.requires_grad() ? 1 : 0);
  }
};

CompileGraph& registered_compiler() {
  static CompileGraph compile;
  return compile;
}

bool is_supported(const char* question) {
  const auto op = c10::Dispatcher::singleton().findSchema({question, ""});
  if (!op) return false;
  torch::jit::Stack stack;
  op->callBoxed(stack);
  return stack.at(0).toBool();
}

}  // namespace

void set_compiler(CompileGraph compile) { registered_compiler() = std::move(compile); }
const CompileGraph& compiler() { return registered_compiler(); }

void register_tracer() {
  graph::kernel_facts() = {.onednn_bf16 = is_supported("mkldnn::_is_mkldnn_bf16_supported"),
                           .onednn_f16 = is_supported("mkldnn::_is_mkldnn_fp16_supported")};
  register_kernels();
  if (!load_natives()) throw std::runtime_error("torch's native functions can't be listed");
  register_autograd_natives();
  register_random_state();
  capture::register_domain(std::make_unique<Domain>());
}

}  // namespace braze::trace
