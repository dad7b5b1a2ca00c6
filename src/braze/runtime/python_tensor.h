// Python tensors to at::Tensor and back. Every function needs the GIL.
#pragma once

#include <ATen/core/Tensor.h>

struct _object;

namespace braze::runtime {

const at::Tensor& unpack(_object* tensor);   // a torch.Tensor; CHECKs
int64_t unpack_integer(_object* integer);    // a Python int that fits
_object* wrap(at::Tensor tensor);            // new reference; nullptr with an error set
// Sets the Python error that eager would raise for a C++ exception in flight.
void set_python_error();

}  // namespace braze::runtime
