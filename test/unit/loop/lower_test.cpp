#include "programs.h"

#include <cmath>

namespace braze::loop {

TEST_CASE("views cost nothing") {
  const Lowered l = lowered(R"(
graph @main(%x: f32[2, 3, 4]) {
  %0 = aten.permute(%x, [2, 0, 1]) : f32[4, 2, 3]{1, 12, 4}
  %1 = aten.slice.Tensor(%0, 0, 1, 4, 2) : f32[2, 2, 3]{2, 12, 4} offset 1
  %2 = aten.select.int(%1, 1, -1) : f32[2, 3]{2, 4} offset 13
  %3 = aten.unsqueeze(%2, 1) : f32[2, 1, 3]{2, 6, 4} offset 13
  %4 = aten.expand(%3, [2, 5, 3]) : f32[2, 5, 3]{2, 0, 4} offset 13
  %5 = aten.neg(%4) : f32[2, 5, 3]
  return %5
}
)");
  CHECK(l.computed() == 1);
  const auto out = values(run(l, {counting(DType::F32, {2, 3, 4})}).outputs[0]);
  for (int a = 0; a < 2; ++a)
    for (int b = 0; b < 5; ++b)
      for (int c = 0; c < 3; ++c)
        CHECK(out[static_cast<size_t>((a * 5 + b) * 3 + c)] == -(12 + c * 4 + 1 + 2 * a));
}

TEST_CASE("reshapes split and merge dimensions, with symbolic sizes too") {
  const Lowered l = lowered(R"(
sym s0 in [2, inf] = 3
graph @main(%x: f32[s0, 6, 8]) {
  %0 = aten.view(%x, [s0, 6, 2, 4]) : f32[s0, 6, 2, 4]
  %1 = aten.transpose.int(%0, 1, 2) : f32[s0, 2, 6, 4]{48, 4, 8, 1}
  %2 = aten.clone(%1, memory_format=contiguous_format) : f32[s0, 2, 6, 4]
  %3 = aten._unsafe_view(%2, [s0*2, 6, 4]) : f32[s0*2, 6, 4]
  %4 = aten.view(%3, [s0, 2, 6, 4]) : f32[s0, 2, 6, 4]
  %5 = aten.sum.dim_IntList(%4, [2, 3]) : f32[s0, 2]
  return %5
}
)");
  for (const int64_t n : {2, 5}) {
    const auto out = values(run(l, {counting(DType::F32, {n, 6, 8})}, {n}).outputs[0]);
    for (int64_t b = 0; b < n; ++b)
      for (int64_t h = 0; h < 2; ++h) {
        double sum = 0;
        for (int64_t t = 0; t < 6; ++t)
          for (int64_t d = 0; d < 4; ++d) sum += static_cast<double>((b * 6 + t) * 8 + h * 4 + d);
        CHECK(out[static_cast<size_t>(b * 2 + h)] == sum);
      }
  }
  bool divides = false;   // the second view undoes the first: no division is left
  visit(l.last().body, [&](const Scalar& s) {
    for (const Expr& e : s.indices) divides = divides || to_string(e).find("//") != std::string::npos;
  });
  CHECK(!divides);
}

TEST_CASE("calls get strided views where the traced strides say so, copies elsewhere") {
  const Lowered l = lowered(R"(
graph @main(%x: f32[4, 6], %w: f32[6, 4]) {
  %0 = aten.relu(%x) : f32[4, 6]
  %1 = aten.t(%0) : f32[6, 4]{1, 6}
  %2 = aten.mm(%0, %1) : f32[4, 4]
  %3 = aten.view(%1, [24]) : f32[24]
  %4, %5 = aten.sort(%3) : f32[24], i64[24]
  return %2, %4
}
)");
  REQUIRE(l.program.calls.size() == 2);
  const ExternCall& mm = l.program.calls[0];
  CHECK(mm.operands[0] == View{2, {4, 6}, {6, 1}, 0});
  CHECK(mm.operands[1] == View{2, {6, 4}, {1, 6}, 0});
  CHECK(!l.program.buffers[2].flexible);
  const Buffer& copy = l.program.buffers[static_cast<size_t>(l.program.calls[1].operands[0].buffer)];
  CHECK(copy.kind == BufferKind::Pointwise);
  CHECK(copy.sizes == Shape{24});
  CHECK(l.program.calls[1].results[1] == -1);
}

TEST_CASE("outputs own their memory unless the graph says that they share it") {
  const Lowered l = lowered(R"(
graph @main(%x: f32[4], %y: f32[4]) {
  %0 = aten.neg(%x) : f32[4]
  return %0, %0, %x, %y mutates(%y = %0) aliases(3 = %y)
}
)");
  const auto kind = [&](size_t k) {
    return l.program.buffers[static_cast<size_t>(l.program.outputs[k].view.buffer)].kind;
  };
  CHECK(l.program.outputs[0].view.buffer != l.program.outputs[1].view.buffer);
  CHECK(kind(2) == BufferKind::Pointwise);
  CHECK(l.program.outputs[3].view.buffer == -1);
  REQUIRE(l.program.mutations.size() == 1);
  CHECK(l.program.mutations[0].input_buffer == 1);
  const Evaluation out = run(l, {tensor(DType::F32, {4}, {1, 2, 3, 4}), tensor(DType::F32, {4}, {0, 0, 0, 0})});
  CHECK(values(out.outputs[1]) == Values{-1, -2, -3, -4});
  CHECK(values(out.outputs[2]) == Values{1, 2, 3, 4});
  CHECK(values(out.mutations[0]) == Values{-1, -2, -3, -4});
}

TEST_CASE("swapped inputs are copied before they are written back") {
  const Lowered l = lowered(R"(
graph @main(%x: f32[2], %y: f32[2]) {
  return mutates(%x = %y, %y = %x)
}
)");
  for (const auto& mutation : l.program.mutations)
    CHECK(l.program.buffers[static_cast<size_t>(mutation.value.buffer)].kind == BufferKind::Pointwise);
}

TEST_CASE("16-bit floats are rounded where eager rounds") {
  const Lowered l = lowered(R"(
graph @main(%x: bf16[1], %y: bf16[1]) {
  %0 = aten.mul.Tensor(%x, %y) : bf16[1]
  %1 = aten.add.Tensor(%0, %x) : bf16[1]
  %2 = aten.silu(%x) : bf16[1]
  %3 = aten.mul.Tensor(%x, 0.1) : bf16[1]
  return %1, %2, %3
}
)");
  const double x = 1.0078125, y = 1.0234375;   // bf16 values
  const Evaluation out = run(l, {tensor(DType::BF16, {1}, {x}), tensor(DType::BF16, {1}, {y})});
  const double product = number_of(DType::BF16, x * y).real;
  CHECK(values(out.outputs[0])[0] == number_of(DType::BF16, product + x).real);
  const float f = static_cast<float>(x);
  CHECK(values(out.outputs[1])[0] == number_of(DType::BF16, f / (1.0f + std::exp(-f))).real);
  CHECK(values(out.outputs[2])[0] == number_of(DType::BF16, f * 0.1f).real);   // 0.1 is not rounded to bf16
}

TEST_CASE("mixed operands are computed in the common type") {
  const Lowered l = lowered(R"(
graph @main(%n: i64[3], %x: f32[3], %h: bf16[3], %z: f64[]) {
  %0 = aten.add.Tensor(%n, %h) : bf16[3]
  %1 = aten.lt.Tensor(%n, 2.5) : b8[3]
  %2 = aten.mul.Tensor(%x, %z) : f32[3]
  %3 = aten.div.Tensor(%n, 2) : f32[3]
  %4 = aten.div.Tensor_mode(%n, 2, rounding_mode="floor") : i64[3]
  %5 = aten.remainder.Scalar(%n, -2) : i64[3]
  return %0, %1, %2, %3, %4, %5
}
)");
  const Evaluation out = run(l, {tensor(DType::I64, {3}, {-3, 2, 257}), tensor(DType::F32, {3}, {1, 2, 3}),
                                 tensor(DType::BF16, {3}, {1, 1, 1}), tensor(DType::F64, {}, {0.1})});
  CHECK(values(out.outputs[0]) == Values{-2, 3, 256});   // 257 is no bf16: 256 + 1, to even
  CHECK(values(out.outputs[1]) == Values{1, 1, 0});
  CHECK(values(out.outputs[2])[2] == static_cast<double>(3.0f * 0.1f));
  CHECK(values(out.outputs[3]) == Values{-1.5, 1, 128.5});
  CHECK(values(out.outputs[4]) == Values{-2, 1, 128});
  CHECK(values(out.outputs[5]) == Values{-1, 0, -1});
}

TEST_CASE("reductions keep NaN and give first places") {
  const Lowered l = lowered(R"(
graph @main(%x: f32[2, 3]) {
  %0, %1 = aten.max.dim(%x, 1) : f32[2], i64[2]
  %2 = aten.amin(%x, [], true) : f32[1, 1]
  %3 = aten.mean.dim(%x, [0]) : f32[3]
  %4 = aten.argmax(%x) : i64[]
  %5 = aten.any.dim(%x, 1, true) : b8[2, 1]
  return %0, %1, %2, %3, %4, %5
}
)");
  const double nan = std::nan("");
  const Evaluation out = run(l, {tensor(DType::F32, {2, 3}, {1, 5, 5, 0, nan, 7})});
  CHECK(values(out.outputs[0])[0] == 5);
  CHECK(std::isnan(values(out.outputs[0])[1]));
  CHECK(values(out.outputs[1]) == Values{1, 1});
  CHECK(out.outputs[2].sizes == std::vector<int64_t>{1, 1});
  CHECK(std::isnan(values(out.outputs[2])[0]));
  CHECK(values(out.outputs[3])[0] == 0.5);
  CHECK(values(out.outputs[4]) == Values{4});
  CHECK(values(out.outputs[5]) == Values{1, 1});
}

TEST_CASE("computed indices wrap as the op does, and are checked") {
  const Lowered l = lowered(R"(
graph @main(%x: f32[4, 2], %i: i64[3]) {
  %0 = aten.index.Tensor(%x, [%i]) : f32[3, 2]
  return %0
}
)");
  const HostTensor x = counting(DType::F32, {4, 2});
  CHECK(values(run(l, {x, tensor(DType::I64, {3}, {-1, 0, 2})}).outputs[0]) == Values{6, 7, 0, 1, 4, 5});
  CHECK_THROWS_AS(run(l, {x, tensor(DType::I64, {3}, {4, 0, 0})}), std::out_of_range);
  CHECK_THROWS_AS(run(l, {x, tensor(DType::I64, {3}, {-5, 0, 0})}), std::out_of_range);
}

TEST_CASE("padding reads nothing outside") {
  const Lowered l = lowered(R"(
graph @main(%x: f32[2, 2]) {
  %0 = aten.constant_pad_nd(%x, [1, -1, 0, 1], 9.0) : f32[3, 2]
  return %0
}
)");
  CHECK(values(run(l, {counting(DType::F32, {2, 2})}).outputs[0]) == Values{9, 0, 9, 2, 9, 9});
}

TEST_CASE("pieces, scans and scatters") {
  const Lowered l = lowered(R"(
graph @main(%x: f32[2, 3], %i: i64[2]) {
  %0 = aten.neg(%x) : f32[2, 3]
  %1 = aten.cat([%x, %0], 1) : f32[2, 6]
  %2 = aten.cumsum(%1, 1) : f32[2, 6]
  %3 = aten.index_add(%x, 0, %i, %0) : f32[2, 3]
  return %1, %2, %3
}
)");
  const Evaluation out = run(l, {counting(DType::F32, {2, 3}), tensor(DType::I64, {2}, {1, 1})});
  CHECK(values(out.outputs[0]) == Values{0, 1, 2, 0, -1, -2, 3, 4, 5, -3, -4, -5});
  CHECK(values(out.outputs[1]) == Values{0, 1, 3, 3, 2, 0, 3, 7, 12, 9, 5, 0});
  CHECK(values(out.outputs[2]) == Values{0, 1, 2, 3 - 0 - 3, 4 - 1 - 4, 5 - 2 - 5});
}

TEST_CASE("as_strided of a base over the storage") {
  const Lowered l = lowered(R"(
graph @main(%x: f32[12]) {
  %0 = aten.as_strided(%x, [2, 3], [1, 4], 2) : f32[2, 3]{1, 4} offset 2
  %1 = aten.neg(%0) : f32[2, 3]{1, 2}
  return %1
}
)");
  CHECK(l.computed() == 1);
  CHECK(values(run(l, {counting(DType::F32, {12})}).outputs[0]) == Values{-2, -6, -10, -3, -7, -11});
}

TEST_CASE("types without kernels and ops without rules are calls") {
  const Lowered l = lowered(R"(
graph @main(%x: c64[4], %y: f32[3, 3]) {
  %0 = aten.add.Tensor(%x, %x) : c64[4]
  %1 = aten.view(%0, [2, 2]) : c64[2, 2]
  %2 = aten.neg(%1) : c64[2, 2]
  return %2
}
)");
  REQUIRE(l.program.calls.size() == 2);
  CHECK(l.program.calls[1].operands[0].sizes == Shape{2, 2});
}

TEST_CASE("random nodes run in order") {
  const Lowered l = lowered(R"(
graph @main(%x: f32[4]) {
  %0 = aten.bernoulli(%x) : f32[4] !order
  %1 = aten.bernoulli(%x) : f32[4] !order
  %2 = aten.add.Tensor(%0, %1) : f32[4]
  return %2
}
)");
  REQUIRE(l.program.calls.size() == 2);
  CHECK(l.program.calls[1].order_after == std::vector<int32_t>{0});
}

}  // namespace braze::loop
