// An existing object's attributes and its __dict__ are one storage that a program reaches by two ways. Changes made by
// one of them are noted where the other does not look; these end the segment before it would.
#pragma once

#include "braze/capture/value.h"

namespace braze::capture {

class Executor;

// The object's attributes are about to be read.
void require_unchanged_storage(Executor& x, PyObject* object);
// The dict, which was not reached as the __dict__ of an object, is about to be read or changed.
void require_no_shadow_over(Executor& x, Value dict);

}  // namespace braze::capture
