// Buffers rewritten before anything else: small windows become pointwise expressions, long reductions over few results
// are cut into partial ones.
#include <fmt/format.h>

#include <algorithm>

#include "braze/schedule/cost.h"
#include "braze/schedule/work.h"
#include "braze/support/check.h"

namespace braze::schedule {
namespace {

using loop::Axis;

constexpr int64_t kWindow = 32;          // taps that are written out
constexpr int64_t kTinyReduction = 4;    // the same without a window: shorter than any vector
constexpr double kChunkElements = 16384; // of a partial reduction along contiguous memory
constexpr int64_t kShortestRun = 512;    // of contiguous elements that a piece is to read
constexpr int64_t kColumnRows = 32;      // rows that a partial column reduction adds up in registers
constexpr double kColumnLength = 512;    // shorter columns are not cut

ScalarOp combining_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum: return ScalarOp::Add;
    case ReduceOp::Prod: return ScalarOp::Mul;
    case ReduceOp::Max: return ScalarOp::Maximum;
    case ReduceOp::Min: return ScalarOp::Minimum;
    case ReduceOp::Any: return ScalarOp::BitOr;
    case ReduceOp::All: return ScalarOp::BitAnd;
    case ReduceOp::Xor: return ScalarOp::BitXor;
    case ReduceOp::ArgMax: case ReduceOp::ArgMin: break;
  }
  CHECK(false, "no combining op");
  return ScalarOp::Add;
}

bool is_arg(ReduceOp op) { return op == ReduceOp::ArgMax || op == ReduceOp::ArgMin; }

class Preparation {
 public:
  explicit Preparation(Work& work) : work_(work) {}

  void run() {
    const size_t n = work_.buffers.size();
    for (size_t i = 0; i < n; ++i) {
      const Buffer& b = *work_.buffers[i];
      if (b.kind == BufferKind::Reduction) {
        if (is_window(b)) {
          work_.buffers[i] = written_out(b);
        } else if (const auto cut = where_to_cut(b)) {
          work_.buffers[i] = cut_reduction(b, *cut);
        }
      }
      work_.order.push_back(static_cast<int32_t>(i));
    }
  }

 private:
  // ---- Windows

  bool is_window(const Buffer& b) const {
    int64_t taps = 1;
    for (const Axis& axis : b.reduce_axes) {
      const auto extent = axis.extent.maybe_constant();
      if (!extent || *extent < 1 || *extent > kWindow) return false;
      taps *= *extent;
      if (taps > kWindow) return false;
    }
    return taps <= kTinyReduction || slides(b);
  }

  // An index that mixes kept and reduced axes.
  static bool slides(const Buffer& b) {
    bool found = false;
    const auto mentions = [](Expr e, const std::vector<Axis>& axes) {
      return std::ranges::any_of(axes, [&](const Axis& a) { return sym::depends_on(e, a.symbol); });
    };
    visit(b.body, [&](const Scalar& s) {
      if (s.op != ScalarOp::Load) return;
      for (Expr e : s.indices) found |= mentions(e, b.axes) && mentions(e, b.reduce_axes);
    });
    return found;
  }

  const Buffer* written_out(const Buffer& b) {
    std::vector<const Scalar*> taps;
    Substitution at;
    const auto each = [&](auto&& self, size_t k) -> void {
      if (k == b.reduce_axes.size()) {
        taps.push_back(work_.scalars.cast(work_.scalars.rewrite(b.body, at), b.accumulate));
        return;
      }
      for (int64_t i = 0; i < b.reduce_axes[k].extent.constant(); ++i) {
        at.emplace_back(b.reduce_axes[k].symbol, i);
        self(self, k + 1);
        at.pop_back();
      }
    };
    each(each, 0);
    Buffer* made = work_.arena.make<Buffer>(b);
    made->kind = BufferKind::Pointwise;
    made->reduce_axes.clear();
    made->body = work_.scalars.cast(is_arg(b.reduce) ? index_of_extreme(b, taps) : combined(b, taps), b.dtype);
    work_.note(fmt::format("write out the window of {}: {} taps", b.name, taps.size()));
    return made;
  }

  const Scalar* combined(const Buffer& b, const std::vector<const Scalar*>& taps) {
    const Scalar* sum = taps[0];
    // A sum starts at 0, which nothing but -0 can be told from.
    if (b.reduce == ReduceOp::Sum && is_floating(b.accumulate))
      sum = work_.scalars.apply(ScalarOp::Add, b.accumulate, {sum, work_.scalars.constant(b.accumulate, 0.0)});
    for (size_t k = 1; k < taps.size(); ++k)
      sum = work_.scalars.apply(combining_op(b.reduce), b.accumulate, {sum, taps[k]});
    return sum;
  }

