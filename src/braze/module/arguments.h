// Whether a call's arguments bind to a function's parameters. If not, the function itself is called, for its TypeError.
#pragma once

#include "braze/capture/entry_cache.h"

namespace braze::module {

bool arguments_fit(const capture::Call& call);   // true for callables whose parameters are not known

}  // namespace braze::module
