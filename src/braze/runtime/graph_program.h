// GraphProgram: a graph made executable. As an Executable it serves calls without gradients; training runs two of them
// between tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "braze/support/executable.h"

namespace braze::runtime {

class GraphProgram : public Executable {
 public:
  // bound: one tensor per graph input, of the traced type, each dropped when it was used last, so that memory that
  // nobody else holds is free for what follows; size_inputs: the graph's. Fills one tensor per graph output, each the owner of its
  // memory (undefined where the graph has no value). For graphs without mutations and aliases. Runs below autograd and
  // without the GIL; throws what operators throw.
  virtual void run_tensors(std::vector<at::Tensor> bound, std::span<const int64_t> size_inputs,
                           std::vector<at::Tensor>& outputs) = 0;
};

}  // namespace braze::runtime
