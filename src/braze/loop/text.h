// Pieces of the loop IR's text form that other dumps use too. Grammar: docs/loop_ir.md.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "braze/loop/loop_ir.h"

namespace braze::loop {

std::string_view text_of(BufferKind kind);
std::string_view text_of(ReduceOp op);

using BufferName = std::function<std::string(int32_t buffer)>;
// A line "v0 = ..." for each sub-expression that is used more than once, then "return ...", each after `indent`.
std::string print(const Scalar* body, const BufferName& name, std::string_view indent);

}  // namespace braze::loop
