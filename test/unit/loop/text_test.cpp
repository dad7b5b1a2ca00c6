#include "programs.h"

namespace braze::loop {

TEST_CASE("programs read back as they print") {
  const Lowered l = lowered(R"(
sym s0 in [2, inf] = 4
graph @main(%x: f32[s0, 6], %w: bf16[10, 6], %i: i64[s0], %m: f32[6, 5]) {
  %0 = aten.embedding(%w, %i) : bf16[s0, 6]
  %1 = aten.add.Tensor(%0, %x) : f32[s0, 6]
  %2 = aten.constant_pad_nd(%1, [1, 1], -inf) : f32[s0, 8]
  %3 = aten.cat([%2, %x], 1) : f32[s0, 14]
  %4 = aten.cumsum(%3, 1) : f32[s0, 14]
  %5, %6 = aten.max.dim(%4, 1) : f32[s0], i64[s0]
  %7 = aten.addmm(%5, %x, %m, beta=0.5) : f32[s0, 5]
  %8 = aten.index_add(%x, 0, %i, %1) : f32[s0, 6]
  return %6, %7, %8 mutates(%x = %1)
}
)");
  const std::string text = print(l.program);
  const LoopProgram again = parse(text);
  CHECK(print(again) == text);
  CHECK(verify(again) == "");
}

TEST_CASE("text errors say where") {
  const auto message = [](const char* text) {
    try {
      parse(text);
    } catch (const graph::ParseError& problem) {
      return std::string(problem.what());
    }
    return std::string();
  };
  CHECK(message("program @main {\n  x : f32[4]@cpu = input 0\n  y : f32[4]@cpu = pointwise [i < 4] {\n"
                "    return nag.f32(load x[i])\n  }\n}\n").find("line 4") != std::string::npos);
  CHECK(message("program @main {\n  output z[4]\n}\n").find("line 2") != std::string::npos);
  CHECK(message("program @main {\n").find("too early") != std::string::npos);
}

TEST_CASE("the verifier finds what is wrong") {
  const auto problems = [](const char* body) {
    return verify(parse(std::string("program @main {\n  x : f32[4]@cpu = input 0\n") + body + "}\n"));
  };
  CHECK(problems("  y : f32[4]@cpu = pointwise [i < 4] {\n    return load x[i]\n  }\n") == "");
  CHECK(problems("  y : f64[4]@cpu = pointwise [i < 4] {\n    return load x[i]\n  }\n") != "");
  CHECK(problems("  y : f32[4]@cpu = pointwise [i < 5] {\n    return load x[i]\n  }\n") != "");
  CHECK(problems("  y : f32[4]@cpu = pointwise [i < 4] {\n    return load x[i, i]\n  }\n") != "");
  CHECK(problems("  y : f32[4]@cpu = pointwise [i < 4] {\n    return add.f32(load x[i], f64(1))\n  }\n") != "");
  CHECK(problems("  y : f32[8]@cpu = cat [i < 8] along 0 {\n  piece 0 size 4\n    return load x[i]\n  }\n") != "");
}

}  // namespace braze::loop
