// Kernels of each kind against the loop program's own meaning.
#include <doctest/doctest.h>

#include "loop_programs.h"

using namespace braze;
using namespace braze::test;
using schedule::NestKind;

namespace {

int32_t cat(Loops& l, const std::vector<int32_t>& parts, size_t axis) {
  Shape sizes = l.buffer(parts[0]).sizes;
  sizes[axis] = 0;
  for (int32_t p : parts) sizes[axis] = sizes[axis] + l.buffer(p).sizes[axis];
  Buffer& b = l.add(BufferKind::Cat, DType::F32, sizes);
  const int32_t id = b.id;
  b.cat_axis = static_cast<int32_t>(axis);
  const auto at = Loops::symbols(b.axes);
  Expr begin = 0;
  std::vector<loop::Piece> pieces;
  for (int32_t p : parts) {
    auto own = at;
    own[axis] = at[axis] - begin;
    pieces.push_back({begin, l.buffer(p).sizes[axis], l.load(p, own)});
    begin = begin + l.buffer(p).sizes[axis];
  }
  l.buffer(id).pieces = std::move(pieces);
  return id;
}

int32_t relu(Loops& l, int32_t x) {
  return l.pointwise(DType::F32, l.buffer(x).sizes, [&](auto& at) {
    const Scalar* v = l.load(x, at);
    return l.op(ScalarOp::Maximum, v, l.num(v, 0));
  });
}

}  // namespace

TEST_CASE("what follows a cat is computed piece by piece") {
  for (size_t axis : {size_t{0}, size_t{1}, size_t{2}}) {
    Loops l;
    Shape a{4, 5, 6}, b{4, 5, 6};
    a[axis] = 7;
    const int32_t x = l.input(DType::F32, a), y = l.input(DType::F32, b);
    const int32_t joined = cat(l, {x, y}, axis);
    l.output(relu(l, joined));
    Check check{l};
    CHECK(check.run() == "");
    CHECK(check.launches() == 1);
    CHECK(check.program.arena_bytes == Expr(0));
  }
}

TEST_CASE("a long cat along the first axis is one launch per piece") {
  Loops l;
  const int32_t x = l.input(DType::F32, {300, 128}), y = l.input(DType::F32, {200, 128});
  l.output(cat(l, {x, y}, 0));
  Check check{l};
  CHECK(check.run() == "");
  CHECK(check.launches() == 2);
}

TEST_CASE("rotary embedding: halves swapped by a cat, then combined with the whole") {
  Loops l;
  const int32_t q = l.input(DType::F32, {2, 3, 8, 16}), c = l.input(DType::F32, {8, 16}), s = l.input(DType::F32, {8, 16});
  const Shape half{2, 3, 8, 8};
  const int32_t high = l.pointwise(DType::F32, half, [&](auto& at) {
    return l.op(ScalarOp::Neg, l.load(q, {at[0], at[1], at[2], at[3] + 8}));
  });
  const int32_t low = l.pointwise(DType::F32, half, [&](auto& at) { return l.load(q, at); });
  const int32_t turned = cat(l, {high, low}, 3);
  l.output(l.pointwise(DType::F32, {2, 3, 8, 16}, [&](auto& at) {
    const Scalar* a = l.op(ScalarOp::Mul, l.load(q, at), l.load(c, {at[2], at[3]}));
    const Scalar* b = l.op(ScalarOp::Mul, l.load(turned, at), l.load(s, {at[2], at[3]}));
    return l.op(ScalarOp::Add, a, b);
  }));
  Check check{l};
  CHECK(check.run() == "");
  CHECK(check.launches() == 1);
  CHECK(check.kernel(0).kind == NestKind::Cat);
}

TEST_CASE("running sums along either axis") {
  for (int32_t axis : {0, 1}) {
    for (bool exclusive : {false, true}) {
      Loops l;
      const int32_t x = l.input(DType::F32, {9, 33});
      Buffer& b = l.add(BufferKind::Scan, DType::F32, {9, 33});
      const int32_t id = b.id;
      b.scan_axis = axis;
      b.exclusive = exclusive;
      const Scalar* body = l.load(x, Loops::symbols(b.axes));
      l.buffer(id).body = l.op(ScalarOp::Mul, body, l.num(body, 0.5));
      l.output(id);
      Check check{l};
      CHECK(check.run() == "");
      CHECK(check.kernel(0).kind == NestKind::Scan);
    }
  }
}

