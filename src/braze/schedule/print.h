// Text of kernels and programs; the grammar stands in docs/program.md.
#pragma once

#include <string>

#include "braze/schedule/program.h"

namespace braze::schedule {

const char* text_of(NestKind kind);
const char* text_of(Place place);
const char* text_of(Store::Combine combine);

// The kernel without its note: equal text means equal kernels.
std::string canonical_text(const Kernel& kernel);
// "buf3", "buf3 + 64", with sizes and strides where they are not the buffer's own.
std::string print(const View& view);

}  // namespace braze::schedule
