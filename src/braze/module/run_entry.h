// Runs a compiled entry on the values that its guards fetched.
#pragma once

#include "braze/capture/entry_cache.h"

namespace braze::module {

// New reference to the call's result; nullptr with an error set.
PyObject* run_entry(const capture::Entry& entry, const capture::Fetched& fetched);

}  // namespace braze::module