TEST_CASE("index_add: rows of one index never run at the same time") {
  Loops l;
  const int32_t x = l.input(DType::F32, {4, 70}), at = l.input(DType::I64, {11}), y = l.input(DType::F32, {11, 70});
  Buffer& b = l.add(BufferKind::Scatter, DType::F32, {4, 70});
  const int32_t id = b.id;
  const auto own = Loops::symbols(b.axes);
  const auto update_axes = l.axes({11, 70}, "u");
  const auto u = Loops::symbols(update_axes);
  const Binding place = l.make().bind(l.context(), l.load(at, {u[0]}), 4);
  const Scalar *body = l.load(x, own), *update = l.load(y, u);
  Buffer& made = l.buffer(id);
  made.body = body;
  made.update_axes = update_axes;
  made.update = update;
  made.update_at = {place.symbol, u[1]};
  made.update_bindings = {place};
  made.accumulate_updates = true;
  l.output(id);
  Check check{l};
  CHECK(check.run() == "");
  CHECK(check.launches() == 2);
}

TEST_CASE("embedding, position and layer statistics are one kernel with a scratch row") {
  Loops l;
  const int32_t ids = l.input(DType::I64, {3, 5}), table = l.input(DType::F32, {4, 24}), position = l.input(DType::F32, {5, 24});
  const int32_t h = l.pointwise(DType::F32, {3, 5, 24}, [&](auto& at) {
    const Binding row = l.make().bind(l.context(), l.load(ids, {at[0], at[1]}), 4);
    const Scalar* e = l.make().load(table, DType::F32, {row.symbol, at[2]}, {row});
    return l.op(ScalarOp::Add, e, l.load(position, {at[1], at[2]}));
  });
  const int32_t sum = l.reduction(ReduceOp::Sum, DType::F32, {3, 5, 1}, {24}, [&](auto& at) { return l.load(h, {at[0], at[1], at[3]}); });
  l.output(l.pointwise(DType::F32, {3, 5, 24}, [&](auto& at) { return l.op(ScalarOp::Sub, l.load(h, at), l.load(sum, {at[0], at[1], 0})); }));
  Check check{l};
  CHECK(check.run() == "");
  CHECK(check.launches() == 1);
  CHECK(check.kernel(0).stages.size() == 2);
}

TEST_CASE("max pooling is written out and fused with what follows") {
  Loops l;
  const int32_t x = l.input(DType::F32, {2, 3, 9, 11});
  const int32_t pooled = l.reduction(ReduceOp::Max, DType::F32, {2, 3, 4, 5}, {3, 3}, [&](auto& at) {
    return l.load(x, {at[0], at[1], at[2] * 2 + at[4], at[3] * 2 + at[5]});
  });
  l.output(relu(l, pooled));
  const int32_t where = l.reduction(ReduceOp::ArgMax, DType::I64, {2, 3, 4, 5}, {3, 3}, [&](auto& at) {
    return l.load(x, {at[0], at[1], at[2] * 2 + at[4], at[3] * 2 + at[5]});
  });
  l.output(where);
  Check check{l};
  CHECK(check.run() == "");
  CHECK(check.launches() == 1);
}

TEST_CASE("a mean of everything is cut into partial sums") {
  for (int64_t n : {8192, 8191}) {
    Loops l;
    const int32_t x = l.input(DType::F32, {n, 32});
    l.output(l.reduction(ReduceOp::Sum, DType::F32, {}, {n, 32}, [&](auto& at) { return l.load(x, at); }));
    Check check{l};
    CHECK(check.run() == "");
    CHECK(check.launches() == 2);
  }
}

TEST_CASE("a sum over many rows is cut, and its result goes on into what follows") {
  Loops l;
  const int32_t x = l.input(DType::F32, {1024, 256});
  const int32_t sum = l.reduction(ReduceOp::Sum, DType::F32, {256}, {1024}, [&](auto& at) { return l.load(x, {at[1], at[0]}); });
  l.output(relu(l, sum));
  Check check{l};
  CHECK(check.run(1e-4) == "");
  CHECK(check.launches() == 2);
  CHECK(check.kernel(0).kind == NestKind::ColumnReduce);
}

TEST_CASE("argmax rows") {
  Loops l;
  const int32_t x = l.input(DType::F32, {20, 37});
  l.output(l.reduction(ReduceOp::ArgMax, DType::I64, {20}, {37}, [&](auto& at) { return l.load(x, at); }));
  Check check{l};
  CHECK(check.run() == "");
}

TEST_CASE("symbolic sizes: one kernel for all of them") {
  Loops l;
  const Expr s = l.program->env->new_size(8, "x.size(0)");
  const int32_t x = l.input(DType::F32, {s, 24});
  const int32_t sum = l.reduction(ReduceOp::Sum, DType::F32, {s, 1}, {24}, [&](auto& at) { return l.load(x, {at[0], at[2]}); });
  l.output(l.pointwise(DType::F32, {s, 24}, [&](auto& at) { return l.op(ScalarOp::Div, l.load(x, at), l.load(sum, {at[0], 0})); }));
  for (int64_t n : {2, 8, 31}) {
    Check check{l};
    check.value_of = [&](Expr) { return n; };
    CHECK(check.run(1e-4) == "");
    CHECK(check.launches() == 1);
  }
}

