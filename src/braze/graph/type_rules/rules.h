// The type rules, by the names that ops.def gives them. Each file holds one family.
#pragma once

#include "braze/graph/type_rules/call.h"

namespace braze::graph::rules {

using Rule = Types (*)(const Call&);
inline constexpr Rule none = nullptr;

#define RULE(name) Types name(const Call& call);
#include "braze/graph/type_rules/rules.def"
#undef RULE

}  // namespace braze::graph::rules
