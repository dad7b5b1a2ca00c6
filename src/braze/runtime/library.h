// Library rows: calls that run better than ATen's own kernel, into planned memory.
//
// A row accepts a call by its op and types; what it made is then run per call on raw strided memory. Where no row
// accepts, the executor calls ATen.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braze/graph/graph.h"
#include "braze/schedule/program.h"

namespace braze::runtime {

struct StridedData {
  char* data;
  std::span<const int64_t> sizes, strides;   // in elements
};

class LibraryCall {
 public:
  static constexpr int kByModel = -1;
  virtual ~LibraryCall() = default;
  // operands: the node's tensors in order; out: its results (data == nullptr: unused). Throws on errors of the data.
  // way: a number below ways(), or kByModel: the row's own choice.
  virtual void run(std::span<const StridedData> operands, std::span<const StridedData> out, int way = kByModel) const = 0;
  // False if these strides can't be used: the executor then calls ATen (symbolic strides are known only here).
  virtual bool accepts(std::span<const StridedData> operands, std::span<const StridedData> out) const = 0;
  // The first so many results of the node can be given.
  virtual size_t n_results() const { return 1; }
  virtual std::string name() const = 0;
  // Ways to run it, for tuning: their names; "" where these strides rule a way out.
  virtual std::vector<std::string> ways(std::span<const StridedData>) const { return {name()}; }
  // What the row's own choice is for these strides, and why.
  virtual std::string reason(std::span<const StridedData>) const { return name(); }
};

// nullptr if no row accepts the node.
std::unique_ptr<LibraryCall> find_library_call(const graph::Node& node);

}  // namespace braze::runtime
