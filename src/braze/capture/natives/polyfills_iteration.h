// The polyfills of what iterates: enumerate, zip, map, sum, sorted and their like, and itertools.
#pragma once

namespace braze::capture {

extern const char* const kIterationPolyfills;   // Python source

}  // namespace braze::capture
