#include "braze/module/arguments.h"

#include "braze/capture/binding.h"

namespace braze::module {

bool arguments_fit(const capture::Call& call) {
  if (PyFunction_Check(call.callee)) {
    return capture::binds(reinterpret_cast<PyFunctionObject*>(call.callee), call.n_positional, call.kwnames);
  }
  if (PyMethod_Check(call.callee) && PyFunction_Check(PyMethod_GET_FUNCTION(call.callee))) {
    return capture::binds(reinterpret_cast<PyFunctionObject*>(PyMethod_GET_FUNCTION(call.callee)), call.n_positional + 1, call.kwnames);
  }
  return true;
}

}  // namespace braze::module
