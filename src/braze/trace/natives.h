// Which native callables of torch may be called on traced tensors, which are pure, and which need data.
#pragma once

#include <string>

#include "braze/capture/tensor_domain.h"

namespace braze::trace {

// Builds the tables from the loaded torch module. Returns false with a Python error set. Needs the GIL.
bool load_natives();

// A native of ours that the session calls on traced tensors.
void add_tensor_native(PyObject* native);

capture::NativeKind classify_native(PyObject* callable);
std::string native_break_reason(PyObject* callable);   // "" if it is none

// dtypes, devices, layouts, memory formats, sizes, finfo, iinfo.
bool is_torch_constant(PyObject* object);

}  // namespace braze::trace
