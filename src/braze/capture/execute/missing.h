// Errors about what is not there, worded as CPython does. False: for `return raise_...`.
#pragma once

#include "braze/capture/ref.h"

namespace braze::capture {

bool raise_missing(PyObject* object, PyObject* name);   // AttributeError of an instance or a class
bool raise_missing_key(PyObject* key);                  // KeyError; the key may be a tuple

}  // namespace braze::capture
