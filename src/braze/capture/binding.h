// Whether a Python function takes a call's arguments.
#pragma once

#include <cstdint>

#include "braze/capture/ref.h"

namespace braze::capture {

// kwnames: a tuple or nullptr.
bool binds(PyFunctionObject* function, int64_t n_positional, PyObject* kwnames);

}  // namespace braze::capture
