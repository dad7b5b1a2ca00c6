// Nest: a group as loops over source symbols, before axes are merged, the vector axis is chosen and names are made
// canonical. Loads have one index, the address in elements; their buffers are program buffers, or -1 - n: scratch n.
#pragma once

#include <string>
#include <vector>

#include "braze/schedule/groups.h"

namespace braze::schedule {

struct NestStage {
  std::vector<loop::Axis> kept, loops;
  std::vector<Accumulator> accumulators;
  std::vector<Store> stores, inner_stores;
  bool scan = false, exclusive = false;
  bool ordered = false;                   // the loops must keep their order (argmax, scan, scatter)
};

struct Nest {
  NestKind kind = NestKind::Flat;
  std::vector<loop::Axis> rows;
  std::vector<NestStage> stages;
  std::vector<Scratch> scratch;           // sizes over source symbols
  int64_t chunk = 1;                      // so many rows, in their order, belong to one thread
  std::string note;
};

// A body with index symbols replaced, and each load's indices by its address. Only buffers in memory are read.
const Scalar* in_memory(Work& work, const Scalar* body, const Substitution& symbols);
Expr address_in(const Buffer& buffer, const Substitution& symbols);

// Groups with a Cat: each piece has its own loops.
std::vector<Nest> make_piece_nests(Work& work, const Group& group, const std::vector<bool>& stored);
Nest make_scan_nest(Work& work, const Buffer& buffer);
// The initial values, then the updates.
std::vector<Nest> make_scatter_nests(Work& work, const Buffer& buffer);

// Cuts axes where conditions on them change (the border of a padded window), so that the inside has none.
void split_borders(Work& work, Nest& nest);

// `stored` says which members other kernels or the caller need in memory.
std::vector<Nest> make_nests(Work& work, const Group& group, const std::vector<bool>& stored);

}  // namespace braze::schedule