  // The first of equals wins, and NaN counts as the extreme.
  const Scalar* index_of_extreme(const Buffer& b, const std::vector<const Scalar*>& taps) {
    ScalarBuilder& make = work_.scalars;
    const Scalar* best = taps[0];
    const Scalar* place = make.constant_int(DType::I64, 0);
    for (size_t k = 1; k < taps.size(); ++k) {
      const ScalarOp compare = b.reduce == ReduceOp::ArgMax ? ScalarOp::Gt : ScalarOp::Lt;
      const Scalar* better = make.apply(compare, DType::Bool, {taps[k], best});
      if (is_floating(best->dtype)) {
        const Scalar* is_nan = make.apply(ScalarOp::IsNan, DType::Bool, {taps[k]});
        const Scalar* was_nan = make.apply(ScalarOp::IsNan, DType::Bool, {best});
        const Scalar* first_nan = make.apply(ScalarOp::BitAnd, DType::Bool, {is_nan, make.apply(ScalarOp::LogicalNot, DType::Bool, {was_nan})});
        better = make.apply(ScalarOp::BitOr, DType::Bool, {better, first_nan});
      }
      best = make.apply(ScalarOp::Where, best->dtype, {better, taps[k], best});
      place = make.apply(ScalarOp::Where, DType::I64, {better, make.constant_int(DType::I64, static_cast<int64_t>(k)), place});
    }
    return place;
  }

  // ---- Long reductions

  struct Cut {
    size_t axis;         // of the reduce axes
    Expr length;         // of a piece
  };

  std::optional<Cut> where_to_cut(const Buffer& b) {
    if (is_arg(b.reduce) || !work_.options.fusion) return std::nullopt;
    double results = 1;
    for (Expr size : b.sizes) results *= static_cast<double>(work_.hint(size));
    const double length = work_.hint_numel(b.reduce_axes);
    const double ns = results * length * (kNsPerByte * 4 + kNsPerOp * weight_of(b.body));
    if (ns < 4 * kWorthThreadsNs) return std::nullopt;
    if (is_column(b)) {
      if (b.reduce == ReduceOp::Sum && has_row_partner(b)) return std::nullopt;   // merge_columns() may find a better way
      if (length < kColumnLength || results > 8 * length) return std::nullopt;
      return cut_longest(b, kColumnRows);
    }
    if (results >= 2.0 * work_.target.threads) return std::nullopt;
    return cut_longest(b, kChunkElements);
  }

  // Whether memory is contiguous along a kept axis, and whether along a reduced one.
  struct Along { bool kept = false, reduced = false; };
  Along along(const Buffer& b) const {
    Along out;
    visit(b.body, [&](const Scalar& s) {
      if (s.op != ScalarOp::Load) return;
      const Expr address = work_.address(s);
      const auto unit = [&](const Axis& axis) { return sym::coefficient(address, axis.symbol) == Expr(1); };
      out.reduced |= std::ranges::any_of(b.reduce_axes, unit);
      out.kept |= std::ranges::any_of(b.axes, unit);
    });
    return out;
  }
  bool is_column(const Buffer& b) const {
    const Along a = along(b);
    return a.kept && !a.reduced;
  }

  // Another sum that goes along the rows of the same data.
  bool has_row_partner(const Buffer& b) {
    const auto steps = [&](const Buffer& x) {
      double n = work_.hint_numel(x.reduce_axes);
      for (Expr size : x.sizes) n *= static_cast<double>(work_.hint(size));
      return n;
    };
    const double wanted = steps(b);
    const std::vector<int32_t> sources = sources_of(b);
    for (const Buffer& other : work_.loops->buffers) {
      if (other.kind != BufferKind::Reduction || other.id == b.id || std::abs(steps(other) - wanted) > 0.5) continue;
      const Along a = along(other);
      if (!a.reduced || a.kept) continue;
      for (int32_t source : sources_of(other))
        if (std::ranges::find(sources, source) != sources.end()) return true;
    }
    return false;
  }

