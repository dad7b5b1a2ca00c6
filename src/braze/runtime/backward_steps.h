// What parts of a backward pass have in common. In eager each node of the history frees what it saved when it has run,
// so results of one call can be differentiated one after the other as long as no node that saved something runs twice.
// A compiled region is one node; here stands which of eager's nodes a backward pass of it stands for.
#pragma once

#include <span>
#include <vector>

#include "braze/graph/graph.h"
#include "braze/trace/compiler.h"

namespace braze::runtime {

// The results whose gradients came, and the gradients that are asked for (by number).
struct BackwardSelection {
  std::vector<bool> tangents, gradients;
  auto operator<=>(const BackwardSelection&) const = default;
};

class BackwardSteps {
 public:
  // joint: as it was traced. backward: what runs; tangent_of: per input of it the tangent's number, or -1.
  BackwardSteps(const graph::Graph& joint, const trace::JointPlan& plan, const graph::Graph& backward,
                std::span<const int32_t> tangent_of);

  // A step uses what the forward pass saved; it runs if one of its tangents is there and one of its gradients is asked for.
  struct Step {
    std::vector<bool> tangents, gradients;
    auto operator<=>(const Step&) const = default;
  };
  const std::vector<Step>& steps() const { return steps_; }
  static bool runs(const Step& step, const BackwardSelection& selection);
  // The inputs of `backward` that no pass needs any more, now that the steps marked in `spent` can't run again.
  std::vector<bool> unused_inputs(const std::vector<bool>& spent) const;

 private:
  size_t n_tangents_, n_gradients_;
  std::vector<Step> steps_;
  std::vector<std::vector<std::vector<bool>>> needs_;   // per input and tangent: the gradients that need it
};

// For each gradient of a joint graph the tangents that it depends on.
std::vector<std::vector<bool>> tangents_of_gradients(const graph::Graph& joint, const trace::JointPlan& plan);

}  // namespace braze::runtime
