// Decompositions: composite ops become ops that the loop lowering supports, with eager's numerics: 16-bit floats are
// computed in f32 and rounded where the ATen kernel rounds, and statistics have the dtypes that the CPU kernels return.
// decompositions.def lists the rules; a rule that does not apply leaves the node as it is, an opaque call.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braze/graph/builder.h"

namespace braze::decompose {

// Core rules always hold. Target rules are better on this target only: they look at device, dtype and shape.
enum class Table : uint8_t { Core, Target };

// One value per result of the node; nullptr for a result that nothing uses. Empty: the rule does not apply.
using Replacement = std::vector<graph::Value*>;
using Rule = Replacement (*)(graph::Builder& b, const graph::Node& node);

struct Row {
  std::string_view op;  // printed name
  Rule rule;
  Table table;
};

std::span<const Row> all_rules();

struct Options {
  bool target = true;             // use target rules too
  std::vector<std::string> keep;  // printed op names to leave alone
};

struct Report {
  int decomposed = 0;
  std::vector<std::string> failed;  // "aten.x: why": a rule made a wrong type or met a missing one; node kept
};

// Applies the rules until none applies. Results keep their exact types; origins and tags are inherited.
Report decompose(graph::Graph& graph, const Options& options = {});

#define DECOMPOSE(op, rule, table) Replacement rule(graph::Builder& b, const graph::Node& node);
#include "braze/decompose/decompositions.def"
#undef DECOMPOSE

}  // namespace braze::decompose
