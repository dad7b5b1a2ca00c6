// Kernels on the entry key: operators that write their arguments, seen before autograd and functionalization.
#pragma once

namespace braze::trace {

// Registers the tracer's kernels with libtorch's dispatcher; once a process. They act only while a recorder is set.
// Throws std::runtime_error if another library has kernels on our keys.
void register_kernels();

}  // namespace braze::trace
