#include "braze/module/callable_executor.h"

#include <torch/csrc/autograd/python_variable.h>

#include "braze/capture/ref.h"
#include "braze/runtime/outputs.h"
#include "braze/runtime/python_tensor.h"
#include "braze/support/check.h"

namespace braze::module {
namespace {

using capture::Ref;
using runtime::InputBinding;
using runtime::OutputPlan;
using runtime::SizeValue;
using runtime::unpack;
using runtime::wrap;

class CallableExecutor final : public Executable {
 public:
  CallableExecutor(PyObject* callable, const graph::Graph& graph, const trace::GraphContext& context)
      : callable_(Ref::borrow(callable)), bindings_(context.inputs), n_results_(graph.outputs.size()) {
    plan_.aliases = graph.aliases;
    plan_.mutations = graph.mutations;
    plan_.n_outputs = static_cast<int64_t>(context.n_outputs);
    plan_.inference = context.inference_outputs;
    runtime::plan_inputs(plan_, context.inputs);
  }
  ~CallableExecutor() override {
    const PyGILState_STATE state = PyGILState_Ensure();
    callable_ = Ref();
    PyGILState_Release(state);
  }

  int64_t n_outputs() const override { return plan_.n_outputs; }

  bool run(PyObject* const* inputs, int64_t, PyObject** outputs) override {
    try {
      std::vector<at::Tensor> callers(bindings_.size());
      std::vector<Ref> owned;
      std::vector<PyObject*> arguments;
      for (size_t i = 0; i < callers.size(); ++i) {
        if (bindings_[i].caller >= 0) callers[i] = unpack(inputs[bindings_[i].caller]);
        owned.push_back(Ref::steal(wrap(runtime::bind(bindings_[i], callers[i]))));
        if (!owned.back()) return false;
        arguments.push_back(owned.back().get());
      }
      const Ref given = Ref::steal(PyObject_Vectorcall(callable_.get(), arguments.data(), arguments.size(), nullptr));
      if (!given) return false;
      std::vector<at::Tensor> results;
      if (!unpack_results(given.get(), results)) return false;
      const auto last = results.begin() + static_cast<std::ptrdiff_t>(n_results_);
      const std::vector<at::Tensor> new_values(last, results.end());
      results.erase(last, results.end());
      std::vector<int32_t> same_input(results.size(), -1);
      const SizeValue size_value = [](graph::Expr) -> int64_t { throw InternalError("a size is not constant"); };
      runtime::finish_outputs(plan_, callers, new_values, size_value, results, same_input);
      return runtime::give_outputs(plan_, inputs, bindings_, results, same_input, outputs);
    } catch (...) {
      runtime::set_python_error();
      return false;
    }
  }

 private:
  bool unpack_results(PyObject* given, std::vector<at::Tensor>& results) const {
    const size_t wanted = n_results_ + plan_.mutations.size();
    const Ref items = Ref::steal(PySequence_Fast(given, "a backend's function must return a list or tuple of tensors"));
    if (!items) return false;
    if (static_cast<size_t>(PySequence_Fast_GET_SIZE(items.get())) != wanted) {
      PyErr_Format(PyExc_TypeError, "a backend's function returned %zd results instead of %zu",
                   PySequence_Fast_GET_SIZE(items.get()), wanted);
      return false;
    }
    for (size_t i = 0; i < wanted; ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(items.get(), static_cast<Py_ssize_t>(i));
      if (item != Py_None && !THPVariable_Check(item)) {
        PyErr_Format(PyExc_TypeError, "a backend's function returned a %s among its tensors", Py_TYPE(item)->tp_name);
        return false;
      }
      results.push_back(item == Py_None ? at::Tensor() : unpack(item));
    }
    return true;
  }

  Ref callable_;
  std::vector<InputBinding> bindings_;
  size_t n_results_;
  OutputPlan plan_;
};

}  // namespace

std::shared_ptr<Executable> make_callable_executor(PyObject* callable, const graph::Graph& graph,
                                                   const trace::GraphContext& context) {
  return std::make_shared<CallableExecutor>(callable, graph, context);
}

}  // namespace braze::module
