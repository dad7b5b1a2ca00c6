// Set-up of the in-memory linker; its other functions are the C interface.
#pragma once

namespace braze::jit {

bool init_linker();

}  // namespace braze::jit
