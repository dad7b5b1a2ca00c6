// Generic types and unions of types (list[int], int | None), which annotations inside a function make. They are made for
// real: constants, as far as the program is concerned.
#pragma once

#include "braze/capture/execute/executor.h"

namespace braze::capture {

// types.GenericAlias(origin, parameters), or a subclass of it.
Owned generic_alias(Executor& x, Value type, const Arguments& arguments);
// a | b, if both are types: else false.
bool type_union(Executor& x, Value a, Value b, Owned& out);
// type[key] of what the module typing makes, else false; and of a class in C.
bool typing_subscript(Executor& x, Value type, Value key, Owned& out);
Owned type_subscript(Executor& x, Value type, Value key);

}  // namespace braze::capture
