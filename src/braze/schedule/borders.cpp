// Padded windows: conditions such as 0 <= 2*i - 1 hold everywhere but at the border. The axis is cut there, and each
// part has loops of its own, with the conditions decided.
#include <algorithm>
#include <unordered_set>

#include "braze/schedule/nest.h"
#include "braze/schedule/tidy.h"

namespace braze::schedule {
namespace {

using loop::Axis;

constexpr size_t kMostParts = 9;
constexpr size_t kMostNodes = 400;     // over all parts

class BorderSplitter {
 public:
  BorderSplitter(Work& work, Nest& nest) : work_(work), nest_(nest) {}

  void run() {
    if (nest_.kind != NestKind::Flat || nest_.stages.size() != 1) return;
    NestStage& stage = nest_.stages[0];
    if (!stage.loops.empty() || !stage.kept.empty() || !stage.accumulators.empty()) return;
    for (const Store& store : stage.stores) {
      if (!store.bindings.empty()) return;
      collect(store.value);
    }
    if (!has_masked_load_) return;
    size_t parts = 1;
    size_t first = nest_.rows.size();
    for (size_t k = 0; k < nest_.rows.size(); ++k) {
      cuts_.push_back(cuts_of(nest_.rows[k]));
      parts *= cuts_.back().size() + 1;
      if (!cuts_.back().empty()) first = std::min(first, k);
    }
    if (parts == 1 || parts > kMostParts || nodes_ * parts > kMostNodes) return;
    const std::vector<Axis> outer(nest_.rows.begin(), nest_.rows.begin() + static_cast<ptrdiff_t>(first));
    if (work_.hint_numel(outer) < 2.0 * work_.target.threads) return;
    std::vector<NestStage> stages;
    make(first, {}, {}, stage, stages);
    nest_.rows = outer;
    nest_.stages = std::move(stages);
    nest_.kind = NestKind::Window;
  }

 private:
  void collect(const Scalar* value) {
    visit(value, [&](const Scalar& s) {
      ++nodes_;
      has_masked_load_ |= s.op == ScalarOp::Load && !s.operands.empty();
      if (const auto p = index_predicate(s)) predicates_.insert(*p);
    });
  }

  // Where, inside of the axis, a predicate on it alone changes.
  std::vector<int64_t> cuts_of(const Axis& axis) const {
    std::vector<int64_t> out;
    const auto extent = axis.extent.maybe_constant();
    if (!extent || *extent < 3) return out;
    for (Expr p : predicates_) {
      std::vector<Expr> symbols;
      sym::collect_symbols(p, symbols);
      if (symbols.size() != 1 || symbols[0] != axis.symbol) continue;
      const auto holds = [&](int64_t i) { return sym::evaluate(p, [&](Expr) { return i; }) != 0; };
      const bool at_start = holds(0);
      if (at_start == holds(*extent - 1)) continue;
      int64_t low = 0, high = *extent - 1;     // comparisons of linear expressions change once
      while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        (holds(middle) == at_start ? low : high) = middle;
      }
      if (std::ranges::find(out, high) == out.end()) out.push_back(high);
    }
    std::ranges::sort(out);
    return out;
  }

  // One stage for each combination of parts of the axes from `k` on.
  void make(size_t k, Substitution symbols, std::vector<Axis> loops, const NestStage& whole, std::vector<NestStage>& out) {
    if (k == nest_.rows.size()) {
      NestStage stage;
      stage.loops = std::move(loops);
      for (const Store& store : whole.stores) {
        Store part = store;
        part.address = sym::substitute(store.address, symbols);
        part.value = decide_comparisons(work_, work_.scalars.rewrite(store.value, symbols));
        stage.stores.push_back(std::move(part));
      }
      out.push_back(std::move(stage));
      return;
    }
    const Axis& axis = nest_.rows[k];
    std::vector<int64_t> bounds{0};
    bounds.insert(bounds.end(), cuts_[k].begin(), cuts_[k].end());
    for (size_t part = 0; part < bounds.size(); ++part) {
      const Expr begin = bounds[part];
      const Expr length = (part + 1 < bounds.size() ? Expr(bounds[part + 1]) : axis.extent) - begin;
      Substitution s = symbols;
      std::vector<Axis> own = loops;
      if (length == Expr(1)) {
        s.emplace_back(axis.symbol, begin);
      } else {
        own.push_back({work_.context.fresh_index("l", length), length});
        s.emplace_back(axis.symbol, begin + own.back().symbol);
      }
      make(k + 1, std::move(s), std::move(own), whole, out);
    }
  }

  Work& work_;
  Nest& nest_;
  std::unordered_set<Expr> predicates_;
  bool has_masked_load_ = false;
  size_t nodes_ = 0;
  std::vector<std::vector<int64_t>> cuts_;   // by row
};

}  // namespace

void split_borders(Work& work, Nest& nest) { BorderSplitter(work, nest).run(); }

}  // namespace braze::schedule
