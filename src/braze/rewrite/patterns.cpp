#include "braze/rewrite/patterns.h"

#include "braze/rewrite/pass_manager.h"
#include "braze/rewrite/storage.h"
#include "braze/support/check.h"

namespace braze::rewrite {

using graph::Builder;
using graph::Node;
using graph::OpId;
using graph::Shape;
using graph::Value;

namespace {

bool is_full_float(const Value* x) { return x->type.dtype == DType::F32 || x->type.dtype == DType::F64; }

// x w + bias with a bias per column. Only where the product is not rounded before the bias is added.
Value* addmm(Builder& b, const Match& m) {
  Value *x = m["x"], *w = m["w"], *bias = m["bias"];
  if (!is_full_float(x) || bias->type.dtype != x->type.dtype || bias->type.dim() != 1 ||
      !(bias->type.sizes[0] == w->type.sizes[1]))
    return nullptr;
  return b(OpId::addmm, {bias, x, w});
}

// The same with the product's rows seen as several dimensions.
Value* addmm_of_view(Builder& b, const Match& m) {
  Value* product = addmm(b, m);
  if (product == nullptr) return nullptr;
  const Shape& sizes = m["sum"]->type.sizes;
  if (!(sizes.back() == m["w"]->type.sizes[1]) || !(m["product"]->type.sizes == sizes)) return nullptr;
  return b.view(product, sizes);
}

// A 4-D form of a batch of matrices: one that the batch was made of, else a view of it.
Value* as_4d(Builder& b, Value* batch, const Shape& sizes) {
  for (Value* at = batch; at != nullptr; at = same_order(at))
    if (at->type.sizes == sizes) return at;
  return b.view(batch, sizes);
}

Value* with_dense_rows(Builder& b, Value* x) {
  return x->type.strides.back() == graph::Expr(1) ? x : b(OpId::clone, {x, graph::MemoryFormat{0}});
}

// softmax(q k' * scale + mask) v in one kernel. For 16-bit floats eager rounds the scores, which that kernel does not.
Value* attention(Builder& b, const Match& m) {
  Value *q = m["q"], *k = m["k"], *v = m["v"], *probabilities = m["probabilities"];
  if (!is_full_float(q) || q->type.dtype != k->type.dtype || q->type.dtype != v->type.dtype) return nullptr;
  const Shape& scores = probabilities->type.sizes;  // [B, H, S, T] or [N, S, T]
  size_t rank = scores.size();
  const Node& softmax = *probabilities->producer;
  auto dim = graph::integer(softmax, "dim");
  if ((rank != 3 && rank != 4) || !dim ||
      graph::wrap_dim(*dim, static_cast<int64_t>(rank)) != static_cast<int64_t>(rank) - 1)
    return nullptr;
  // The heads' width must be the same in q, k and v, and the batches those of the scores.
  graph::Expr width = q->type.sizes[2], batch = rank == 4 ? scores[0] : graph::Expr(1), heads = scores[rank - 3];
  if (!(v->type.sizes[2] == width) || !(batch * heads == q->type.sizes[0]) || !(scores[rank - 2] == q->type.sizes[1]) ||
      !(scores[rank - 1] == k->type.sizes[2]))
    return nullptr;
  for (const Value* x : {q, k, v})
    for (graph::Expr size : x->type.sizes)
      if (size == graph::Expr(0)) return nullptr;
  double scale = 1.0;
  if (const graph::Argument* factor = m.argument("factor")) scale = *graph::number(*factor);
  if (const graph::Argument* divisor = m.argument("divisor")) scale = 1.0 / *graph::number(*divisor);
  Value* mask = m["mask"];
  if (mask != nullptr) {
    if (mask->type.dtype != q->type.dtype) return nullptr;
    while (mask->type.dim() < 4) mask = b.unsqueeze(mask, mask->type.dim() == 3 && rank == 4 ? 0 : 0);
    // The kernel wants the mask's last two dimensions whole.
    Shape whole = mask->type.sizes;
    whole[2] = scores[rank - 2];
    whole[3] = scores[rank - 1];
    mask = b.expand(mask, whole);
  }
  Value* queries = with_dense_rows(b, as_4d(b, q, {batch, heads, q->type.sizes[1], width}));
  Value* transposed = as_4d(b, k, {batch, heads, width, k->type.sizes[2]});
  Value* keys = b(OpId::transpose_int, {transposed, graph::int_argument(2), graph::int_argument(3)});
  keys = with_dense_rows(b, keys);
  Value* values = with_dense_rows(b, as_4d(b, v, {batch, heads, v->type.sizes[1], width}));
  graph::Argument mask_argument = graph::None{};
  if (mask != nullptr) mask_argument = mask;
  Value* out =
      b(OpId::_scaled_dot_product_flash_attention_for_cpu, {queries, keys, values, 0.0, false, mask_argument, scale});
  Value* dense = b(OpId::clone, {out, graph::MemoryFormat{0}});
  return b.view(dense, m["out"]->type.sizes);
}

Pattern scaled(Pattern scores) {
  return either({call(OpId::mul_Tensor, {scores, number("factor")}),
                 call(OpId::div_Tensor, {scores, number("divisor")}), scores});
}

Pattern softmax_of_scores() {
  Pattern scores = moved(call(OpId::bmm, {any("q"), any("k")}).once());
  Pattern masked = either({commutative(OpId::add_Tensor, scaled(scores), any("mask")), scaled(scores)});
  return call(OpId::_softmax, {masked}).named("probabilities");
}

}  // namespace

const std::vector<PatternRow>& all_patterns() {
  static const std::vector<PatternRow> rows = {
      {"mm_add_bias", commutative(OpId::add_Tensor, call(OpId::mm, {any("x"), any("w")}).once(), any("bias")), addmm},
      {"mm_view_add_bias",
       commutative(OpId::add_Tensor,
                   either({call(OpId::view, {call(OpId::mm, {any("x"), any("w")}).once()}).once(),
                           call(OpId::_unsafe_view, {call(OpId::mm, {any("x"), any("w")}).once()}).once()})
                       .named("product"),
                   any("bias"))
           .named("sum"),
       addmm_of_view},
      {"attention", call(OpId::bmm, {moved(softmax_of_scores()), any("v")}).named("out"), attention},
  };
  return rows;
}

bool patterns(graph::Graph& graph) {
  Storages storages(graph);
  bool changed = false;
  for (auto it = graph.nodes.begin(); it != graph.nodes.end();) {
    Node* node = *it++;
    if (node->results.size() != 1) continue;
    for (const PatternRow& row : all_patterns()) {
      Match match;
      if (!row.pattern.matches(node->result(), match)) continue;
      Builder b(graph, node);
      Value* made = nullptr;
      try {
        made = row.rewrite(b, match);
      } catch (const InternalError&) {
        // An op of the replacement has no type rule for these arguments: the pattern does not apply.
      }
      if (made != nullptr && made->type.dtype == node->result()->type.dtype &&
          made->type.sizes == node->result()->type.sizes)
        made = b.with_layout(made, node->result()->type);
      else
        made = nullptr;
      bool replaced = made != nullptr && forward(graph, storages, node->result(), made);
      for (auto done = b.made().rbegin(); done != b.made().rend(); ++done) {
        bool used = false;
        for (const Value* result : (*done)->results) used = used || graph.has_uses(result);
        if (!used) graph.erase(*done);
      }
      if (!replaced) continue;
      if (!graph.has_uses(node->result())) graph.erase(node);
      changed = true;
      break;
    }
  }
  // What the replaced trees were made of.
  return changed && (dead_code(graph) || true);
}

}  // namespace braze::rewrite
