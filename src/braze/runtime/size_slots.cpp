#include "braze/runtime/size_slots.h"

#include "braze/support/check.h"

namespace braze::runtime {
namespace {
constexpr int32_t kSizeInput = -1;   // in Read::input: dim is the number of a size input
}

std::vector<graph::Expr> SizeSlots::symbols_of(const graph::Graph& graph, std::vector<Read>& reads) {
  std::vector<graph::Expr> symbols;
  const auto note = [&](graph::Expr e, int32_t input, int32_t dim) {
    if (!e.is_symbol()) return;
    for (graph::Expr known : symbols)
      if (known == e) return;
    symbols.push_back(e);
    reads.push_back({input, dim});
  };
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const graph::Shape& sizes = graph.inputs[i]->type.sizes;
    for (size_t d = 0; d < sizes.size(); ++d) note(sizes[d], static_cast<int32_t>(i), static_cast<int32_t>(d));
  }
  // Strides that are symbols of their own (a dynamic leading dimension).
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const graph::Shape& strides = graph.inputs[i]->type.strides;
    for (size_t d = 0; d < strides.size(); ++d) note(strides[d], static_cast<int32_t>(i), ~static_cast<int32_t>(d));
  }
  for (size_t i = 0; i < graph.size_inputs.size(); ++i) note(graph.size_inputs[i], kSizeInput, static_cast<int32_t>(i));
  return symbols;
}

SizeSlots::SizeSlots(const graph::Graph& graph) : program_(symbols_of(graph, reads_)) {}

SizeSlots::Ref SizeSlots::ref(graph::Expr e) {
  if (e.is_constant()) return {e.constant(), -1};
  return {0, program_.add(e)};
}

int SizeSlots::slot(graph::Expr e) { return program_.add(e); }

void SizeSlots::evaluate(std::span<const at::Tensor> tensors, int64_t* values,
                         std::span<const int64_t> size_inputs) const {
  for (size_t i = 0; i < reads_.size(); ++i) {
    if (reads_[i].input == kSizeInput) {
      values[i] = size_inputs[static_cast<size_t>(reads_[i].dim)];
      continue;
    }
    const at::Tensor& t = tensors[static_cast<size_t>(reads_[i].input)];
    values[i] = reads_[i].dim >= 0 ? t.size(reads_[i].dim) : t.stride(~reads_[i].dim);
  }
  program_.run(values);
}

}  // namespace braze::runtime
