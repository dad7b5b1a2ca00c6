// Random loop programs of several dtypes, scheduled, printed, compiled and run; against the element-by-element evaluation
// of the loop program. BRAZE_TEST_SEED=n runs one of them, BRAZE_TEST_COUNT=n so many.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>

#include "../schedule/loop_programs.h"
#include "braze/codegen/codegen.h"
#include "braze/jit/jit.h"
#include "braze/loop/index.h"
#include "run_kernel.h"

using namespace braze;
using namespace braze::test;

namespace {

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}
  bool low_precision = false;

  Loops make() {
    Loops l;
    const Shape full = shape();
    for (int i = 0, n = 2 + pick(3); i < n; ++i) {
      values_.push_back(l.input(dtype(), i == 0 ? full : broadcastable(full)));
      inputs_ = values_;
    }
    for (int i = 0, n = 2 + pick(10); i < n; ++i) values_.push_back(op(l));
    l.output(values_.back());
    for (int32_t v : values_)
      if (l.buffer(v).kind != BufferKind::Input && pick(5) == 0) l.output(v);
    return l;
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  int32_t any() { return values_[static_cast<size_t>(pick(static_cast<int>(values_.size())))]; }
  int32_t recent() { return pick(3) == 0 ? any() : values_[values_.size() - 1 - static_cast<size_t>(pick(std::min(3, static_cast<int>(values_.size()))))]; }

  DType dtype() {
    static constexpr DType kTypes[] = {DType::F32, DType::F32, DType::F32, DType::F64, DType::I64, DType::I32, DType::BF16, DType::Bool};
    const DType d = kTypes[pick(8)];
    low_precision |= d == DType::BF16;
    return d;
  }
  Shape shape() {
    static constexpr int64_t kExtents[] = {1, 2, 3, 5, 8, 16, 17, 33, 70};
    Shape out;
    int64_t n = 1;
    for (int k = 1 + pick(3); k > 0; --k) {
      int64_t extent = kExtents[pick(9)];
      if (n * extent > 6000) extent = 3;
      n *= extent;
      out.push_back(extent);
    }
    return out;
  }
  Shape broadcastable(Shape s) {
    for (Expr& e : s)
      if (pick(3) == 0) e = 1;
    if (pick(4) == 0 && s.size() > 1) s.erase(s.begin());
    return s;
  }
  static std::optional<std::vector<Expr>> aligned(const Shape& operand, const Shape& result, const std::vector<Expr>& at) {
    if (operand.size() > result.size()) return std::nullopt;
    std::vector<Expr> out;
    const size_t skip = result.size() - operand.size();
    for (size_t k = 0; k < operand.size(); ++k) {
      if (operand[k] == Expr(1)) out.push_back(0);
      else if (operand[k] == result[skip + k]) out.push_back(at[skip + k]);
      else return std::nullopt;
    }
    return out;
  }

  // A value as another type; floats become integers only where rounding can't decide.
  const Scalar* as(Loops& l, const Scalar* v, DType to) {
    if (is_floating(v->dtype) && !is_floating(to)) {
      return l.make().cast(l.make().apply(ScalarOp::SignBit, DType::Bool, {l.op(ScalarOp::Abs, v)}), to);
    }
    return l.make().cast(v, to);
  }

  const Scalar* unary(Loops& l, const Scalar* v) {
    static constexpr ScalarOp kFloat[] = {ScalarOp::Neg, ScalarOp::Tanh, ScalarOp::Exp, ScalarOp::Abs, ScalarOp::Sigmoid, ScalarOp::Erf,
                                          ScalarOp::Sin, ScalarOp::Sqrt, ScalarOp::Log1p, ScalarOp::Atan};
    static constexpr ScalarOp kInt[] = {ScalarOp::Neg, ScalarOp::Abs, ScalarOp::BitNot};
    if (v->dtype == DType::Bool) return l.op(ScalarOp::LogicalNot, v);
    if (!is_floating(v->dtype)) return l.op(kInt[pick(3)], v);
    const ScalarOp op = kFloat[pick(10)];
    if (op == ScalarOp::Sqrt || op == ScalarOp::Log1p) v = l.op(ScalarOp::Abs, v);
    if (op == ScalarOp::Exp) v = l.op(ScalarOp::Minimum, v, l.num(v, 3));
    return l.op(op, v);
  }
  const Scalar* binary(Loops& l, const Scalar* a, const Scalar* b) {
    static constexpr ScalarOp kFloat[] = {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Maximum, ScalarOp::Minimum};
    static constexpr ScalarOp kInt[] = {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::BitXor, ScalarOp::BitAnd, ScalarOp::Maximum, ScalarOp::Minimum};
    static constexpr ScalarOp kBool[] = {ScalarOp::BitXor, ScalarOp::BitAnd, ScalarOp::BitOr};
    if (a->dtype == DType::Bool) return l.op(kBool[pick(3)], a, b);
    if (is_floating(a->dtype)) return l.op(kFloat[pick(5)], a, b);
    return l.op(kInt[pick(7)], a, b);
  }
  // Keeps numbers small: sums and products of integers stay far from overflow, floats in a range where errors are small.
  const Scalar* tame(Loops& l, const Scalar* v) {
    if (is_floating(v->dtype)) return l.op(ScalarOp::Tanh, v);
    if (v->dtype == DType::Bool) return v;
    return l.make().apply(ScalarOp::Remainder, v->dtype, {v, l.make().constant_int(v->dtype, 11)});
  }

  int32_t op(Loops& l) {
    switch (pick(12)) {
      case 0: case 1: return reduce(l);
      case 2: return permute(l);
      case 3: return reshape(l);
      case 4: return cat(l);
      case 5: return gather(l);
      case 6: return pad(l);
      case 7: return select(l);
      default: return pointwise(l);
    }
  }

  int32_t pointwise(Loops& l) {
    const int32_t x = recent();
    const Shape sizes = l.buffer(x).sizes;
    std::vector<int32_t> others;
    for (int i = 0; i < 3; ++i)
      if (const int32_t y = any(); aligned(l.buffer(y).sizes, sizes, std::vector<Expr>(sizes.size(), Expr(0)))) others.push_back(y);
    const DType to = pick(2) == 0 ? l.buffer(x).dtype : dtype();
    return l.pointwise(to, sizes, [&](auto& at) {
      const Scalar* v = as(l, l.load(x, at), to);
      if (others.empty() || pick(3) == 0) v = unary(l, v);
      for (int32_t y : others) v = binary(l, v, as(l, l.load(y, *aligned(l.buffer(y).sizes, sizes, at)), to));
      return tame(l, v);
    });
  }

  int32_t reduce(Loops& l) {
    static constexpr ReduceOp kOps[] = {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min};
    const int32_t x = recent();
    const Shape sizes = l.buffer(x).sizes;
    Shape kept = sizes, reduced;
    std::vector<int> from(sizes.size(), -1);
    for (size_t k = 0; k < sizes.size(); ++k) {
      if (pick(2) != 0 && !(k + 1 == sizes.size() && reduced.empty())) continue;
      from[k] = static_cast<int>(reduced.size());
      reduced.push_back(sizes[k]);
      kept[k] = 1;
    }
    const DType own = l.buffer(x).dtype;
    const bool input = std::find(inputs_.begin(), inputs_.end(), x) != inputs_.end();
    ReduceOp op = kOps[pick(3)];
    if (own == DType::Bool) op = pick(2) == 0 ? ReduceOp::Any : ReduceOp::All;
    else if ((input || !is_floating(own)) && pick(4) == 0) op = pick(2) == 0 ? ReduceOp::ArgMax : ReduceOp::ArgMin;
    const bool arg = op == ReduceOp::ArgMax || op == ReduceOp::ArgMin;
    const DType result = arg || (op == ReduceOp::Sum && !is_floating(own)) ? DType::I64 : own;
    return l.reduction(op, result, kept, reduced, [&](auto& at) {
      std::vector<Expr> place(at.begin(), at.begin() + static_cast<ptrdiff_t>(sizes.size()));
      for (size_t k = 0; k < sizes.size(); ++k)
        if (from[k] >= 0) place[k] = sizes[k] == Expr(1) ? Expr(0) : at[sizes.size() + static_cast<size_t>(from[k])];
      const Scalar* v = l.load(x, place);
      if (op != ReduceOp::Sum) return v;
      if (!is_floating(own)) return l.make().cast(v, DType::I64);
      v = l.make().cast(v, own == DType::F64 ? DType::F64 : DType::F32);
      return l.op(ScalarOp::Mul, v, l.num(v, 0.125));
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
    return l.pointwise(l.buffer(x).dtype, to, [&](auto& at) {
      std::vector<Expr> place(sizes.size());
      for (size_t k = 0; k < order.size(); ++k) place[order[k]] = at[k];
      return unary(l, l.load(x, place));
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
    return l.pointwise(l.buffer(x).dtype, to, [&](auto& at) { return unary(l, l.load(x, loop::unflatten(loop::flatten(at, to), sizes))); });
  }

  int32_t cat(Loops& l) {
    const int32_t x = recent();
    const auto axis = static_cast<size_t>(pick(static_cast<int>(l.buffer(x).sizes.size())));
    Shape sizes = l.buffer(x).sizes;
    const Expr half = sizes[axis];
    if (half.constant() > 40) return pointwise(l);
    sizes[axis] = half * 2;
    Buffer& b = l.add(BufferKind::Cat, l.buffer(x).dtype, sizes);
    const int32_t id = b.id;
    b.cat_axis = static_cast<int32_t>(axis);
    const auto at = Loops::symbols(b.axes);
    std::vector<loop::Piece> pieces;
    for (int i = 0; i < 2; ++i) {
      auto own = at;
      own[axis] = half == Expr(1) ? Expr(0) : at[axis] - half * Expr(i);
      const Scalar* v = l.load(x, own);
      pieces.push_back({half * Expr(i), half, i == 0 ? v : unary(l, v)});
    }
    l.buffer(id).pieces = std::move(pieces);
    return id;
  }

  // Rows of an input chosen by whole numbers.
  int32_t gather(Loops& l) {
    const int32_t x = inputs_[static_cast<size_t>(pick(static_cast<int>(inputs_.size())))];
    const Shape sizes = l.buffer(x).sizes;
    const auto axis = static_cast<size_t>(pick(static_cast<int>(sizes.size())));
    int32_t numbers = -1;
    for (int32_t v : values_)
      if ((l.buffer(v).dtype == DType::I64 || l.buffer(v).dtype == DType::I32) &&
          aligned(l.buffer(v).sizes, sizes, std::vector<Expr>(sizes.size(), Expr(0))))
        numbers = v;
    if (sizes[axis] == Expr(1) || numbers < 0) return pointwise(l);
    return l.pointwise(l.buffer(x).dtype, sizes, [&](auto& at) {
      const Scalar* n = l.make().cast(l.load(numbers, *aligned(l.buffer(numbers).sizes, sizes, at)), DType::I64);
      const Scalar* wrapped = l.make().apply(ScalarOp::Remainder, DType::I64, {n, l.make().constant_int(DType::I64, sizes[axis].constant())});
      const Binding row = l.make().bind(l.context(), wrapped, sizes[axis]);
      auto place = at;
      place[axis] = row.symbol;
      return l.make().load(x, l.buffer(x).dtype, place, {row});
    });
  }

  // Two more elements at each end of an axis, by a masked load.
  int32_t pad(Loops& l) {
    const int32_t x = recent();
    Shape sizes = l.buffer(x).sizes;
    const auto axis = static_cast<size_t>(pick(static_cast<int>(sizes.size())));
    const Expr inner = sizes[axis];
    if (inner.constant() > 80) return pointwise(l);
    sizes[axis] = inner + 4;
    const DType d = l.buffer(x).dtype;
    return l.pointwise(d, sizes, [&](auto& at) {
      auto place = at;
      place[axis] = at[axis] - 2;
      auto compare = [&](ScalarOp o, int64_t limit) { return l.make().apply(o, DType::Bool, {l.make().index(place[axis]), l.make().constant_int(DType::I64, limit)}); };
      const Scalar* mask = l.make().apply(ScalarOp::BitAnd, DType::Bool, {compare(ScalarOp::Ge, 0), compare(ScalarOp::Lt, inner.constant())});
      const Scalar* outside = is_floating(d) ? l.make().constant(d, 0.5) : l.make().constant_int(d, 1);
      if (inner == Expr(1)) place[axis] = at[axis] - 2;
      return l.make().load_masked(x, d, place, {}, mask, outside);
    });
  }

  // Chosen by a comparison of whole numbers: of the position, or of integer values.
  int32_t select(Loops& l) {
    const int32_t x = recent();
    const Shape sizes = l.buffer(x).sizes;
    const DType d = l.buffer(x).dtype;
    return l.pointwise(d, sizes, [&](auto& at) {
      const Scalar* v = l.load(x, at);
      const Scalar* left = !is_floating(d) && d != DType::Bool ? l.make().cast(v, DType::I64) : l.make().index(at.back() * 3 + at.front());
      const Scalar* mask = l.make().apply(ScalarOp::Gt, DType::Bool, {left, l.make().constant_int(DType::I64, 2 + pick(9))});
      return l.make().apply(ScalarOp::Where, d, {mask, v, unary(l, v)});
    });
  }

  std::mt19937 random_;
  std::vector<int32_t> values_, inputs_;
};

// All kernels of a program in one request, as the runtime compiles them.
struct Native {
  schedule::Target target;
  std::map<const schedule::Kernel*, jit::LoadedKernel> loaded;

  void compile(const schedule::Program& program) {
    std::vector<jit::KernelSource> sources;
    for (const auto& kernel : program.kernels) sources.push_back({codegen::kernel_key(kernel, target)});
    auto emit = [&](std::span<const int32_t> which, std::span<const std::string> names) {
      std::vector<const schedule::Kernel*> list;
      for (int32_t i : which) list.push_back(&program.kernels[static_cast<size_t>(i)]);
      return codegen::emit_cpp(list, names, target);
    };
    auto result = jit::compile(sources, emit, target);
    REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.why().reason));
    for (size_t i = 0; i < program.kernels.size(); ++i) loaded[&program.kernels[i]] = (*result)[i];
  }
  void operator()(const schedule::Kernel& kernel, const std::vector<std::byte*>& params, const std::vector<int64_t>& sizes,
                  int64_t begin, int64_t end) {
    std::vector<void*> buffers(params.begin(), params.end());
    int64_t error = 0;
    buffers.push_back(&error);
    loaded.at(&kernel).function(buffers.data(), sizes.data(), begin, end);
    if (error != 0) throw schedule::EvaluationError("kernel error " + std::to_string(error));
  }
};

}  // namespace

TEST_CASE("random programs, compiled") {
  const char* wanted = std::getenv("BRAZE_TEST_SEED");
  const uint32_t first = wanted != nullptr ? static_cast<uint32_t>(std::atoi(wanted)) : 1;
  const char* count = std::getenv("BRAZE_TEST_COUNT");
  const uint32_t n = wanted != nullptr ? 1 : count != nullptr ? static_cast<uint32_t>(std::atoi(count)) : 60;
  for (uint32_t seed = first; seed < first + n; ++seed) {
    Generator generator(seed);
    Loops l = generator.make();
    Check check{l};
    const auto all = widths();
    Native native{target_of(all[seed % all.size()]), {}};
    check.target = native.target;
    check.seed = seed;
    check.launch = [&](const schedule::Kernel& kernel, auto&&... rest) {
      if (native.loaded.empty()) native.compile(check.program);
      native(kernel, rest...);
    };
    INFO("BRAZE_TEST_SEED=" << seed << "\n" << loop::print(*l.program));
    const std::string problem = check.run(generator.low_precision ? 4e-2 : 2e-4);
    CHECK(problem == "");
    if (!problem.empty()) {
      for (const auto& kernel : check.program.kernels) {
        const schedule::Kernel* one[] = {&kernel};
        const std::string name[] = {"k"};
        if (wanted != nullptr) MESSAGE(codegen::emit_cpp(one, name, native.target));
      }
    }
  }
}
