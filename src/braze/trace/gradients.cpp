// `.grad` of stand-ins, and which of them a backward pass inside the trace reaches.
#include <torch/csrc/autograd/python_variable.h>

#include "braze/support/check.h"
#include "braze/trace/abort.h"
#include "braze/trace/session.h"
#include "braze/trace/tensor_guard.h"

namespace braze::trace {

using capture::Ref;

Session::StandIn& Session::at(PyObject* stand_in) {
  const auto found = by_wrapper_.find(THPVariable_Unpack(stand_in).unsafeGetTensorImpl());
  CHECK((found != by_wrapper_.end()));
  return stand_ins_[found->second];
}

bool Session::knows_gradient(PyObject* stand_in) const { return at(stand_in).knows_gradient; }

Status Session::tell_gradient(PyObject* stand_in, PyObject* gradient) {
  StandIn& input = at(stand_in);
  if (input.wrapper.is_inference()) return Unsupported{"the gradient of an inference tensor", ""};
  input.knows_gradient = true;
  if (gradient == Py_None) return Ok{};
  input.told_gradient = THPVariable_Unpack(gradient);
  input.wrapper.mutable_grad() = input.told_gradient;
  return Ok{};
}

Status Session::set_gradient(PyObject* stand_in, PyObject* gradient) {
  CHECK(at(stand_in).knows_gradient);
  try {
    const RecordingScope recording(recorder_);
    recorder_.take_failure();
    if (PyObject_SetAttrString(stand_in, "grad", gradient) < 0) return failure();
    return Ok{};
  } catch (const Abort& abort) {
    return abort.why;
  }
}

Ref Session::gradient(PyObject* stand_in) const {
  const at::Tensor& gradient = at(stand_in).wrapper.grad();
  return gradient.defined() ? Ref::steal(THPVariable_Wrap(gradient)) : Ref::borrow(Py_None);
}

Result<std::vector<PyObject*>> Session::receivers(std::span<PyObject* const> roots) {
  std::vector<PyObject*> out;
  try {
    torch::autograd::edge_list edges;
    for (PyObject* root : roots)
      if (const at::Tensor& tensor = THPVariable_Unpack(root); tensor.requires_grad())
        edges.push_back(torch::autograd::impl::gradient_edge(tensor));
    const auto nodes = nodes_behind(edges);
    for (StandIn& input : stand_ins_) {
      if (!input.real.requires_grad()) continue;
      if (input.grad_fn != nullptr && nodes.contains(const_cast<torch::autograd::Node*>(input.grad_fn)))
        unsupported("backward() through what was computed before the call");
      const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(input.wrapper);
      if (!accumulator || !nodes.contains(accumulator.get())) continue;
      if (has_hooks(input.real)) unsupported("a hook on a tensor that gets its gradient inside the call");
      input.operand = tensor_operand(input.object.get(), {input.dynamic, options_.storage_bases, /*no_hooks=*/true});
      out.push_back(input.python.get());
    }
  } catch (const Abort& abort) {
    return abort.why;
  }
  return out;
}

std::vector<capture::Src> Session::distinct() const {
  std::vector<capture::Src> out;
  for (const StandIn& input : stand_ins_)
    if (input.knows_gradient || (recorder_.ran_backward && input.real.requires_grad())) out.push_back(input.src);
  return out;
}

std::vector<capture::Differentiation::NewGradient> Session::new_gradients() const {
  std::vector<NewGradient> out;
  for (const StandIn& input : stand_ins_)
    if (input.knows_gradient && !input.wrapper.grad().is_same(input.told_gradient))
      out.push_back({input.python.get(), gradient(input.python.get())});
  return out;
}

}  // namespace braze::trace
