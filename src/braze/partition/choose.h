// Decides what is saved. Sets of values are flags by value id.
#pragma once

#include <vector>

#include "braze/partition/joint.h"

namespace braze::partition {

using ValueSet = std::vector<bool>;

// Which nodes the backward pass may run again, and what it costs to save a value instead.
struct Rules {
  explicit Rules(const Joint& joint);
  std::vector<bool> must;    // by node number: run again where anything needs it (checkpoints)
  std::vector<bool> never;   // by node number: may not run again
  ValueSet eager;            // owners of the memory that eager's autograd saves, inputs included
};

// A minimum cut over bytes saved and work done again. Library calls run once. Never more bytes than eager saves.
ValueSet cheapest(const Joint& joint, const Rules& rules);

// Saves less, so that about `budget` is left of the memory that can be done without: saves what crosses a few places of
// the forward pass and computes again from there, then adds what costs most work for its bytes.
ValueSet within_budget(const Joint& joint, const Rules& rules, const ValueSet& cheapest, double budget);

}  // namespace braze::partition
