#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "braze/loop/arithmetic.h"
#include "braze/loop/scalar.h"

namespace braze::loop {

TEST_CASE("equal scalars are one node") {
  sym::Context context;
  ScalarBuilder b;
  const Expr i = context.index("i", 8);
  const Scalar* x = b.load(0, DType::F32, {i});
  CHECK(x == b.load(0, DType::F32, {context.index("i", 8)}));
  CHECK(b.apply(ScalarOp::Add, DType::F32, {x, x}) == b.apply(ScalarOp::Add, DType::F32, {x, x}));
  CHECK(b.constant(DType::F32, 0.0) != b.constant(DType::F32, -0.0));
  CHECK(b.constant(DType::F32, 1.0) != b.constant(DType::F64, 1.0));
  CHECK(b.load(1, DType::F32, {i}) != x);
}

TEST_CASE("only exact identities are used") {
  sym::Context context;
  ScalarBuilder b;
  const Scalar* x = b.load(0, DType::F32, {context.index("i", 8)});
  const Scalar* n = b.load(1, DType::I64, {context.index("i", 8)});
  const auto real = [&](double v) { return b.constant(DType::F32, v); };
  const auto apply = [&](ScalarOp op, const Scalar* p, const Scalar* q) { return b.apply(op, p->dtype, {p, q}); };
  CHECK(apply(ScalarOp::Add, x, real(0.0)) != x);   // -0.0 + 0.0 is 0.0
  CHECK(apply(ScalarOp::Add, x, real(-0.0)) == x);
  CHECK(apply(ScalarOp::Sub, x, real(0.0)) == x);
  CHECK(apply(ScalarOp::Sub, x, real(-0.0)) != x);
  CHECK(apply(ScalarOp::Mul, real(1), x) == x);
  CHECK(apply(ScalarOp::Mul, x, real(0)) != real(0));   // nan, inf, -0.0
  CHECK(apply(ScalarOp::Div, x, real(1)) == x);
  CHECK(apply(ScalarOp::Add, n, b.constant_int(DType::I64, 0)) == n);
  CHECK(apply(ScalarOp::Mul, n, b.constant_int(DType::I64, 0)) == b.constant_int(DType::I64, 0));
  CHECK(b.apply(ScalarOp::Where, DType::F32, {b.constant_int(DType::Bool, 1), x, real(2)}) == x);
}

TEST_CASE("casts through a wider type vanish, through a narrower one they stay") {
  sym::Context context;
  ScalarBuilder b;
  const Scalar* x = b.load(0, DType::BF16, {context.index("i", 8)});
  CHECK(b.cast(b.cast(x, DType::F32), DType::BF16) == x);
  CHECK(b.cast(b.cast(x, DType::F32), DType::F64) == b.cast(x, DType::F64));
  const Scalar* y = b.load(1, DType::F32, {context.index("i", 8)});
  CHECK(b.cast(b.cast(y, DType::BF16), DType::F32) != y);
  CHECK(b.cast(b.cast(y, DType::F16), DType::BF16) != b.cast(y, DType::BF16));
  const Scalar* n = b.load(2, DType::I64, {context.index("i", 8)});
  CHECK(b.cast(b.cast(n, DType::F32), DType::I64) != n);
}

TEST_CASE("constants fold to the bits that a kernel gives") {
  ScalarBuilder b;
  const auto real = [&](DType dtype, double v) { return b.constant(dtype, v); };
  const auto whole = [&](DType dtype, int64_t v) { return b.constant_int(dtype, v); };
  const auto apply = [&](ScalarOp op, const Scalar* p, const Scalar* q) { return b.apply(op, p->dtype, {p, q}); };
  CHECK(apply(ScalarOp::Add, real(DType::BF16, 1.0), real(DType::BF16, 0x1p-9))->real == 1.0);   // half an ulp, to even
  const Scalar* product = apply(ScalarOp::Mul, real(DType::F32, 0.1), real(DType::F32, 3.0));
  CHECK(static_cast<float>(product->real) == 0.1f * 3.0f);
  CHECK(apply(ScalarOp::Add, whole(DType::I8, 127), whole(DType::I8, 1))->integer == -128);
  CHECK(apply(ScalarOp::FloorDiv, whole(DType::I64, 1), whole(DType::I64, 0))->op == ScalarOp::FloorDiv);
  CHECK(apply(ScalarOp::FloorDiv, whole(DType::I64, -7), whole(DType::I64, 2))->integer == -4);
}

TEST_CASE("numbers are rounded as their dtype is") {
  CHECK(number_of(DType::BF16, 1.00390625).real == 1.0);          // tie to even
  CHECK(number_of(DType::BF16, 1.01171875).real == 1.015625);     // tie to even, upwards
  CHECK(number_of(DType::F16, 65520).real == std::numeric_limits<double>::infinity());
  CHECK(number_of(DType::F16, 65519).real == 65504);
  CHECK(number_of(DType::F16, 0x1p-25).real == 0);                // tie to even
  CHECK(number_of(DType::F16, 0x1.8p-24).real == 0x1p-23);
  CHECK(number_of(DType::U8, 300).integer == 44);
  CHECK(number_of_int(DType::F32, (int64_t{1} << 24) + 1).real == 0x1p24);
  CHECK(std::isnan(number_of(DType::BF16, std::nan("")).real));
}

TEST_CASE("rewriting replaces symbols and loads") {
  sym::Context context;
  ScalarBuilder b;
  const Expr i = context.index("i", 8), j = context.index("j", 8);
  const Scalar* x = b.load(0, DType::F32, {i * Expr(2)});
  const Scalar* body = b.apply(ScalarOp::Mul, DType::F32, {x, b.cast(b.index(i), DType::F32)});
  const std::pair<Expr, Expr> symbols[] = {{i, j + Expr(1)}};
  const Scalar* expected = b.apply(ScalarOp::Mul, DType::F32, {b.load(0, DType::F32, {j * Expr(2) + Expr(2)}),
                                                               b.cast(b.index(j + Expr(1)), DType::F32)});
  CHECK(b.rewrite(body, symbols) == expected);
  const auto replace = [&](const Scalar& load, const std::vector<Expr>& indices, const std::vector<Binding>&) {
    return load.buffer == 0 ? b.load(7, DType::F32, {indices[0] + Expr(5)}) : nullptr;
  };
  const Scalar* replaced = b.rewrite(x, symbols, replace);
  CHECK(replaced == b.load(7, DType::F32, {j * Expr(2) + Expr(7)}));
  ScalarBuilder other;
  CHECK(other.rewrite(body, symbols) != expected);
  CHECK(other.rewrite(body, {}) == other.rewrite(body, {}));
}

TEST_CASE("a binding's symbol means one value") {
  sym::Context context;
  ScalarBuilder b;
  const Expr i = context.index("i", 8), j = context.index("j", 8);
  const Binding at = b.bind(context, b.load(0, DType::I64, {i}), 100);
  CHECK(b.bind(context, b.load(0, DType::I64, {i}), 100).symbol == at.symbol);
  CHECK(b.bind(context, b.load(0, DType::I64, {j}), 100).symbol != at.symbol);
  const Scalar* gathered = b.load(1, DType::F32, {at.symbol, i}, {at});
  const std::pair<Expr, Expr> symbols[] = {{i, j}};
  const Scalar* moved = b.rewrite(gathered, symbols);
  REQUIRE(moved->bindings.size() == 1);
  CHECK(moved->bindings[0].value == b.load(0, DType::I64, {j}));
  CHECK(moved->bindings[0].symbol != at.symbol);
  CHECK(moved->indices[0] == moved->bindings[0].symbol);
  CHECK(b.load(1, DType::F32, {i, i}, {at})->bindings.empty());
}

TEST_CASE("what takes a masked load's place reads nothing outside of the mask") {
  sym::Context context;
  ScalarBuilder b;
  const Expr i = context.index("i", 8);
  const Scalar* mask = b.apply(ScalarOp::Lt, DType::Bool, {b.index(i), b.constant_int(DType::I64, 4)});
  const Scalar* padded = b.load_masked(0, DType::F32, {i}, {}, mask, b.constant(DType::F32, -1));
  const auto inlined = [&](const Scalar&, const std::vector<Expr>& at, const std::vector<Binding>&) {
    return b.apply(ScalarOp::Exp, DType::F32, {b.load(1, DType::F32, at)});
  };
  const Scalar* out = b.rewrite(padded, {}, inlined);
  visit(out, [&](const Scalar& s) {
    if (s.op != ScalarOp::Load) return;
    REQUIRE(s.operands.size() == 2);
    CHECK(s.operands[0] == mask);
  });
}

}  // namespace braze::loop
