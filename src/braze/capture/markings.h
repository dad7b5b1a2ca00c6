// What a function's author said about its compilation: braze's own markings and those of torch.compiler.
#pragma once

#include "braze/capture/value.h"

namespace braze::capture {

enum class Marking : uint8_t {
  None,
  Disabled,     // runs eagerly, with all that it calls
  AllowedInGraph,   // called as one operation on traced tensors; its Python code is not looked into
  GraphBreak,   // a call of it ends the graph
};

Marking marking_of(PyFunctionObject* function);
// Whether a function's module has a name that starts so: "torch.optim.".
bool is_of_module(PyObject* function, const char* prefix);
// A function of torch: what it says of graphs is about Dynamo's limits.
bool is_torchs_own(PyObject* function);
// A function of torch, or one that stands between a call of torch's and what it does.
bool is_librarys(PyObject* function);

}  // namespace braze::capture
