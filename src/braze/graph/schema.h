// Reads torch's schema text "ns::name.overload(Tensor(a!) self, *, int[2] x=1) -> (Tensor a, Tensor[])".
#pragma once

#include <string_view>

#include "braze/graph/op.h"

namespace braze::graph {

// The name, arguments and returns of an Op; id and flags are the caller's. Throws std::invalid_argument on bad text.
Op parse_schema(std::string_view text);

}  // namespace braze::graph
