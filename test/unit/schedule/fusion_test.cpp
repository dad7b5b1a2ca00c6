#include <doctest/doctest.h>

#include "loop_programs.h"

using namespace braze;
using namespace braze::test;
using schedule::AxisRole;
using schedule::NestKind;

namespace {

// exp(x - max) / sum over the last axis.
int32_t softmax(Loops& l, int32_t x) {
  const Shape sizes = l.buffer(x).sizes;
  Shape rows(sizes.begin(), sizes.end() - 1);
  rows.push_back(1);
  const auto in_row = [](std::vector<Expr> at) {
    const Expr last = at.back();
    at.pop_back();
    at.back() = last;
    return at;
  };
  const auto row = [](std::vector<Expr> at) {
    at.back() = 0;
    return at;
  };
  const int32_t m = l.reduction(ReduceOp::Max, DType::F32, rows, {sizes.back()}, [&](auto& at) { return l.load(x, in_row(at)); });
  const int32_t e = l.pointwise(DType::F32, sizes, [&](auto& at) {
    return l.op(ScalarOp::Exp, l.op(ScalarOp::Sub, l.load(x, at), l.load(m, row(at))));
  });
  const int32_t s = l.reduction(ReduceOp::Sum, DType::F32, rows, {sizes.back()}, [&](auto& at) { return l.load(e, in_row(at)); });
  return l.pointwise(DType::F32, sizes, [&](auto& at) { return l.op(ScalarOp::Div, l.load(e, at), l.load(s, row(at))); });
}

// (x - mean) / sqrt(var + eps) * w + b over the last axis, two passes.
int32_t layer_norm(Loops& l, int32_t x, int32_t w, int32_t b) {
  const Shape sizes = l.buffer(x).sizes;
  Shape rows(sizes.begin(), sizes.end() - 1);
  rows.push_back(1);
  const double n = static_cast<double>(l.program->env->hint(sizes.back()));
  const auto in_row = [](std::vector<Expr> at) {
    const Expr last = at.back();
    at.pop_back();
    at.back() = last;
    return at;
  };
  const auto row = [](std::vector<Expr> at) {
    at.back() = 0;
    return at;
  };
  const int32_t sum = l.reduction(ReduceOp::Sum, DType::F32, rows, {sizes.back()}, [&](auto& at) { return l.load(x, in_row(at)); });
  const int32_t mean = l.pointwise(DType::F32, rows, [&](auto& at) {
    const Scalar* s = l.load(sum, at);
    return l.op(ScalarOp::Div, s, l.num(s, n));
  });
  const int32_t centred = l.pointwise(DType::F32, sizes, [&](auto& at) { return l.op(ScalarOp::Sub, l.load(x, at), l.load(mean, row(at))); });
  const int32_t squares = l.reduction(ReduceOp::Sum, DType::F32, rows, {sizes.back()}, [&](auto& at) {
    const Scalar* c = l.load(centred, in_row(at));
    return l.op(ScalarOp::Mul, c, c);
  });
  const int32_t scale = l.pointwise(DType::F32, rows, [&](auto& at) {
    const Scalar* s = l.load(squares, at);
    return l.op(ScalarOp::Rsqrt, l.op(ScalarOp::Add, l.op(ScalarOp::Div, s, l.num(s, n)), l.num(s, 1e-5)));
  });
  return l.pointwise(DType::F32, sizes, [&](auto& at) {
    const Scalar* y = l.op(ScalarOp::Mul, l.load(centred, at), l.load(scale, row(at)));
    return l.op(ScalarOp::Add, l.op(ScalarOp::Mul, y, l.load(w, {at.back()})), l.load(b, {at.back()}));
  });
}

int32_t unary(Loops& l, ScalarOp op, int32_t x) {
  return l.pointwise(l.buffer(x).dtype, l.buffer(x).sizes, [&](auto& at) { return l.op(op, l.load(x, at)); });
}
int32_t binary(Loops& l, ScalarOp op, int32_t x, int32_t y) {
  return l.pointwise(l.buffer(x).dtype, l.buffer(x).sizes, [&](auto& at) { return l.op(op, l.load(x, at), l.load(y, at)); });
}

}  // namespace

TEST_CASE("a chain of pointwise ops is one flat kernel over merged axes") {
  Loops l;
  const int32_t x = l.input(DType::F32, {6, 5, 4});
  l.output(unary(l, ScalarOp::Tanh, unary(l, ScalarOp::Exp, unary(l, ScalarOp::Neg, x))));
  Check check{l};
  CHECK(check.run() == "");
  CHECK(check.launches() == 1);
  const auto& k = check.kernel(0);
  CHECK(k.kind == NestKind::Flat);
  REQUIRE(k.parallel.size() == 1);
  CHECK(k.parallel[0].role == AxisRole::Vector);
  CHECK(check.program.arena_bytes == Expr(0));
}

TEST_CASE("softmax over the last axis is one kernel with an exp row in scratch") {
  Loops l;
  const int32_t x = l.input(DType::F32, {7, 3, 20});
  l.output(softmax(l, x));
  Check check{l};
  CHECK(check.run() == "");
  CHECK(check.launches() == 1);
  const auto& k = check.kernel(0);
  CHECK(k.kind == NestKind::RowStages);
  CHECK(k.stages.size() == 3);
  CHECK(k.scratch.size() == 1);
  CHECK(k.parallel.size() == 1);
  CHECK(k.stages[1].loops.back().role == AxisRole::Vector);
  CHECK(check.program.arena_bytes == Expr(0));
}

