// Minimum cut by maximum flow (Dinic).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace braze::partition {

class MinCut {
 public:
  static constexpr int64_t kInfinite = std::numeric_limits<int64_t>::max() / 4;

  explicit MinCut(size_t vertices) : first_(vertices, -1) {}
  void add_edge(int32_t from, int32_t to, int64_t capacity);
  // The capacity of the cut. Of all minimum cuts it finds the one with the largest source side. kInfinite or more: no
  // finite cut.
  int64_t run(int32_t source, int32_t sink);
  bool on_sink_side(int32_t vertex) const { return level_[static_cast<size_t>(vertex)] >= 0; }

 private:
  struct Edge { int32_t to; int32_t next; int64_t capacity; };   // edge e ^ 1 is its reverse
  bool measure(int32_t source, int32_t sink);
  int64_t push_along_paths(int32_t source, int32_t sink);
  std::vector<Edge> edges_;
  std::vector<int32_t> first_, level_, next_;
  std::vector<int32_t> order_, path_;
};

}  // namespace braze::partition
