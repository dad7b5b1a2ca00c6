// A backward pass in parts. Where hooks wait for gradients one by one (DistributedDataParallel's reducer, an optimizer
// that steps inside the backward pass), the node of a compiled region is the head of a chain: each node runs a part of
// the program and gives the gradients that are done, and the engine hands these on before it runs the next.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "braze/runtime/graph_program.h"

namespace braze::runtime {

struct BackwardParts {
  std::vector<int32_t> last_steps;   // of the backward program, per part
  std::vector<size_t> part_of;       // per gradient
  size_t count() const { return last_steps.size(); }
};

// Whether one of these leads to a leaf with hooks for its gradient.
bool hooks_wait(const torch::autograd::edge_list& edges);
// About equal shares of the bytes, in the order in which gradients are done: GraphProgram::last_uses().
BackwardParts split_backward(const std::vector<int32_t>& last_uses, const std::vector<int64_t>& bytes);

// One backward pass. The token that the nodes hand on names it.
struct BackwardPass {
  std::shared_ptr<GraphProgram> program;
  std::unique_ptr<ProgramRun> run;
  torch::autograd::variable_list results;      // without a run: all gradients
  std::vector<bool> took_part;                 // per gradient: others are undefined
  at::Tensor token;
};

// What the nodes of one chain share.
class BackwardChain {
 public:
  explicit BackwardChain(std::shared_ptr<const BackwardParts> parts) : parts_(std::move(parts)) {}
  // The gradients of the first part, then the token.
  torch::autograd::variable_list begin(BackwardPass pass);
  // Of a later one; the last gives no token.
  torch::autograd::variable_list go_on(size_t part, const at::Tensor& token);

 private:
  torch::autograd::variable_list run(size_t part, BackwardPass pass);

  std::shared_ptr<const BackwardParts> parts_;
  std::mutex mutex_;
  std::unordered_map<const void*, BackwardPass> passes_;   // between two nodes, by token
};

// The edges of the head: those of the first part's gradients, then one to the rest of the chain.
torch::autograd::edge_list make_chain(const std::shared_ptr<BackwardChain>& chain, const BackwardParts& parts,
                                      const torch::autograd::edge_list& edges);

}  // namespace braze::runtime
