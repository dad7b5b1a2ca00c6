// Random loop programs: the schedule computes what the program says, fused or not.
#include <doctest/doctest.h>

#include <cstdlib>
#include <random>

#include "braze/loop/index.h"
#include "loop_programs.h"

using namespace braze;
using namespace braze::test;

namespace {

// Values are tensors over dimensions taken from a few extents, so that many meet again; ops pick operands that fit.
class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  Loops make() {
    Loops l;
    const int n_inputs = 1 + pick(3);
    const Shape full = shape();
    for (int i = 0; i < n_inputs; ++i) values_.push_back(l.input(DType::F32, i == 0 ? full : broadcastable(full)));
    const int n_ops = 2 + pick(9);
    for (int i = 0; i < n_ops; ++i) values_.push_back(op(l));
    l.output(values_.back());
    for (int32_t v : values_)
      if (l.buffer(v).kind != BufferKind::Input && pick(5) == 0) l.output(v);
    return l;
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  int32_t any() { return values_[static_cast<size_t>(pick(static_cast<int>(values_.size())))]; }
  int32_t recent() { return pick(3) == 0 ? any() : values_[values_.size() - 1 - static_cast<size_t>(pick(std::min<int>(3, static_cast<int>(values_.size()))))]; }

  Shape shape() {
    static constexpr int64_t kExtents[] = {1, 2, 3, 4, 5, 6, 12, 17, 20};
    Shape out;
    for (int k = 1 + pick(3); k > 0; --k) out.push_back(kExtents[pick(9)]);
    return out;
  }
  Shape broadcastable(Shape s) {
    for (Expr& e : s)
      if (pick(3) == 0) e = 1;
    if (pick(4) == 0 && s.size() > 1) s.erase(s.begin());
    return s;
  }

  // Where an operand of other sizes is read for the element `at` of a result; nullopt: it does not fit.
  static std::optional<std::vector<Expr>> aligned(const Shape& operand, const Shape& result, const std::vector<Expr>& at) {
    if (operand.size() > result.size()) return std::nullopt;
    std::vector<Expr> out;
    const size_t skip = result.size() - operand.size();
    for (size_t k = 0; k < operand.size(); ++k) {
      if (operand[k] == Expr(1)) {
        out.push_back(0);
      } else if (operand[k] == result[skip + k]) {
        out.push_back(at[skip + k]);
      } else {
        return std::nullopt;
      }
    }
    return out;
  }

  int32_t op(Loops& l) {
    switch (pick(10)) {
      case 0: case 1: return reduce(l);
      case 2: return permute(l);
      case 3: return reshape(l);
      case 4: return cat(l);
      case 5: return gather(l);
      default: return pointwise(l);
    }
  }

  int32_t pointwise(Loops& l) {
    static constexpr ScalarOp kUnary[] = {ScalarOp::Neg, ScalarOp::Tanh, ScalarOp::Exp, ScalarOp::Abs};
    static constexpr ScalarOp kBinary[] = {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Maximum};
    const int32_t x = recent();
    const Shape sizes = l.buffer(x).sizes;
    std::vector<int32_t> others;
    for (int i = 0; i < 3; ++i)
      if (const int32_t y = any(); aligned(l.buffer(y).sizes, sizes, std::vector<Expr>(sizes.size(), Expr(0)))) others.push_back(y);
    const ScalarOp unary = kUnary[pick(4)], binary = kBinary[pick(4)];
    return l.pointwise(DType::F32, sizes, [&](auto& at) {
      const Scalar* v = l.load(x, at);
      if (others.empty()) return l.op(unary, v);
      for (int32_t y : others) v = l.op(binary, v, l.load(y, *aligned(l.buffer(y).sizes, sizes, at)));
      return l.op(ScalarOp::Tanh, v);
    });
  }

  int32_t reduce(Loops& l) {
    static constexpr ReduceOp kOps[] = {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min};
    const int32_t x = recent();
    const Shape sizes = l.buffer(x).sizes;
    Shape kept = sizes, reduced;
    std::vector<int> from(sizes.size(), -1);
    for (size_t k = 0; k < sizes.size(); ++k) {
      if (pick(2) != 0) continue;
      from[k] = static_cast<int>(reduced.size());
      reduced.push_back(sizes[k]);
      kept[k] = 1;
    }
    if (reduced.empty()) {
      from[sizes.size() - 1] = 0;
      reduced.push_back(sizes.back());
      kept.back() = 1;
    }
    const ReduceOp op = kOps[pick(3)];
    return l.reduction(op, DType::F32, kept, reduced, [&](auto& at) {
      std::vector<Expr> place(at.begin(), at.begin() + static_cast<ptrdiff_t>(sizes.size()));
      for (size_t k = 0; k < sizes.size(); ++k)
        if (from[k] >= 0) place[k] = sizes[k] == Expr(1) ? Expr(0) : at[sizes.size() + static_cast<size_t>(from[k])];
      const Scalar* v = l.load(x, place);
      return op == ReduceOp::Sum ? l.op(ScalarOp::Mul, v, l.num(v, 0.25)) : v;
    });
  }

