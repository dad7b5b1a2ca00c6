#include "braze/partition/min_cut.h"

#include <algorithm>

namespace braze::partition {

void MinCut::add_edge(int32_t from, int32_t to, int64_t capacity) {
  const auto add = [&](int32_t a, int32_t b, int64_t c) {
    edges_.push_back({b, first_[static_cast<size_t>(a)], c});
    first_[static_cast<size_t>(a)] = static_cast<int32_t>(edges_.size()) - 1;
  };
  add(from, to, capacity);
  add(to, from, 0);
}

// Distances to the sink over edges with room. Breadth first from the sink, so that the last, failing run marks exactly
// what can still reach it: the smallest sink side.
bool MinCut::measure(int32_t source, int32_t sink) {
  level_.assign(first_.size(), -1);
  level_[static_cast<size_t>(sink)] = 0;
  order_.assign(1, sink);
  for (size_t i = 0; i < order_.size(); ++i) {
    const int32_t at = order_[i];
    for (int32_t e = first_[static_cast<size_t>(at)]; e >= 0; e = edges_[static_cast<size_t>(e)].next) {
      const auto from = static_cast<size_t>(edges_[static_cast<size_t>(e)].to);
      if (level_[from] >= 0 || edges_[static_cast<size_t>(e ^ 1)].capacity == 0) continue;
      level_[from] = level_[static_cast<size_t>(at)] + 1;
      order_.push_back(static_cast<int32_t>(from));
    }
  }
  return level_[static_cast<size_t>(source)] >= 0;
}

// A blocking flow: walks down the levels without recursion, since paths may be as long as the graph is deep.
int64_t MinCut::push_along_paths(int32_t source, int32_t sink) {
  int64_t total = 0;
  next_ = first_;
  path_.clear();
  int32_t at = source;
  while (true) {
    if (at == sink) {
      int64_t room = kInfinite;
      for (const int32_t e : path_) room = std::min(room, edges_[static_cast<size_t>(e)].capacity);
      total += room;
      if (total >= kInfinite) return total;
      size_t keep = path_.size();
      for (size_t i = path_.size(); i-- > 0;) {
        Edge& edge = edges_[static_cast<size_t>(path_[i])];
        edge.capacity -= room;
        edges_[static_cast<size_t>(path_[i] ^ 1)].capacity += room;
        if (edge.capacity == 0) keep = i;
      }
      at = edges_[static_cast<size_t>(path_[keep] ^ 1)].to;   // go on where the first edge has filled up
      path_.resize(keep);
      continue;
    }
    int32_t& e = next_[static_cast<size_t>(at)];
    while (e >= 0) {
      const Edge& edge = edges_[static_cast<size_t>(e)];
      if (edge.capacity > 0 && level_[static_cast<size_t>(edge.to)] == level_[static_cast<size_t>(at)] - 1) break;
      e = edge.next;
    }
    if (e >= 0) {
      path_.push_back(e);
      at = edges_[static_cast<size_t>(e)].to;
      continue;
    }
    if (at == source) return total;
    const int32_t back = path_.back();
    path_.pop_back();
    at = edges_[static_cast<size_t>(back ^ 1)].to;
    next_[static_cast<size_t>(at)] = edges_[static_cast<size_t>(back)].next;
  }
}

int64_t MinCut::run(int32_t source, int32_t sink) {
  int64_t total = 0;
  while (total < kInfinite && measure(source, sink)) total += push_along_paths(source, sink);
  return total;
}

}  // namespace braze::partition