  // Inputs and results of two dimensions and more that a body reads, through pointwise bodies.
  const std::vector<int32_t>& sources_of(const Buffer& b) {
    const auto [it, is_new] = sources_.try_emplace(b.id);
    if (!is_new) return it->second;
    std::vector<int32_t> found;
    visit(b.body, [&](const Scalar& s) {
      if (s.op != ScalarOp::Load) return;
      const Buffer& from = *work_.buffers[static_cast<size_t>(s.buffer)];
      if (from.kind == BufferKind::Pointwise) {
        for (int32_t source : sources_of(from)) found.push_back(source);
      } else if (from.sizes.size() > 1) {
        found.push_back(s.buffer);
      }
    });
    std::ranges::sort(found);
    found.erase(std::ranges::unique(found).begin(), found.end());
    return sources_[b.id] = std::move(found);
  }

  // The longest axis is cut, but none along contiguous memory into runs of a few vectors if another one will do.
  std::optional<Cut> cut_longest(const Buffer& b, double elements) const {
    std::optional<Cut> best;
    bool best_is_whole = false;
    for (size_t k = 0; k < b.reduce_axes.size(); ++k) {
      double inner = 1;
      for (size_t other = 0; other < b.reduce_axes.size(); ++other)
        if (other != k) inner *= static_cast<double>(work_.hint(b.reduce_axes[other].extent));
      const Expr extent = b.reduce_axes[k].extent;
      const auto wanted = std::max<int64_t>(1, static_cast<int64_t>(elements / inner));
      if (work_.hint(extent) < 2 * wanted) continue;
      const bool is_whole = wanted >= kShortestRun || !is_contiguous_along(b, b.reduce_axes[k]);
      if (best && (best_is_whole != is_whole ? best_is_whole : work_.hint(extent) <= work_.hint(b.reduce_axes[best->axis].extent))) continue;
      best = Cut{k, extent.is_constant() ? good_divisor(extent.constant(), wanted) : wanted};
      best_is_whole = is_whole;
    }
    return best;
  }

  bool is_contiguous_along(const Buffer& b, const Axis& axis) const {
    bool found = false;
    visit(b.body, [&](const Scalar& s) {
      found |= s.op == ScalarOp::Load && sym::coefficient(work_.address(s), axis.symbol) == Expr(1);
    });
    return found;
  }

  // A divisor near `wanted`, so that all pieces are of one length; else `wanted`.
  static int64_t good_divisor(int64_t extent, int64_t wanted) {
    for (int64_t d = wanted; d >= std::max<int64_t>(1, wanted / 2); --d)
      if (extent % d == 0) return d;
    for (int64_t d = wanted + 1; d <= wanted * 2; ++d)
      if (extent % d == 0) return d;
    return wanted;
  }

  // The reduction over the pieces' results, which a buffer of the scheduler's own holds.
  const Buffer* cut_reduction(const Buffer& b, const Cut& cut) {
    const Axis whole = b.reduce_axes[cut.axis];
    const Expr pieces = sym::ceil_div(whole.extent, cut.length);
    const Axis piece{work_.context.fresh_index("c", pieces), pieces};
    Expr length = cut.length;
    if (pieces * cut.length != whole.extent) length = sym::min(cut.length, whole.extent - piece.symbol * cut.length);
    const Axis within{work_.context.fresh_index("w", cut.length), length};

    Buffer* partial = work_.arena.make<Buffer>(b);
    partial->id = static_cast<int32_t>(work_.buffers.size());
    partial->name = b.name + "_part";
    partial->dtype = b.accumulate;
    partial->flexible = true;
    partial->sizes.insert(partial->sizes.begin(), pieces);
    partial->strides = graph::contiguous_strides(partial->sizes);
    partial->axes.insert(partial->axes.begin(), piece);
    partial->reduce_axes[cut.axis] = within;
    const Substitution s{{whole.symbol, piece.symbol * cut.length + within.symbol}};
    partial->body = work_.scalars.rewrite(b.body, s);

    Buffer* total = work_.arena.make<Buffer>(b);
    const Axis over{work_.context.fresh_index("r", pieces), pieces};
    total->reduce_axes = {over};
    std::vector<Expr> at{over.symbol};
    for (const Axis& axis : b.axes) at.push_back(axis.extent == Expr(1) ? Expr(0) : axis.symbol);
    total->body = work_.scalars.load(partial->id, b.accumulate, std::move(at));

    work_.buffers.push_back(partial);
    work_.order.push_back(partial->id);
    work_.note(fmt::format("cut {} into {} pieces", b.name, sym::to_string(pieces)));
    return total;
  }

  Work& work_;
  std::unordered_map<int32_t, std::vector<int32_t>> sources_;
};

}  // namespace

void prepare(Work& work) { Preparation(work).run(); }

}  // namespace braze::schedule
