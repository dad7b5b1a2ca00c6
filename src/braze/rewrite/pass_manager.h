// The graph passes and their runner. A pass is a function `bool name(graph::Graph&)` in `<name>.cpp` that says whether
// it changed the graph; passes.def lists them in the order in which they run. Every pass keeps the graph's meaning:
// the values, layouts and aliases of all outputs and mutations, bit for bit unless its row says otherwise.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braze/graph/graph.h"

namespace braze::rewrite {

// When a pass runs: before the decompositions (patterns of whole ATen ops), after them, or both times.
enum class Stage : uint8_t { Before, After, Both };

struct Pass {
  std::string_view name;
  bool (*run)(graph::Graph&);
  Stage stage;
  bool default_on;
  std::string_view about;
};

std::span<const Pass> all_passes();
const Pass* find_pass(std::string_view name);  // nullptr: no such pass

struct PassOptions {
  std::vector<std::string> enable, disable;  // names, over the rows' defaults; unknown names are ignored here
  bool verify = false;                       // graph::verify after each pass that changed something
};

struct PassTime {
  std::string_view name;
  double milliseconds;
  bool changed;
};

// Runs the passes of a stage in order, and dumps the graph after each that changed it under BRAZE_LOGS=post_grad.
// Throws InternalError that names the pass if verification fails.
std::vector<PassTime> run_passes(graph::Graph& graph, Stage stage, const PassOptions& options = {});
// One pass, by name, with the same checks. Throws std::invalid_argument for an unknown name.
bool run_pass(graph::Graph& graph, std::string_view name, const PassOptions& options = {});

#define PASS(name, stage, default_on, about) bool name(graph::Graph& graph);
#include "braze/rewrite/passes.def"
#undef PASS

}  // namespace braze::rewrite
