#include "braze/decompose/decompose.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "braze/graph/text.h"

using namespace braze;

namespace {

int count(const graph::Graph& graph, std::string_view op) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [&](const graph::Node* node) { return node->op->name == op; }));
}

}  // namespace

TEST_CASE("each op has one rule") {
  std::set<std::string_view> seen;
  for (const decompose::Row& row : decompose::all_rules()) CHECK_MESSAGE(seen.insert(row.op).second, row.op);
}

TEST_CASE("results keep their layout: one copy where the parts have another") {
  auto g = graph::parse(R"(graph @g(%x: f32[4, 8]{1, 4}) {
  %1 = aten._softmax(%x, 1, false) : f32[4, 8]
  return %1
}
)");
  auto report = decompose::decompose(*g);
  CHECK_EQ(report.decomposed, 1);
  CHECK(report.failed.empty());
  CHECK_EQ(graph::verify(*g), "");
  CHECK_EQ(g->outputs[0]->type.strides, graph::Shape{8, 1});
  CHECK_EQ(count(*g, "aten.clone"), 1);
}

TEST_CASE("kept ops, ops without a rule, and arguments that no rule takes stay") {
  const char* text = R"(graph @g(%x: f32[4, 8], %i: i64[4]) {
  %1 = aten._softmax(%x, 1, false) : f32[4, 8]
  %2, %5 = aten.sort.stable(%1, stable=true) : f32[4, 8], i64[4, 8]
  %3, %4 = aten.native_dropout(%x, 0.5, true) : f32[4, 8], b8[4, 8] !order
  return %1, %3
}
)";
  auto g = graph::parse(text);
  auto report = decompose::decompose(*g, {.target = true, .keep = {"aten._softmax"}});
  CHECK_EQ(report.decomposed, 0);
  CHECK_EQ(g->size(), 3);
  CHECK_EQ(graph::verify(*g), "");
}

TEST_CASE("a result of a wrong type is refused, and nothing is left behind") {
  // Neither the sizes nor the strides that this op gives.
  auto h = graph::parse(R"(graph @h(%x: f32[4, 8]) {
  %1 = aten.logsumexp(%x, [1]) : f32[8]
  return %1
}
)");
  auto report = decompose::decompose(*h);
  CHECK_EQ(report.failed.size(), 1);
  CHECK_EQ(h->size(), 1);
  CHECK_EQ(h->inputs[0]->users.size(), 1);
}

TEST_CASE("unused results are not made, used ones are") {
  auto g = graph::parse(R"(graph @g(%x: bf16[4, 8], %w: f32[8]) {
  %1, %2, %3 = aten.native_layer_norm(%x, [8], %w, none, 1e-05) : bf16[4, 8], f32[4, 1], f32[4, 1]
  return %1, %3
}
)");
  CHECK(decompose::decompose(*g).failed.empty());
  CHECK_EQ(graph::verify(*g), "");
  CHECK_EQ(g->outputs[0]->type.dtype, DType::BF16);
  CHECK_EQ(g->outputs[1]->producer->op->name, "aten.rsqrt");
}

TEST_CASE("origins and tags are handed on; symbolic sizes pass") {
  auto g = graph::parse(R"ir(sym s0 in [2, inf] = 4 "x.size(0)"
graph @g(%x: f32[s0, 8], s0) {
  %1 = aten._log_softmax(%x, 1, false) : f32[s0, 8]  # model.py:3 in forward
  return %1
}
)ir");
  size_t guards = g->env->guards().size();
  CHECK_EQ(decompose::decompose(*g).decomposed, 1);
  CHECK_EQ(graph::verify(*g), "");
  CHECK_EQ(g->env->guards().size(), guards);
  for (const graph::Node* node : g->nodes) CHECK_EQ(node->origin, "model.py:3 in forward");
}
