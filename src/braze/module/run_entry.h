// Running a compiled entry whose guards hold, and what follows it: a return, or a graph break.
#pragma once

#include <optional>

#include "braze/capture/entry_cache.h"

namespace braze::module {

// New reference to the result, or nullptr with an error set. After a graph break the result means nothing: `frames`
// receives what runs on. `computed` becomes true once the graph has run: an error before that has changed nothing.
PyObject* run_entry(const capture::Entry& entry, const capture::Fetched& fetched,
                    std::optional<capture::LiveFrames>& frames, bool& computed);

}  // namespace braze::module