TEST_CASE("residual, layer norm and the residual's own output are one kernel") {
  Loops l;
  const int32_t x = l.input(DType::F32, {4, 3, 24}), y = l.input(DType::F32, {4, 3, 24});
  const int32_t w = l.input(DType::F32, {24}), b = l.input(DType::F32, {24});
  const int32_t h = binary(l, ScalarOp::Add, x, y);
  l.output(layer_norm(l, h, w, b));
  l.output(h);
  Check check{l};
  CHECK(check.run() == "");
  CHECK(check.launches() == 1);
  CHECK(check.kernel(0).stages.size() == 3);
}

TEST_CASE("equal layers share one kernel") {
  Loops l;
  int32_t x = l.input(DType::F32, {4, 3, 24});
  const int32_t w = l.input(DType::F32, {24}), b = l.input(DType::F32, {24});
  for (int layer = 0; layer < 4; ++layer) {
    x = layer_norm(l, x, w, b);
    l.output(x);
  }
  Check check{l};
  CHECK(check.run(1e-4) == "");
  CHECK(check.launches() <= 4);
  CHECK(check.program.kernels.size() <= 1);
}

TEST_CASE("a reduction over the first axis has its vectors along the last") {
  Loops l;
  const int32_t x = l.input(DType::F32, {30, 70});
  l.output(l.reduction(ReduceOp::Sum, DType::F32, {70}, {30}, [&](auto& at) {
    const Scalar* v = l.load(x, {at[1], at[0]});
    return l.op(ScalarOp::Add, l.op(ScalarOp::Mul, v, l.num(v, 2)), l.num(v, 1));
  }));
  Check check{l};
  CHECK(check.run() == "");
  CHECK(check.launches() == 1);
  CHECK(check.kernel(0).kind == NestKind::ColumnReduce);
}

TEST_CASE("softmax over a middle axis keeps its vectors along the last") {
  Loops l;
  const int32_t x = l.input(DType::F32, {3, 5, 40});
  const auto row = [](const std::vector<Expr>& at) { return std::vector<Expr>{at[0], 0, at[2]}; };
  const auto in_row = [](const std::vector<Expr>& at) { return std::vector<Expr>{at[0], at[3], at[2]}; };
  const int32_t m = l.reduction(ReduceOp::Max, DType::F32, {3, 1, 40}, {5}, [&](auto& at) { return l.load(x, in_row(at)); });
  const int32_t e = l.pointwise(DType::F32, {3, 5, 40}, [&](auto& at) {
    return l.op(ScalarOp::Exp, l.op(ScalarOp::Sub, l.load(x, at), l.load(m, row(at))));
  });
  const int32_t s = l.reduction(ReduceOp::Sum, DType::F32, {3, 1, 40}, {5}, [&](auto& at) { return l.load(e, in_row(at)); });
  l.output(l.pointwise(DType::F32, {3, 5, 40}, [&](auto& at) { return l.op(ScalarOp::Div, l.load(e, at), l.load(s, row(at))); }));
  Check check{l};
  CHECK(check.run() == "");
  CHECK(check.launches() == 1);
  CHECK(check.kernel(0).kind == NestKind::ColumnReduce);
}

TEST_CASE("a transposed operand is read in tiles") {
  Loops l;
  const int32_t x = l.input(DType::F32, {40, 50}), y = l.input(DType::F32, {50, 40});
  l.output(l.pointwise(DType::F32, {50, 40}, [&](auto& at) { return l.op(ScalarOp::Add, l.load(x, {at[1], at[0]}), l.load(y, at)); }));
  Check check{l};
  CHECK(check.run() == "");
  CHECK(check.kernel(0).kind == NestKind::Tile2D);
}

TEST_CASE("group norm splits the channel axis of the element-wise part") {
  Loops l;
  const Shape sizes{2, 6, 15};
  const int32_t x = l.input(DType::F32, sizes);
  // 3 groups of 2 channels: statistics over [2 * 3, 30].
  const int32_t s = l.reduction(ReduceOp::Sum, DType::F32, {2, 3}, {30}, [&](auto& at) {
    return l.load(x, {at[0], at[1] * 2 + sym::floor_div(at[2], 15), sym::mod(at[2], 15)});
  });
  l.output(l.pointwise(DType::F32, sizes, [&](auto& at) {
    return l.op(ScalarOp::Sub, l.load(x, at), l.load(s, {at[0], sym::floor_div(at[1], 2)}));
  }));
  Check check{l};
  CHECK(check.run() == "");
  CHECK(check.launches() == 1);
}

TEST_CASE("a producer that a call also needs is stored by the kernel that fuses it") {
  // b -> call -> c, and b -> c: b and c can't be one kernel.
  Loops l;
  const int32_t x = l.input(DType::F32, {8, 16});
  const int32_t a = unary(l, ScalarOp::Exp, x);
  Buffer& result = l.add(BufferKind::Extern, DType::F32, {8, 16});
  const int32_t r = result.id;
  result.call = 0;
  loop::ExternCall call;
  call.operands.push_back({a, {8, 16}, {16, 1}, 0});
  call.results.push_back(r);
  l.program->calls.push_back(call);
  l.output(binary(l, ScalarOp::Add, a, r));
  const auto target = Check::default_target();
  auto program = schedule::schedule(l.program, target);
  REQUIRE(program.ok());
  CHECK(schedule::verify(*program) == "");
  CHECK(program->steps.size() == 3);
}
