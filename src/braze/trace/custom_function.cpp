#include "braze/trace/custom_function.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <unordered_set>

#include "braze/trace/abort.h"
#include "braze/trace/natives.h"
#include "braze/trace/recorder.h"
#include "braze/trace/torch_compat.h"
#include "braze/trace/transforms.h"

namespace braze::trace {

using capture::Ref;
using torch::autograd::variable_list;

variable_list InterpretedFunction::apply(variable_list&& gradients) {
  Recorder* recorder = current_recorder();
  if (!backward || recorder == nullptr)
    unsupported("a custom autograd function is differentiated outside its trace");
  for (const Saved& s : saved)
    if (s.tensor.unsafeGetTensorImpl()->version_counter().current_version() != s.version)
      unsupported("a tensor that a custom autograd function saved is changed before its backward");
  at::OptionalDeviceGuard guard;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (i < gradients.size() && !gradients[i].defined() && materialize && is_tensor_output[i])
      gradients[i] = outputs[i].zeros(guard);

  variable_list results;
  const py::gil_scoped_acquire gil;
  std::vector<Ref> owned;
  std::vector<PyObject*> arguments;
  for (size_t i = 0; i < outputs.size(); ++i) {
    owned.push_back(i < gradients.size() && gradients[i].defined() ? Ref::steal(THPVariable_Wrap(gradients[i]))
                                                                   : Ref::borrow(Py_None));
    arguments.push_back(owned.back().get());
  }
  Ref tuple;
  {
    const PausedRecording paused(*recorder);
    Result<Ref> result = backward(arguments);
    if (!result.ok()) {
      recorder->note_failure(result.why());
      throw Abort(result.why());
    }
    tuple = *result;
  }
  const Py_ssize_t n = PyTuple_GET_SIZE(tuple.get());
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple.get(), i);
    const bool has_place = static_cast<size_t>(i) < is_tensor.size();
    if (item != Py_None && !(has_place && is_tensor[static_cast<size_t>(i)]))
      unsupported("the backward of a custom autograd function gives a gradient for what is no tensor");
    if (has_place && is_tensor[static_cast<size_t>(i)])
      results.push_back(item == Py_None ? at::Tensor() : THPVariable_Unpack(item));
  }
  if (static_cast<size_t>(n) < is_tensor.size())
    unsupported("the backward of a custom autograd function gives too few gradients");
  return results;
}

namespace {

variable_list tensors_in(PyObject* tuple) {
  variable_list out;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i)
    if (PyObject* item = PyTuple_GET_ITEM(tuple, i); THPVariable_Check(item)) out.push_back(THPVariable_Unpack(item));
  return out;
}

std::unordered_set<at::TensorImpl*> impls_in(PyObject* tuple) {
  std::unordered_set<at::TensorImpl*> out;
  for (const at::Tensor& t : tensors_in(tuple)) out.insert(t.unsafeGetTensorImpl());
  return out;
}

// As THPFunction_apply does after the user's forward.
PyObject* record(PyObject* const* a) {
  Recorder* recorder = current_recorder();
  if (recorder == nullptr) unsupported("a custom autograd function outside a trace");
  PyObject *inputs = a[2], *raw = a[3], *dirty = a[4], *non_differentiable = a[5], *saved = a[6];
  const variable_list variables = tensors_in(inputs);
  const bool executable = c10::GradMode::is_enabled() && torch::autograd::any_variable_requires_grad(variables);
  auto node = make_autograd_node<InterpretedFunction>();
  node->backward = recorder->custom.backwards.at(static_cast<size_t>(PyLong_AsLongLong(a[0])));
  node->materialize = a[1] == Py_True;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); ++i)
    node->is_tensor.push_back(PyTuple_GET_ITEM(inputs, i) != Py_None);
  if (executable) node->set_next_edges(torch::autograd::collect_next_edges(variables));
  for (const at::Tensor& t : tensors_in(dirty)) torch::autograd::impl::bump_version(t);

  std::vector<std::optional<at::Tensor>> outputs;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(raw); ++i) {
    PyObject* item = PyTuple_GET_ITEM(raw, i);
    outputs.push_back(THPVariable_Check(item) ? std::optional(THPVariable_Unpack(item)) : std::nullopt);
  }
  const auto no_forward_derivative = [](variable_list, variable_list) -> variable_list {
    unsupported("forward-mode derivatives of a custom autograd function");
  };
  const auto wrapped = torch::autograd::_wrap_outputs(
      variables, impls_in(non_differentiable), impls_in(dirty), outputs,
      executable ? torch::autograd::Edge(node, 0).function : decltype(torch::autograd::Edge::function)(),
      no_forward_derivative, a[7] == Py_True ? impls_in(saved) : std::unordered_set<at::TensorImpl*>(),
      [](const at::Tensor& x) { return x.view_as(x); }, /*pure_view=*/false);
  Ref list = Ref::steal(PyList_New(static_cast<Py_ssize_t>(wrapped.size())));
  if (list.get() == nullptr) return nullptr;
  for (size_t i = 0; i < wrapped.size(); ++i) {
    const bool tensor = wrapped[i].has_value() && wrapped[i]->defined();
    node->is_tensor_output.push_back(tensor);
    if (tensor) node->outputs.emplace_back(*wrapped[i]);
    else node->outputs.emplace_back();
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), tensor ? THPVariable_Wrap(*wrapped[i]) : Ref::borrow(Py_None).release());
  }
  if (executable) {
    for (const at::Tensor& t : tensors_in(saved))
      node->saved.push_back({t, t.unsafeGetTensorImpl()->version_counter().current_version()});
    recorder->custom.nodes.push_back(node);
  }
  return list.release();
}

