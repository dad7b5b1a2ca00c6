// What the operators' files share.
#pragma once

#include <initializer_list>

#include "braze/capture/execute/executor.h"

namespace braze::capture {

inline bool is_tensor(Executor& x, Value v) { return x.prov.category(v.object) == Category::Tensor; }

// The class has a method of this name that is written in Python.
bool is_python_method(PyTypeObject* type, PyObject* name, PyObject*& found);
// Builtin containers and constants, whose operators call nothing of the user's.
bool is_plain(Executor& x, Value v);
// A function of the module operator, called on traced tensors.
Owned call_tensor_operator(Executor& x, const char* name, std::initializer_list<Value> operands);

}  // namespace braze::capture
