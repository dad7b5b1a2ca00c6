#include "braze/partition/partition.h"

#include <algorithm>

#include "braze/partition/choose.h"
#include "braze/partition/joint.h"
#include "braze/partition/split.h"

namespace braze::partition {

Result<Partitioned> partition(const graph::Graph& graph, size_t n_forward_outputs, const PartitionOptions& options) {
  TRY(const Joint joint, analyze(graph, n_forward_outputs));
  const Rules rules(joint);
  ValueSet saved = cheapest(joint, rules);
  if (options.activation_memory_budget < 1)
    saved = within_budget(joint, rules, saved, std::max(options.activation_memory_budget, 0.0));
  return split(joint, saved);
}

}  // namespace braze::partition
