#include "braze/trace/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include <mutex>

#include "braze/capture/differentiation.h"
#include "braze/trace/abort.h"
#include "braze/trace/natives.h"
#include "braze/trace/recorder.h"

namespace braze::trace {
namespace {

at::Tensor get_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void seed(int64_t value) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(static_cast<uint64_t>(value));
}

at::Tensor state_type() {
  static const int64_t n = get_state().numel();
  return at::empty({n}, at::TensorOptions(c10::kByte).device(c10::kMeta));
}

template <class Signature>
auto operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

PyObject* get_rng_state(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  if (current_recorder() == nullptr) unsupported("a generator's state outside a trace");
  return THPVariable_Wrap(operator_named<at::Tensor()>("braze::get_rng_state").call());
  END_HANDLE_TH_ERRORS
}

PyObject* set_rng_state(PyObject*, PyObject* state) {
  HANDLE_TH_ERRORS
  if (current_recorder() == nullptr) unsupported("a generator's state outside a trace");
  if (!THPVariable_Check(state)) unsupported("a generator's state that is no tensor");
  operator_named<void(const at::Tensor&)>("braze::set_rng_state").call(THPVariable_Unpack(state));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* manual_seed(PyObject*, PyObject* value) {
  HANDLE_TH_ERRORS
  if (current_recorder() == nullptr) unsupported("a generator's state outside a trace");
  const int64_t number = PyLong_AsLongLong(value);
  if (number == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    unsupported("a seed beyond 64 bits");
  }
  operator_named<void(int64_t)>("braze::manual_seed").call(number);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyMethodDef kNatives[] = {
    {"manual_seed", &manual_seed, METH_O, nullptr},
    {"get_rng_state", &get_rng_state, METH_NOARGS, nullptr},
    {"set_rng_state", &set_rng_state, METH_O, nullptr},
};

}  // namespace

void register_random_state() {
  static torch::Library library(torch::Library::FRAGMENT, "braze", std::nullopt, __FILE__, __LINE__);
  library.def("get_rng_state() -> Tensor", {at::Tag::nondeterministic_seeded});
  library.def("set_rng_state(Tensor state) -> ()", {at::Tag::nondeterministic_seeded});
  library.def("manual_seed(int seed) -> ()", {at::Tag::nondeterministic_seeded});
  library.impl("manual_seed", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(seed)));
  library.impl("manual_seed", torch::dispatch(c10::DispatchKey::Meta, [](int64_t) {}));
  library.impl("get_rng_state", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(get_state)));
  library.impl("get_rng_state", torch::dispatch(c10::DispatchKey::Meta, TORCH_FN(state_type)));
  library.impl("set_rng_state", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(set_state)));
  library.impl("set_rng_state", torch::dispatch(c10::DispatchKey::Meta, [](const at::Tensor&) {}));
  for (PyMethodDef& definition : kNatives) {
    PyObject* native = PyCFunction_New(&definition, nullptr);    // lives as long as the process
    add_tensor_native(native);
    capture::register_native(definition.ml_name, native);
  }
}

}  // namespace braze::trace
