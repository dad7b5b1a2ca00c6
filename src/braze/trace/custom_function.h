// Custom autograd functions (torch.autograd.Function) whose forward capture has interpreted. Their node in libtorch's
// graph calls capture again for the backward, so that its Python is interpreted and guarded like all other.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable_info.h>

#include <unordered_set>
#include <vector>

#include "braze/capture/differentiation.h"

namespace braze::trace {

class InterpretedFunction final : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override { return "InterpretedFunction"; }
  // At the end of the trace. What was saved may hold this node in turn.
  void release() { backward = nullptr, saved.clear(); }

  struct Saved {
    at::Tensor tensor;
    uint32_t version;
  };

  capture::Backward backward;
  bool materialize = true;                                  // undefined gradients become zeros
  std::vector<bool> is_tensor;                              // of each argument of forward
  std::vector<torch::autograd::VariableInfo> outputs;
  std::vector<bool> is_tensor_output;
  std::vector<Saved> saved;
};

// The nodes that a backward pass from the roots can run; aborts if one of them has hooks.
std::unordered_set<torch::autograd::Node*> nodes_behind(const torch::autograd::edge_list& roots);

// The natives of capture/differentiation.h. Needs the GIL.
void register_autograd_natives();

}  // namespace braze::trace