PyObject* record_function(PyObject*, PyObject* const* arguments, Py_ssize_t n) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(n == 8);
  try {
    return record(arguments);
  } catch (const Abort& abort) {
    if (Recorder* recorder = current_recorder()) recorder->note_failure(abort.why);
    throw;
  }
  END_HANDLE_TH_ERRORS
}

PyObject* set_recompute(PyObject*, PyObject* on) {
  HANDLE_TH_ERRORS
  Recorder* recorder = current_recorder();
  if (recorder == nullptr) unsupported("a checkpoint outside a trace");
  return PyBool_FromLong(recorder->set_recompute(on == Py_True));
  END_HANDLE_TH_ERRORS
}

PyObject* run_backward(PyObject*, PyObject* const* arguments, Py_ssize_t n, PyObject* kwnames) {
  HANDLE_TH_ERRORS
  Recorder* recorder = current_recorder();
  if (recorder == nullptr) unsupported("a backward pass outside a trace");
  torch::autograd::edge_list roots;
  bool keeps_graph = false, transformed = false;
  try {
    if (n < 4 || !PyTuple_Check(arguments[0])) unsupported("a backward pass from what is no tuple");
    keeps_graph = arguments[2] == Py_True;
    for (const at::Tensor& root : tensors_in(arguments[0])) {
      if (root.is_cuda()) unsupported("gradients on a GPU");
      if (root.requires_grad()) roots.push_back(torch::autograd::impl::gradient_edge(root));
      transformed |= is_transformed(root);
    }
    recorder->ran_backward = true;
    nodes_behind(roots);
  } catch (const Abort& abort) {
    recorder->note_failure(abort.why);
    throw;
  }
  static PyObject* const engine = [] {
    const Ref module = Ref::steal(PyImport_ImportModule("torch.autograd.variable"));
    const Ref variable = module.get() == nullptr ? Ref() : Ref::steal(PyObject_GetAttrString(module.get(), "Variable"));
    return variable.get() == nullptr ? nullptr : PyObject_GetAttrString(variable.get(), "_execution_engine");
  }();
  static PyObject* const name = PyUnicode_InternFromString("run_backward");
  if (engine == nullptr) return nullptr;
  std::vector<PyObject*> all{engine};
  all.insert(all.end(), arguments, arguments + n + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames)));
  PyObject* gradients = PyObject_VectorcallMethod(name, all.data(), static_cast<size_t>(n) + 1, kwnames);
  // Errors of the engine are eager's to raise.
  if (gradients == nullptr) recorder->note_failure({"a backward pass inside the call raises an error", ""});
  else if (!keeps_graph && !transformed) recorder->spent_roots.insert(recorder->spent_roots.end(), roots.begin(), roots.end());
  return gradients;
  END_HANDLE_TH_ERRORS
}

PyObject* remove_hook(PyObject*, PyObject* number) {
  HANDLE_TH_ERRORS
  Recorder* recorder = current_recorder();
  if (recorder == nullptr) unsupported("a hook outside a trace");
  recorder->custom.hooks.at(static_cast<size_t>(PyLong_AsLongLong(number)))->removed = true;
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyMethodDef kNatives[] = {
    {"remove_hook", &remove_hook, METH_O, nullptr},
    {"record_function", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&record_function)), METH_FASTCALL, nullptr},
    {"set_recompute", &set_recompute, METH_O, nullptr},
    {"run_backward", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&run_backward)), METH_FASTCALL | METH_KEYWORDS, nullptr},
};

}  // namespace

void register_autograd_natives() {
  for (PyMethodDef& definition : kNatives) {
    PyObject* native = PyCFunction_New(&definition, nullptr);    // lives as long as the process
    add_tensor_native(native);
    capture::register_native(definition.ml_name, native);
  }
}

}  // namespace braze::trace
