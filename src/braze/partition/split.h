// Builds the two graphs once it is known what is saved.
#pragma once

#include <vector>

#include "braze/partition/joint.h"
#include "braze/partition/partition.h"

namespace braze::partition {

// saved: by value id. Values that the backward pass needs, are not saved and are no inputs are computed again from
// their operands. Saved values that it then does not need are dropped.
Result<Partitioned> split(const Joint& joint, const std::vector<bool>& saved);

}  // namespace braze::partition
