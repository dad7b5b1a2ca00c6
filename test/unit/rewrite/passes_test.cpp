#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>

#include "braze/graph/text.h"
#include "braze/rewrite/pass_manager.h"
#include "braze/support/check.h"

using namespace braze;
using graph::parse;
using graph::print;

namespace {

int count(const graph::Graph& graph, std::string_view op) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [&](const graph::Node* node) { return node->op->name == op; }));
}

// Runs one pass, checks the graph, and returns it.
std::unique_ptr<graph::Graph> after(std::string_view pass, std::string_view text) {
  auto g = parse(text);
  REQUIRE_EQ(graph::verify(*g), "");
  rewrite::run_pass(*g, pass, {.verify = true});
  return g;
}

}  // namespace

TEST_CASE("passes are found by name, switched, and timed") {
  CHECK(rewrite::find_pass("dead_code") != nullptr);
  CHECK(rewrite::find_pass("no_such_pass") == nullptr);
  auto g = parse("graph @g(%x: f32[4]) {\n  %1 = aten.neg(%x) : f32[4]\n  return %x\n}\n");
  CHECK_THROWS_AS(rewrite::run_pass(*g, "no_such_pass"), std::invalid_argument);
  auto times = rewrite::run_passes(*g, rewrite::Stage::After, {.enable = {}, .disable = {"dead_code"}, .verify = true});
  CHECK(std::none_of(times.begin(), times.end(), [](const auto& t) { return t.name == "dead_code"; }));
  CHECK(!times.empty());
  times = rewrite::run_passes(*g, rewrite::Stage::After);
  CHECK_EQ(times.front().name, "dead_code");
  CHECK(times.front().changed);
  CHECK_EQ(g->size(), 0);
}

TEST_CASE("dead_code keeps randomness, effects, outputs and mutations") {
  auto g = after("dead_code", R"(graph @g(%x: f32[4]) {
  %1 = aten.neg(%x) : f32[4]
  %2 = aten.exp(%1) : f32[4]
  %3 = aten.bernoulli(%x) : f32[4] !order
  %4 = aten.abs(%x) : f32[4]
  %5 = aten.sin(%x) : f32[4]
  return %4 mutates(%x = %5)
}
)");
  CHECK_EQ(g->size(), 3);
  CHECK_EQ(count(*g, "aten.neg") + count(*g, "aten.exp"), 0);
}

TEST_CASE("no_op_removal: signed zeros decide") {
  const char* text = R"(graph @g(%x: f32[4], %i: i64[4]) {
  %1 = aten.add.Tensor(%x, 0.0) : f32[4]
  %2 = aten.add.Tensor(%1, -0.0) : f32[4]
  %3 = aten.sub.Tensor(%2, 0.0) : f32[4]
  %4 = aten.sub.Tensor(%3, -0.0) : f32[4]
  %5 = aten.mul.Tensor(%4, 1.0) : f32[4]
  %6 = aten.div.Tensor(%5, 1) : f32[4]
  %7 = aten.sub.Tensor(%6, 0, alpha=-1) : f32[4]
  %8 = aten.relu(%7) : f32[4]
  %9 = aten.add.Tensor(%i, 0) : i64[4]
  %10 = aten.neg(%9) : i64[4]
  return %8, %10
}
)";
  auto g = after("no_op_removal", text);
  CHECK_EQ(count(*g, "aten.add.Tensor"), 1);  // x + 0.0 turns -0.0 into 0.0
  CHECK_EQ(count(*g, "aten.sub.Tensor"), 2);  // x - -0.0 and x - -1 * 0 as well
  CHECK_EQ(count(*g, "aten.mul.Tensor") + count(*g, "aten.div.Tensor"), 0);
  CHECK_EQ(g->size(), 5);
}

