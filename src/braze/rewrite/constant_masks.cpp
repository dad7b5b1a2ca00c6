// Attention masks that are known while compiling: one of zeros is dropped, a lower triangle becomes is_causal, which
// lets the kernel skip what is masked.
#include <cmath>

#include "braze/graph/builder.h"
#include "braze/rewrite/constants.h"
#include "braze/rewrite/pass_manager.h"

namespace braze::rewrite {

using graph::Node;
using graph::OpId;
using graph::Value;

namespace {

constexpr size_t kLimit = 1 << 20;  // distinct elements of a mask that is looked at

bool is_zero(const Constant& mask) { return mask.is_uniform() && is_floating(mask.dtype) && mask.first().real == 0.0; }

// [.., i, j] is 0 for j <= i, else -inf, equal in all leading dimensions and given for each query and key.
bool is_causal(const Constant& mask, const Value* query, const Value* key) {
  size_t rank = mask.sizes.size();
  if (rank < 2 || !is_floating(mask.dtype) || query->type.dim() != 4 || key->type.dim() != 4 ||
      !(mask.sizes[rank - 2] == query->type.sizes[2]) || !(mask.sizes[rank - 1] == key->type.sizes[2]))
    return false;
  for (size_t d = 0; d + 2 < rank; ++d)
    if (mask.strides[d] != 0) return false;
  auto rows = mask.sizes[rank - 2].maybe_constant(), columns = mask.sizes[rank - 1].maybe_constant();
  if (!rows || !columns) return false;
  const auto& data = *mask.data;
  for (int64_t i = 0; i < *rows; ++i)
    for (int64_t j = 0; j < *columns; ++j) {
      double value =
          data[static_cast<size_t>(mask.offset + i * mask.strides[rank - 2] + j * mask.strides[rank - 1])].real;
      if (j <= i ? value != 0.0 : !(std::isinf(value) && value < 0)) return false;
    }
  return true;
}

}  // namespace

bool constant_masks(graph::Graph& graph) {
  Constants constants(kLimit);
  bool changed = false;
  for (Node* node : graph.nodes) {
    if (node->op->id != OpId::_scaled_dot_product_flash_attention_for_cpu) continue;
    Value* mask = graph::tensor(*node, "attn_mask");
    if (mask == nullptr || graph::boolean(*node, "is_causal")) continue;
    const Constant* constant = constants.value(mask);
    if (constant == nullptr) continue;
    auto argument = [&](const char* name) { return static_cast<size_t>(node->op->argument_index(name)); };
    bool causal = !is_zero(*constant);
    if (causal && !is_causal(*constant, graph::tensor(*node, "query"), graph::tensor(*node, "key"))) continue;
    if (causal) graph.set_argument(node, argument("is_causal"), true);
    graph.set_argument(node, argument("attn_mask"), graph::None{});
    changed = true;
  }
  return changed;
}

}  // namespace braze::rewrite
