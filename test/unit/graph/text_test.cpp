#include "braze/graph/text.h"

#include <doctest/doctest.h>

#include <random>

#include "braze/support/check.h"

using namespace braze;
using namespace braze::graph;

namespace {

constexpr const char* kEverything = R"ir(sym s0 in [2, inf] = 8 "x.size(0)"
sym s1 in [2, 100] = 3
guard s1 <= s0 "x.size(0) >= y.size(0)"
guard s0 <= 512
op test::frob(Tensor self, str how="plain", Device? device=None) -> (Tensor, Tensor) !random
graph @demo(%x: f32[s0, 32] grad, %w: bf16[4, s1*2]{1, 4} offset 3@cuda:1 parameter, %0: c64[] weak, s0) {
  %1 = aten.add.Tensor(%x, 2.0, alpha=3) : f32[s0, 32]
  %2, %3 = test.frob(%1, "a \"b\"", @cuda:0) : f32[s0, 32]{1, s0}, undef !order
  %4 = aten.cat([%1, %2], 1) : f32[s0, 64]
  %5 = aten.index.Tensor(%4, [none, %0]) : f32[s0] offset (s0*4 + 1)
  %6 = aten.empty.memory_format([s0 // 2, s0 + 1], dtype=f16, memory_format=channels_last) : f16[s0 // 2, s0 + 1]
  %7, %8 = test.frob(%6) : f16[0], i64[1] unstrided !order !recompute
  %9 = aten.full([], complex(1.0, -inf)) : c64[]
  %10 = aten.full([2], nan) : f32[2]
  return %7, undef, %x mutates(%x = %1, %w = %4 with_grad) aliases(0 = %x as [s0]{32} offset 2, 1 = output 0 as []{}, 2 = %x)
}
)ir";

}  // namespace

TEST_CASE("the text form holds everything") {
  const auto graph = parse(kEverything);
  CHECK_EQ(print(*graph), kEverything);
  CHECK_EQ(print(*parse(print(*graph))), kEverything);
  CHECK_EQ(print(*clone(*graph)), kEverything);
  CHECK_EQ(graph->env->guards().size(), 2);
  CHECK_EQ(graph->mutations[1].under_no_grad, false);
}

TEST_CASE("origins are read, and printed on request") {
  const auto graph = parse("graph @g(%x: f32[2]) {\n  %1 = aten.relu(%x) : f32[2]  # a.py:3 in f\n  return %1\n}\n");
  CHECK_EQ(graph->nodes.front()->origin, "a.py:3 in f");
  CHECK(print(*graph, {.origins = true}).find("# a.py:3 in f") != std::string::npos);
}

TEST_CASE("bad text names its place") {
  const auto message = [](const char* text) -> std::string {
    try {
      parse(text);
    } catch (const ParseError& e) {
      return e.what();
    }
    return "";
  };
  CHECK_EQ(message("graph @g() {\n  %1 = aten.nothing() : f32[]\n  return\n}\n"),
           "line 2, column 8: unknown op aten.nothing (declare it: op ns::name(...) -> ...)");
  CHECK(message("graph @g(%x: f33[2]) { return }").find("element type") != std::string::npos);
  CHECK(message("graph @g(%x: f32[s0]) { return }").find("no size symbol s0") != std::string::npos);
  CHECK(message("graph @g() { %1 = aten.relu(%0) : f32[2]\n return }").find("%0 is not defined") != std::string::npos);
  CHECK(message("graph @g(%x: f32[2]) { %1 = aten.relu() : f32[2]\n return }").find("self") != std::string::npos);
  CHECK(message("graph @g(%x: f32[2]) { %1 = aten.relu(%x, 1) : f32[2]\n return }").find("too many") !=
        std::string::npos);
  CHECK(message("graph @g(%x: f32[2]) { return } trailing").find("end of text") != std::string::npos);
  CHECK(message("op nonsense\ngraph @g() { return }").find("schema") != std::string::npos);
}

TEST_CASE("damaged text gives a parse error or a graph that prints to a fixed point") {
  std::mt19937 random(5);
  constexpr std::string_view kCharacters = "%[](){},:=0123456789-+*/.\"@ \nsxf!";
  int parsed = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = kEverything;
    for (size_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      const char c = kCharacters[random() % kCharacters.size()];
      switch (random() % 3) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.erase(at, 1 + random() % 4);
          break;
        default:
          text.insert(at, 1, c);
          break;
      }
    }
    INFO("round " << round << ":\n" << text);
    try {
      const auto graph = parse(text);
      ++parsed;
      verify(*graph);
      const std::string printed = print(*graph);
      REQUIRE_EQ(print(*parse(printed)), printed);
    } catch (const ParseError&) {
    }
  }
  CHECK_GT(parsed, 0);
}

TEST_CASE("verify finds broken graphs") {
  const auto fresh = [] {
    return parse("graph @g(%x: f32[2]) {\n %1 = aten.relu(%x) : f32[2]\n %2 = aten.neg(%1) : f32[2]\n return %2\n}\n");
  };
  CHECK_EQ(verify(*fresh()), "");
  auto swapped = fresh();
  swapped->nodes.splice(swapped->nodes.begin(), swapped->nodes, std::next(swapped->nodes.begin()));
  CHECK(verify(*swapped).find("before its definition") != std::string::npos);
  auto users = fresh();
  users->inputs[0]->users.clear();
  CHECK(verify(*users).find("user list") != std::string::npos);
  auto kinds = fresh();
  kinds->nodes.front()->arguments[0] = std::string("text");
  CHECK(verify(*kinds).find("does not fit Tensor") != std::string::npos);
  auto indices = fresh();
  indices->mutations.push_back({5, indices->outputs[0], true});
  CHECK(verify(*indices).find("mutation names no input") != std::string::npos);
}
