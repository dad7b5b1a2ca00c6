// The part of a graph that computes some of its outputs while some of its inputs are zero: of a backward pass, what runs
// for some of the results and some of the gradients. Zero means that nothing flowed, as in eager, where an operator
// without an incoming gradient does not run: zero times infinity is zero.
#pragma once

#include <memory>
#include <vector>

#include "braze/graph/graph.h"

namespace braze::graph {

struct Restricted {
  std::unique_ptr<Graph> graph;    // size inputs are the given graph's; no mutations, no aliases
  std::vector<size_t> inputs;      // per input: its number in the given graph
};

// zero_inputs: by input number. wanted: by output number; the others become undefined. keep_random: random nodes stay
// although nothing needs them, so that those behind them draw the same numbers.
Restricted restrict(const Graph& graph, const std::vector<bool>& zero_inputs, const std::vector<bool>& wanted,
                    bool keep_random);

}  // namespace braze::graph
