#include "braze/partition/partition.h"

#include <doctest/doctest.h>

#include <chrono>
#include <ctime>
#include <string>

#include "braze/graph/text.h"
#include "braze/partition/min_cut.h"

using namespace braze;

TEST_CASE("a minimum cut is found, nearest to the sink") {
  // 0 -> 2 -> 3 -> 1 with equal capacities along one way, and 0 -> 4 -> 1 with a narrow end.
  partition::MinCut cut(5);
  cut.add_edge(0, 2, 7);
  cut.add_edge(2, 3, 7);
  cut.add_edge(3, 1, 7);
  cut.add_edge(0, 4, 9);
  cut.add_edge(4, 1, 2);
  CHECK(cut.run(0, 1) == 9);
  CHECK_FALSE(cut.on_sink_side(2));
  CHECK_FALSE(cut.on_sink_side(3));
  CHECK_FALSE(cut.on_sink_side(4));
  CHECK(cut.on_sink_side(1));
}

TEST_CASE("flow goes back where that makes room") {
  // The shortest path 0-2-5-1 has to be undone in part for the maximum.
  partition::MinCut cut(6);
  for (const auto& [from, to] : {std::pair{0, 2}, {0, 3}, {2, 5}, {2, 4}, {3, 5}, {4, 1}, {5, 1}}) cut.add_edge(from, to, 1);
  CHECK(cut.run(0, 1) == 2);
}

TEST_CASE("no finite cut") {
  partition::MinCut cut(2);
  cut.add_edge(0, 1, partition::MinCut::kInfinite);
  CHECK(cut.run(0, 1) >= partition::MinCut::kInfinite);
}

namespace {

// Blocks of matrix products, normalization and activations with their gradients, about 26 nodes each.
std::string blocks(int count) {
  std::string forward, backward;
  std::string h = "x";
  int id = 0;
  const auto line = [&](std::string& text, const std::string& call, const std::string& type, const char* tag = "") {
    text += "  %" + std::to_string(++id) + " = " + call + " : " + type + tag + "\n";
    return std::to_string(id);
  };
  const std::string type = "f32[64, 32]";
  for (int i = 0; i < count; ++i) {
    const auto f = [&](const std::string& call) { return line(forward, call, type); };
    const std::string w = line(forward, "aten.t(%w)", "f32[32, 32]{1, 32}");
    const std::string a = f("aten.mm(%" + h + ", %" + w + ")");
    std::string e = f("aten.gelu(%" + a + ")");
    for (int k = 0; k < 6; ++k) e = f("aten.mul.Tensor(%" + e + ", 1.5)");
    const std::string s = f("aten.sin(%" + e + ")");
    const std::string n = f("aten.add.Tensor(%" + s + ", %" + h + ")");
    std::string grads;
    const auto b = [&](const std::string& call) { return line(grads, call, type, " !backward"); };
    const std::string g = i + 1 == count ? "g" : "g" + std::to_string(i + 1);
    const std::string c = b("aten.cos(%" + e + ")");
    std::string d = b("aten.mul.Tensor(%" + g + ", %" + c + ")");
    for (int k = 0; k < 6; ++k) d = b("aten.mul.Tensor(%" + d + ", 1.5)");
    d = b("aten.gelu_backward(%" + d + ", %" + a + ")");
    const std::string back = line(grads, "aten.t(%" + w + ")", "f32[32, 32]", " !backward");
    const std::string dx = b("aten.mm(%" + d + ", %" + back + ")");
    const std::string dt = line(grads, "aten.t(%" + h + ")", "f32[32, 64]{1, 32}", " !backward");
    line(grads, "aten.mm(%" + dt + ", %" + d + ")", "f32[32, 32]", " !backward");
    grads += "  %g" + std::to_string(i) + " = aten.add.Tensor(%" + dx + ", %" + g + ") : " + type + " !backward\n";
    backward = grads + backward;
    h = n;
  }
  return "graph @deep(%x: " + type + ", %w: f32[32, 32] parameter, %g: " + type + " tangent) {\n" + forward + backward +
         "  return %" + h + ", %g0\n}\n";
}

}  // namespace

TEST_CASE("large graphs are partitioned in time that grows with their size") {
  for (const double budget : {1.0, 0.5}) {
    const std::unique_ptr<graph::Graph> joint = graph::parse(blocks(400));
    const auto start = std::clock();
    Result<partition::Partitioned> parts = partition::partition(*joint, 1, {.activation_memory_budget = budget});
    struct { double v; double count() const { return v; } } time{1000.0 * double(std::clock() - start) / CLOCKS_PER_SEC};
    REQUIRE(parts.ok());
    CHECK(graph::verify(*parts->forward) == "");
    CHECK(graph::verify(*parts->backward) == "");
    MESSAGE(joint->size() << " nodes, budget " << budget << ": " << time.count() << " ms, " << parts->saved_bytes
                          << " bytes saved");
  }
}
