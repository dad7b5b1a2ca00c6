#include "braze/runtime/python_tensor.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "braze/support/check.h"

namespace braze::runtime {

const at::Tensor& unpack(PyObject* tensor) { return THPVariable_Unpack(tensor); }

int64_t unpack_integer(PyObject* integer) { return PyLong_AsLongLong(integer); }

PyObject* wrap(at::Tensor tensor) { return THPVariable_Wrap(std::move(tensor)); }

namespace {
PyObject* rethrow() {
  HANDLE_TH_ERRORS
  throw;
  END_HANDLE_TH_ERRORS
}
}  // namespace

void set_python_error() { rethrow(); }

}  // namespace braze::runtime