  int32_t permute(Loops& l) {
    const int32_t x = recent();
    const Shape sizes = l.buffer(x).sizes;
    std::vector<size_t> order(sizes.size());
    for (size_t k = 0; k < order.size(); ++k) order[k] = k;
    std::shuffle(order.begin(), order.end(), random_);
    Shape to;
    for (size_t k : order) to.push_back(sizes[k]);
    return l.pointwise(DType::F32, to, [&](auto& at) {
      std::vector<Expr> place(sizes.size());
      for (size_t k = 0; k < order.size(); ++k) place[order[k]] = at[k];
      return l.op(ScalarOp::Tanh, l.load(x, place));
    });
  }

  int32_t reshape(Loops& l) {
    const int32_t x = recent();
    const Shape sizes = l.buffer(x).sizes;
    int64_t n = 1;
    for (Expr e : sizes) n *= e.constant();
    Shape to;
    for (int64_t d : {2, 3, 4, 6})
      if (n % d == 0 && pick(2) == 0) to.push_back(d), n /= d;
    to.push_back(n);
    return l.pointwise(DType::F32, to, [&](auto& at) {
      const Expr flat = loop::flatten(at, to);
      return l.op(ScalarOp::Abs, l.load(x, loop::unflatten(flat, sizes)));
    });
  }

  int32_t cat(Loops& l) {
    const int32_t x = recent();
    const auto axis = static_cast<size_t>(pick(static_cast<int>(l.buffer(x).sizes.size())));
    Shape sizes = l.buffer(x).sizes;
    const Expr half = sizes[axis];
    if (half.constant() > 40) return pointwise(l);
    sizes[axis] = half * 2;
    Buffer& b = l.add(BufferKind::Cat, DType::F32, sizes);
    const int32_t id = b.id;
    b.cat_axis = static_cast<int32_t>(axis);
    const auto at = Loops::symbols(b.axes);
    std::vector<loop::Piece> pieces;
    for (int i = 0; i < 2; ++i) {
      auto own = at;
      own[axis] = half == Expr(1) ? Expr(0) : at[axis] - half * Expr(i);
      const Scalar* v = l.load(x, own);
      pieces.push_back({half * Expr(i), half, i == 0 ? v : l.op(ScalarOp::Neg, v)});
    }
    l.buffer(id).pieces = std::move(pieces);
    return id;
  }

  // Rows of x chosen by numbers that are computed from x.
  int32_t gather(Loops& l) {
    const int32_t x = recent();
    const Shape sizes = l.buffer(x).sizes;
    if (sizes[0] == Expr(1)) return pointwise(l);
    return l.pointwise(DType::F32, sizes, [&](auto& at) {
      std::vector<Expr> first(sizes.size(), Expr(0));
      first[0] = at[0];
      const Scalar* v = l.op(ScalarOp::Abs, l.load(x, first));
      const Scalar* whole = l.make().cast(l.op(ScalarOp::Minimum, v, l.num(v, 3)), DType::I64);
      const Scalar* wrapped = l.make().apply(ScalarOp::Remainder, DType::I64, {whole, l.make().constant_int(DType::I64, sizes[0].constant())});
      const Binding row = l.make().bind(l.context(), wrapped, sizes[0]);
      auto place = at;
      place[0] = row.symbol;
      return l.make().load(x, DType::F32, place, {row});
    });
  }

  std::mt19937 random_;
  std::vector<int32_t> values_;
};

}  // namespace

TEST_CASE("random programs") {
  const char* wanted = std::getenv("BRAZE_TEST_SEED");
  const uint32_t first = wanted != nullptr ? static_cast<uint32_t>(std::atoi(wanted)) : 1;
  const char* count = std::getenv("BRAZE_TEST_COUNT");
  const uint32_t n = wanted != nullptr ? 1 : count != nullptr ? static_cast<uint32_t>(std::atoi(count)) : 300;
  for (uint32_t seed = first; seed < first + n; ++seed) {
    Loops l = Generator(seed).make();
    for (bool fusion : {true, false}) {
      Check check{l};
      check.options.fusion = fusion;
      check.seed = seed;
      INFO("BRAZE_TEST_SEED=" << seed << (fusion ? "" : " without fusion") << "\n" << loop::print(*l.program));
      const std::string problem = check.run(2e-4);
      REQUIRE(problem == "");
    }
  }
}