TEST_CASE("no_op_removal keeps arithmetic that changes the type") {
  auto g = after("no_op_removal", R"(graph @g(%i: i64[4], %h: f32[1]) {
  %1 = aten.div.Tensor(%i, 1) : f32[4]
  %2 = aten.neg(%1) : f32[4]
  %3 = aten.mul.Tensor(%h, 1.0) : f32[1]
  %4 = aten.expand(%h, [4]) : f32[4]{0}
  %5 = aten.neg(%4) : f32[4]
  return %2, %3, %5
}
)");
  CHECK_EQ(count(*g, "aten.div.Tensor"), 1);
  CHECK_EQ(count(*g, "aten.expand"), 1);
  CHECK_EQ(count(*g, "aten.mul.Tensor"), 1);  // an output that is no alias of the input
}

TEST_CASE("no_op_removal: copies that the caller sees stay, others go") {
  auto g = after("no_op_removal", R"(graph @g(%x: f32[4]) {
  %1 = aten.clone(%x) : f32[4]
  %2 = aten.neg(%1) : f32[4]
  %3 = aten.clone(%2) : f32[4]
  %4 = aten.view(%3, [2, 2]) : f32[2, 2]
  %5 = aten.exp(%2) : f32[4]
  %6 = aten.clone(%5) : f32[4]
  return %1, %2, %4, %6
}
)");
  // %1 is a copy of an input, %4 a view of a copy of output %2; %6 is the only one who sees %5.
  CHECK_EQ(count(*g, "aten.clone"), 2);
  CHECK_EQ(g->outputs[3]->producer->op->name, "aten.exp");
  CHECK_EQ(g->nodes.size(), 5);
}

TEST_CASE("common_subexpressions: equal calls once, but not outputs, randomness or -0.0") {
  auto g = after("common_subexpressions", R"(graph @g(%x: f32[4]) {
  %1 = aten.exp(%x) : f32[4]
  %2 = aten.exp(%x) : f32[4]
  %3 = aten.add.Tensor(%1, 0.0) : f32[4]
  %4 = aten.add.Tensor(%2, -0.0) : f32[4]
  %5 = aten.add.Tensor(%3, %4) : f32[4]
  %6 = aten.sin(%x) : f32[4]
  %7 = aten.sin(%x) : f32[4]
  %8 = aten.bernoulli(%x) : f32[4] !order
  %9 = aten.bernoulli(%x) : f32[4] !order
  return %5, %6, %7, %8, %9
}
)");
  CHECK_EQ(count(*g, "aten.exp"), 1);
  CHECK_EQ(count(*g, "aten.add.Tensor"), 3);
  CHECK_EQ(count(*g, "aten.sin"), 2);
  CHECK_EQ(count(*g, "aten.bernoulli"), 2);
}

TEST_CASE("view_cleanup: chains that end where they began, permutations, reshapes") {
  auto g = after("view_cleanup", R"(graph @g(%x: f32[2, 3, 4]) {
  %1 = aten.transpose.int(%x, 1, 2) : f32[2, 4, 3]{12, 1, 4}
  %2 = aten.transpose.int(%1, 1, 2) : f32[2, 3, 4]
  %3 = aten.neg(%2) : f32[2, 3, 4]
  %4 = aten.permute(%x, [2, 0, 1]) : f32[4, 2, 3]{1, 12, 4}
  %5 = aten.permute(%4, [2, 1, 0]) : f32[3, 2, 4]{4, 12, 1}
  %6 = aten.clone(%5, memory_format=contiguous_format) : f32[3, 2, 4]
  %7 = aten.view(%x, [6, 4]) : f32[6, 4]
  %8 = aten.view(%7, [24]) : f32[24]
  %9 = aten.neg(%8) : f32[24]
  return %3, %6, %9
}
)");
  rewrite::run_pass(*g, "dead_code", {.verify = true});
  CHECK_EQ(count(*g, "aten.transpose.int"), 0);
  CHECK_EQ(count(*g, "aten.permute"), 1);
  CHECK_EQ(count(*g, "aten.view"), 1);
}

