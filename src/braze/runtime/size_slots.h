// The symbolic sizes of a program: read from its input tensors once per call, then all expressions by a flat program.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "braze/graph/graph.h"
#include "braze/sym/size_program.h"

namespace braze::runtime {

class SizeSlots {
 public:
  explicit SizeSlots(const graph::Graph& graph);
  // A constant, or a slot that evaluate() fills.
  struct Ref { int64_t constant = 0; int slot = -1; };
  Ref ref(graph::Expr e);
  int slot(graph::Expr e);                         // also for constants
  bool is_static() const { return reads_.empty(); }
  int count() const { return program_.slots(); }
  // tensors: the bound graph inputs; values: count() entries; size_inputs: one value per Graph::size_inputs.
  void evaluate(std::span<const at::Tensor> tensors, int64_t* values, std::span<const int64_t> size_inputs = {}) const;
  static int64_t value(Ref ref, const int64_t* values) { return ref.slot < 0 ? ref.constant : values[ref.slot]; }

 private:
  struct Read { int32_t input; int32_t dim; };     // symbol number i is tensors[input].size(dim), or a size input
  static std::vector<graph::Expr> symbols_of(const graph::Graph& graph, std::vector<Read>& reads);
  std::vector<Read> reads_;
  sym::SizeProgram program_;
};

}  // namespace braze::runtime
