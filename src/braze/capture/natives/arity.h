// How many arguments a model of a native takes.
#pragma once

#include "braze/capture/value.h"

namespace braze::capture {

// Aborts unless least <= positional arguments <= most and there are no keywords: CPython words the TypeError.
void require_arity(const char* name, const Arguments& a, int64_t least, int64_t most);

}  // namespace braze::capture
