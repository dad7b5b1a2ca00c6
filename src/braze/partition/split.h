// What follows from a set of saved values: the order of the backward pass, the memory that it takes, the two graphs.
#pragma once

#include <vector>

#include "braze/partition/joint.h"
#include "braze/partition/partition.h"

namespace braze::partition {

// What the backward graph takes from the forward pass, and what it runs. `saved` is by value id: values that it needs,
// that are not saved and are no inputs are computed again, as late as possible, so that they take memory for the
// shortest time. Saved values that it then does not need are dropped.
struct BackwardPlan {
  BackwardPlan(const Joint& joint, const std::vector<bool>& saved);
  std::vector<const graph::Value*> inputs;   // forward inputs, in order
  std::vector<const graph::Value*> saved;    // in order of production
  std::vector<int32_t> order;                // of nodes, by number
};

// Bytes of saved and of recomputed values that the backward pass holds at once, at most. Saved ones count all the time.
int64_t peak_of(const Joint& joint, const std::vector<bool>& saved);

Result<Partitioned> split(const Joint& joint, const std::vector<bool>& saved);

}  // namespace braze::partition
