#include <doctest/doctest.h>

#include "loop_programs.h"

using namespace braze;
using namespace braze::test;
using schedule::Place;

namespace {

// An opaque call on one operand.
int32_t call(Loops& l, int32_t operand) {
  const Shape sizes = l.buffer(operand).sizes;
  Buffer& result = l.add(BufferKind::Extern, DType::F32, sizes);
  const int32_t id = result.id;
  result.call = static_cast<int32_t>(l.program->calls.size());
  loop::ExternCall made;
  made.operands.push_back({operand, sizes, l.buffer(operand).strides, 0});
  made.results.push_back(id);
  l.program->calls.push_back(std::move(made));
  return id;
}

int32_t exp_of(Loops& l, int32_t x) {
  return l.pointwise(DType::F32, l.buffer(x).sizes, [&](auto& at) { return l.op(ScalarOp::Exp, l.load(x, at)); });
}

schedule::Program scheduled(Loops& l, const schedule::ScheduleOptions& options = {}) {
  auto result = schedule::schedule(l.program, Check::default_target(), options);
  REQUIRE(result.ok());
  CHECK(schedule::verify(*result) == "");
  return std::move(result).value();
}

}  // namespace

TEST_CASE("operands of calls that follow each other share a place") {
  Loops l;
  int32_t x = l.input(DType::F32, {16, 16});
  std::vector<int32_t> made;
  for (int i = 0; i < 3; ++i) {
    made.push_back(exp_of(l, x));
    x = call(l, made.back());
  }
  l.output(x);
  const auto p = scheduled(l);
  CHECK(p.arena_bytes == Expr(1024));
  CHECK(p.buffers[static_cast<size_t>(x)].place == Place::Call);
}

TEST_CASE("buffers that live at the same time have places of their own") {
  Loops l;
  const int32_t x = l.input(DType::F32, {16, 16});
  const int32_t a = exp_of(l, x), c = l.pointwise(DType::F32, {16, 16}, [&](auto& at) { return l.op(ScalarOp::Sin, l.load(x, at)); });
  l.output(call(l, a));
  l.output(call(l, c));
  // Read in another order, so that the result can't take the place of either.
  l.output(l.pointwise(DType::F32, {16, 16}, [&](auto& at) {
    return l.op(ScalarOp::Add, l.load(a, {at[1], at[0]}), l.load(c, {at[1], at[0]}));
  }));
  const auto p = scheduled(l);
  CHECK(p.arena_bytes == Expr(2048));
}

TEST_CASE("symbolic sizes that are the same expression share a place") {
  Loops l;
  const Expr s = l.program->env->new_size(8, "x.size(0)");
  int32_t x = l.input(DType::F32, {s, 16});
  for (int i = 0; i < 3; ++i) x = call(l, exp_of(l, x));
  l.output(x);
  const auto p = scheduled(l);
  CHECK(sym::evaluate(p.arena_bytes, [](Expr) { return int64_t{8}; }) == 512);
}

TEST_CASE("a result is written over an operand that dies, not over one that lives or is an input") {
  Loops l;
  const int32_t x = l.input(DType::F32, {16, 16});
  const int32_t a = exp_of(l, x), b = call(l, a);
  const int32_t sum = l.pointwise(DType::F32, {16, 16}, [&](auto& at) { return l.op(ScalarOp::Add, l.load(b, at), l.load(x, at)); });
  l.output(call(l, sum));
  const auto p = scheduled(l);
  const auto& plan = p.buffers[static_cast<size_t>(sum)];
  CHECK(plan.place == Place::Alias);
  CHECK(plan.alias_of == b);
  // The call's result now lives as long as what stands in its memory.
  CHECK(p.buffers[static_cast<size_t>(b)].last_step == plan.last_step);
}

TEST_CASE("a result is written over an operand of another shape whose elements lie at the same places") {
  Loops l;
  const int32_t b = call(l, exp_of(l, l.input(DType::F32, {16, 16})));
  const int32_t rows = l.pointwise(DType::F32, {2, 8, 16}, [&](auto& at) {
    return l.op(ScalarOp::Exp, l.load(b, {at[0] * 8 + at[1], at[2]}));
  });
  l.output(call(l, rows));
  const auto p = scheduled(l);
  CHECK(p.buffers[static_cast<size_t>(rows)].alias_of == b);
}

TEST_CASE("where memory is freed early, what frees more than it takes goes first") {
  Loops l;
  const int32_t x = l.input(DType::F32, {16, 16});
  const int32_t large = exp_of(l, x), small = call(l, l.input(DType::F32, {4, 16}));
  const int32_t taking = call(l, small);                    // 256 bytes more, and nothing is freed
  const int32_t freeing = call(l, large);
  l.program->calls.back().operands.push_back({small, {4, 16}, {16, 1}, 0});
  l.buffer(freeing).sizes = {4, 16};
  l.output(taking);
  l.output(freeing);
  const auto first_call = [&](const schedule::ScheduleOptions& options) {
    const auto p = scheduled(l, options);
    std::vector<int32_t> calls;
    for (const schedule::Step& step : p.steps)
      if (const auto* c = std::get_if<schedule::CallStep>(&step)) calls.push_back(c->call);
    return calls;
  };
  CHECK(first_call({}) == std::vector<int32_t>{0, 1, 2});
  CHECK(first_call({.block_bytes = 1}) == std::vector<int32_t>{0, 2, 1});
}

TEST_CASE("a transposed reader does not work in place") {
  Loops l;
  const int32_t x = l.input(DType::F32, {16, 16});
  const int32_t b = call(l, exp_of(l, x));
  const int32_t t = l.pointwise(DType::F32, {16, 16}, [&](auto& at) { return l.op(ScalarOp::Exp, l.load(b, {at[1], at[0]})); });
  l.output(call(l, t));
  const auto p = scheduled(l);
  CHECK(p.buffers[static_cast<size_t>(t)].place == Place::Arena);
}
