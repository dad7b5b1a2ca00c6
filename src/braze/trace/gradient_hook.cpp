#include "braze/trace/gradient_hook.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "braze/trace/abort.h"
#include "braze/trace/recorder.h"

namespace braze::trace {

using capture::Ref;
using torch::autograd::variable_list;

variable_list InterpretedHook::operator()(const variable_list& gradients) {
  if (hook_->removed) return gradients;
  Recorder* recorder = current_recorder();
  if (!hook_->call || recorder == nullptr) unsupported("a hook on a gradient runs outside its trace");
  const at::Tensor& gradient = gradients.at(output_);
  if (!gradient.defined()) unsupported("a hook on a gradient that is missing");
  const py::gil_scoped_acquire gil;
  const Ref argument = Ref::steal(THPVariable_Wrap(gradient));
  Ref result;
  {
    const PausedRecording paused(*recorder);
    PyObject* const arguments[] = {argument.get()};
    Result<Ref> out = hook_->call(arguments);
    if (!out.ok()) {
      recorder->note_failure(out.why());
      throw Abort(out.why());
    }
    result = *out;
  }
  if (result.get() == Py_None) return gradients;
  const at::Tensor& replaced = THPVariable_Unpack(result.get());
  if (replaced.sym_sizes() != gradient.sym_sizes() || replaced.dtype() != gradient.dtype() ||
      replaced.device() != gradient.device())
    unsupported("a hook gives a gradient of another type");
  variable_list out = gradients;
  out[output_] = replaced;
  return out;
}

}  // namespace braze::trace