TEST_CASE("scatter_cleanup: whole writes, reads through writes, dead writes") {
  auto g = after("scatter_cleanup", R"(graph @g(%x: f32[4, 4], %s: f32[4, 4], %r: f32[4]) {
  %1 = aten.slice_scatter(%x, %s, 0, 0, 4) : f32[4, 4]
  %2 = aten.neg(%1) : f32[4, 4]
  %3 = aten.select_scatter(%x, %r, 0, 1) : f32[4, 4]
  %4 = aten.select.int(%3, 0, 1) : f32[4] offset 4
  %5 = aten.neg(%4) : f32[4]
  %6 = aten.select.int(%3, 0, 2) : f32[4] offset 8
  %7 = aten.neg(%6) : f32[4]
  return %2, %5, %7
}
)");
  rewrite::run_pass(*g, "dead_code", {.verify = true});
  CHECK_EQ(count(*g, "aten.slice_scatter") + count(*g, "aten.select_scatter"), 0);
  CHECK_EQ(count(*g, "aten.select.int"), 1);  // of x
  CHECK_EQ(g->size(), 4);
}

TEST_CASE("constant_folding: uniform values, immediates, choices") {
  auto g = after("constant_folding", R"(graph @g(%x: f32[2, 4]) {
  %1 = aten.arange(4) : i64[4]
  %2 = aten.ge.Scalar(%1, 0) : b8[4]
  %3 = aten.where.ScalarOther(%2, %x, -1.0) : f32[2, 4]
  %4 = aten.scalar_tensor(2.0, dtype=f32) : f32[]
  %5 = aten.mul.Tensor(%3, %4) : f32[2, 4]
  %6 = aten.lt.Scalar(%1, 2) : b8[4]
  %7 = aten.where.ScalarOther(%6, %5, -1.0) : f32[2, 4]
  return %7
}
)");
  rewrite::run_pass(*g, "dead_code", {.verify = true});
  CHECK_EQ(count(*g, "aten.where.ScalarOther"), 1);
  CHECK_EQ(count(*g, "aten.scalar_tensor"), 0);
  CHECK_EQ(count(*g, "aten.ge.Scalar"), 0);
}

TEST_CASE("algebraic_simplification: exact rewrites only") {
  auto g = after("algebraic_simplification", R"(graph @g(%x: f32[4], %h: bf16[4]) {
  %1 = aten.neg(%x) : f32[4]
  %2 = aten.neg(%1) : f32[4]
  %3 = aten.div.Tensor(%2, 8.0) : f32[4]
  %4 = aten.div.Tensor(%3, 3.0) : f32[4]
  %5 = aten._to_copy(%h, dtype=f32) : f32[4]
  %6 = aten._to_copy(%5, dtype=bf16) : bf16[4]
  %7 = aten.neg(%6) : bf16[4]
  %8 = aten._to_copy(%x, dtype=bf16) : bf16[4]
  %9 = aten._to_copy(%8, dtype=f32) : f32[4]
  %10 = aten.pow.Tensor_Scalar(%x, 2) : f32[4]
  return %4, %7, %9, %10
}
)");
  rewrite::run_pass(*g, "dead_code", {.verify = true});
  CHECK_EQ(count(*g, "aten.neg"), 1);
  CHECK_EQ(count(*g, "aten.div.Tensor"), 1);
  CHECK_EQ(count(*g, "aten._to_copy"), 2);  // rounding to bf16 and back is no no-op
  CHECK_EQ(count(*g, "aten.pow.Tensor_Scalar"), 0);
}

TEST_CASE("topological_order sorts stably") {
  auto g = parse(R"(graph @g(%x: f32[4]) {
  %1 = aten.neg(%x) : f32[4]
  %2 = aten.exp(%1) : f32[4]
  %3 = aten.sin(%x) : f32[4]
  return %2, %3
}
)");
  CHECK_FALSE(rewrite::topological_order(*g));
  g->nodes.splice(g->nodes.end(), g->nodes, g->nodes.begin());
  CHECK(rewrite::topological_order(*g));
  std::vector<std::string> names;
  for (const graph::Node* node : g->nodes) names.push_back(node->op->name);
  CHECK_EQ(names, std::vector<std::string>{"aten.neg", "aten.exp", "aten.sin"});
  CHECK_EQ(graph::verify(*g), "");
}
