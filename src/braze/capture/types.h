// Classes made by a class statement, and those written in C.
#pragma once

#include "braze/capture/ref.h"

namespace braze::capture {

// Many classes written in C are heap types, too.
bool is_python_class(PyTypeObject* type);
// The type that lays out instances of `type`: the nearest base that no class statement made.
PyTypeObject* native_base(PyTypeObject* type);

}  // namespace braze::capture
