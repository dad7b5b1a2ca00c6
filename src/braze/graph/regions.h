// Regions that are run again: nodes tagged kRecompute belong to one call of checkpoint() each, whose number, from 1,
// stands in the upper half of their tags (0: all such nodes are one region). What leaves a region is saved.
#pragma once

#include "braze/graph/graph.h"

namespace braze::graph {

inline constexpr int kRegionShift = 16;
inline uint32_t region_of(const Node& node) { return node.tags >> kRegionShift; }

}  // namespace braze::graph
