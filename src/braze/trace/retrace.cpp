#include "braze/trace/retrace.h"

#include <torch/csrc/autograd/python_variable.h>

#include "braze/trace/session.h"

namespace braze::trace {

using capture::Ref;

Result<Retraced> trace_function(std::span<const at::Tensor> examples, const std::string& backend, const TensorFunction& function) {
  capture::TraceOptions options;
  options.backend = backend;
  Session session(options);
  std::vector<Ref> owned;
  std::vector<at::Tensor> traced;
  for (size_t i = 0; i < examples.size(); ++i) {
    owned.push_back(Ref::steal(THPVariable_Wrap(examples[i])));
    TRY(const Ref stand_in, session.stand_in(owned.back().get(), static_cast<capture::Src>(i)));
    traced.push_back(THPVariable_Unpack(stand_in.get()));
  }
  TRY(const std::vector<at::Tensor> results, session.record([&] { return function(traced); }));
  std::vector<PyObject*> outputs;
  for (const at::Tensor& result : results) {
    owned.push_back(Ref::steal(THPVariable_Wrap(result)));
    outputs.push_back(owned.back().get());
  }
  TRY(capture::TraceSession::Finished finished, session.finish(outputs));
  Retraced out{std::move(finished.executable), {}};
  for (const capture::TraceSession::Input& input : session.inputs()) out.inputs.push_back(static_cast<size_t>(input.src));
  return out;
}

}  // namespace braze::trace
