// The exception classes of braze, and raising them.
#pragma once

#include "braze/capture/trace_call.h"

namespace braze::module {

// Creates BrazeError, UserError, Unsupported and InternalError in the extension module. False with an error set.
bool add_errors(PyObject* module);

void raise_unsupported(const capture::CaptureFailure& failure);
void raise_internal_error(const std::string& text);

// "reason\n  File "m.py", line 3\n    y = f(x)\nremedy", as much as is known.
std::string failure_text(const capture::CaptureFailure& failure);

}  // namespace braze::module
