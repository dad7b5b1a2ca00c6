// What every call and every backward pass of one compiled region share.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "braze/runtime/backward_chain.h"
#include "braze/runtime/backward_steps.h"
#include "braze/runtime/differentiable_replay.h"
#include "braze/runtime/training_executor.h"

namespace braze::runtime {

// What runs when some results have gradients and some gradients are asked for. Made when it is first asked for.
template <class Program>
struct BackwardPart {
  std::once_flag made;
  std::shared_ptr<Program> program;
  std::vector<size_t> inputs;     // per input of the program: its number in the whole graph
};

class TrainingRegion {
 public:
  TrainingRegion(TrainingPlan its_plan, std::shared_ptr<GraphProgram> its_forward, TrainingGraphs its_graphs,
                 MakeBackward make_backward, CompileFunction compile_function, const GraphContext& its_context);

  bool is_whole(const BackwardSelection& selection) const;
  // Of the backward graph; of the joint graph, for a backward pass that is differentiated.
  const BackwardPart<GraphProgram>& backward(const BackwardSelection& selection);
  const BackwardPart<const DifferentiableReplay>& replay(const BackwardSelection& selection);
  const BackwardSteps& steps();
  // nullptr: one part, unless hooks wait for the gradients.
  std::shared_ptr<const BackwardParts> parts(const torch::autograd::edge_list& edges,
                                             const torch::autograd::variable_list& differentiated);
  BackwardSelection whole() const;
  // As in eager, an input has no gradient if no result that depends on it took part.
  bool takes_part(size_t gradient, const std::vector<bool>& tangents) const;

  const TrainingPlan plan;
  const std::shared_ptr<GraphProgram> forward;
  const TrainingGraphs graphs;
  const GraphContext context;                  // of the joint graph
  const bool random;                           // the joint graph draws random numbers
  const std::vector<graph::Expr> joint_sizes;  // every size that the joint graph uses
  std::vector<bool> is_primal, is_written;     // per graph input: gradients depend on it; the forward pass writes it

 private:
  std::vector<bool> absent_inputs(std::vector<int32_t> tangent_of, const std::vector<bool>& tangents) const;
  std::vector<int32_t> backward_tangents() const;   // per input of the backward graph: the tangent's number, or -1

  MakeBackward make_backward_;
  CompileFunction compile_function_;           // empty: replays run node by node
  std::vector<std::vector<bool>> depends_;     // per gradient: the tangents that it depends on
  std::once_flag split_, steps_made_;
  std::shared_ptr<const BackwardParts> parts_;
  std::unique_ptr<BackwardSteps> steps_;
  std::mutex mutex_;                           // guards the maps
  std::map<BackwardSelection, BackwardPart<GraphProgram>> backwards_;
  std::map<BackwardSelection, BackwardPart<const DifferentiableReplay>> replays_;
};

}  // namespace braze::runtime
