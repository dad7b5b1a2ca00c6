// Shape: a nest becomes a Kernel. Neighbouring axes that all addresses walk as one are merged, the vector axis and the
// parallel axes are chosen, and all names are made canonical, so that equal layers print the same kernel.
#pragma once

#include "braze/schedule/nest.h"

namespace braze::schedule {

struct Shaped {
  Kernel kernel;
  std::vector<int32_t> params;      // buffer of each kernel parameter
  std::vector<Expr> sizes;          // value of each size parameter, over the program's symbols
  Expr range = 1, grain = 1;
  bool parallel = false;
};

Shaped shape(Work& work, Nest nest);

// The axes as the kernel will have them, with the nest's scalars still over source symbols.
struct Plan {
  std::vector<LoopAxis> parallel;
  std::vector<std::vector<LoopAxis>> kept, loops;   // by stage
  Substitution symbols;                             // axes that were merged or split
  NestKind kind = NestKind::Flat;
};
Plan plan_loops(Work& work, const Nest& nest);

Shaped make_kernel(Work& work, const Nest& nest, const Plan& plan);

}  // namespace braze::schedule