TEST_CASE("padded pooling of a normalised image: per-channel values stay out of the masks") {
  Loops l;
  const int32_t x = l.input(DType::F32, {2, 3, 9, 11}), var = l.input(DType::F32, {3});
  const int32_t h = l.pointwise(DType::F32, {2, 3, 9, 11}, [&](auto& at) {
    const Scalar* v = l.op(ScalarOp::Abs, l.load(var, {at[1]}));
    return l.op(ScalarOp::Mul, l.load(x, at), l.op(ScalarOp::Rsqrt, l.op(ScalarOp::Add, v, l.num(v, 1e-3))));
  });
  l.output(l.reduction(ReduceOp::Max, DType::F32, {2, 3, 5, 6}, {3, 3}, [&](auto& at) {
    const Expr row = at[2] * 2 + at[4] - 1, column = at[3] * 2 + at[5] - 1;
    const auto inside = [&](Expr e, int64_t n) {
      const Scalar* i = l.make().index(e);
      return l.make().apply(ScalarOp::BitAnd, DType::Bool, {l.make().apply(ScalarOp::Ge, DType::Bool, {i, l.num(i, 0)}),
                                                            l.make().apply(ScalarOp::Lt, DType::Bool, {i, l.num(i, static_cast<double>(n))})});
    };
    const Scalar* mask = l.make().apply(ScalarOp::BitAnd, DType::Bool, {inside(row, 9), inside(column, 11)});
    const Scalar* low = l.make().constant(DType::F32, -std::numeric_limits<double>::infinity());
    return l.make().load_masked(h, DType::F32, {at[0], at[1], row, column}, {}, mask, low);
  }));
  Check check{l};
  CHECK(check.run() == "");
  CHECK(check.launches() == 1);
  // One reciprocal root for all nine taps.
  const std::string text = schedule::print(check.kernel(0));
  CHECK(text.find("rsqrt") == text.rfind("rsqrt"));
}

TEST_CASE("padded pooling is cut at its border; the inside has no masks") {
  Loops l;
  const int32_t x = l.input(DType::F32, {2, 3, 9, 11});
  l.output(l.reduction(ReduceOp::Max, DType::F32, {2, 3, 5, 6}, {3, 3}, [&](auto& at) {
    const Expr row = at[2] * 2 + at[4] - 1, column = at[3] * 2 + at[5] - 1;
    const auto holds = [&](ScalarOp op, Expr e, int64_t n) {
      const Scalar* i = l.make().index(e);
      return l.make().apply(op, DType::Bool, {i, l.num(i, static_cast<double>(n))});
    };
    const auto both = [&](const Scalar* a, const Scalar* b) { return l.make().apply(ScalarOp::BitAnd, DType::Bool, {a, b}); };
    const Scalar* mask = both(both(holds(ScalarOp::Ge, row, 0), holds(ScalarOp::Lt, row, 9)),
                              both(holds(ScalarOp::Ge, column, 0), holds(ScalarOp::Lt, column, 11)));
    const Scalar* low = l.make().constant(DType::F32, -std::numeric_limits<double>::infinity());
    return l.make().load_masked(x, DType::F32, {at[0], at[1], row, column}, {}, mask, low);
  }));
  Check check{l};
  CHECK(check.run() == "");
  CHECK(check.launches() == 1);
  CHECK(check.kernel(0).stages.size() == 9);
  CHECK(schedule::print(check.kernel(0)).find(" if ") == std::string::npos);
}

TEST_CASE("rows of a table at consecutive positions are plain loads") {
  Loops l;
  const int32_t table = l.input(DType::F32, {40, 16}), x = l.input(DType::F32, {8, 16});
  const int32_t positions = l.pointwise(DType::I64, {8}, [&](auto& at) { return l.make().index(at[0] + 3); });
  l.output(l.pointwise(DType::F32, {8, 16}, [&](auto& at) {
    const Binding row = l.make().bind(l.context(), l.load(positions, {at[0]}), 40);
    return l.op(ScalarOp::Add, l.load(x, at), l.make().load(table, DType::F32, {row.symbol, at[1]}, {row}));
  }));
  Check check{l};
  CHECK(check.run() == "");
  CHECK(schedule::print(check.kernel(0)).find("g0") == std::string::npos);
}
