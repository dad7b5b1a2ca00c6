// Whether this build of Python is as the files in cpython/ say: frames, handed over at many places, run on as they would
// have run, and objects can be read in place. Where it is not, everything runs eagerly.
#pragma once

namespace braze::capture {

// Needs the GIL; tried once. Sets no error.
bool python_behaves();

}  // namespace braze::capture
