// GraphProgram: a graph made executable. As an Executable it serves calls without gradients; training runs two of them
// between tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "braze/support/executable.h"

namespace braze::runtime {

// A run that stops on the way, so that outputs can be used before it ends. The program outlives it.
class ProgramRun {
 public:
  virtual ~ProgramRun() = default;
  // Runs on to step `last`, that included. Throws as run_tensors().
  virtual void run_to(int32_t last) = 0;
  // An output that no step to come uses; once each.
  virtual at::Tensor take(size_t output) = 0;
};

class GraphProgram : public Executable {
 public:
  // bound: one tensor per graph input, of the traced type, each dropped when it was used last, so that memory that
  // nobody else holds is free for what follows; size_inputs: the graph's. Fills one tensor per graph output, each the owner of its
  // memory (undefined where the graph has no value). For graphs without mutations and aliases. Runs below autograd and
  // without the GIL; throws what operators throw.
  virtual void run_tensors(std::vector<at::Tensor> bound, std::span<const int64_t> size_inputs,
                           std::vector<at::Tensor>& outputs) = 0;

  // The same in parts. Per output the last step that uses its memory, -1 if none does; empty: there are no parts.
  virtual std::vector<int32_t> last_uses() const { return {}; }
  virtual std::unique_ptr<ProgramRun> start(std::vector<at::Tensor>, std::span<const int64_t>) { return nullptr; }
};

}  // namespace braze::runtime
