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
constexpr size_t kMostNodes = 800;     // over all parts

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
    first_ = nest_.rows.size();
    for (size_t k = 0; k < nest_.rows.size(); ++k) {
      cuts_.push_back(cuts_of(nest_.rows[k]));
      parts *= cuts_.back().size() + 1;
      if (!cuts_.back().empty()) first_ = std::min(first_, k);
    }
    if (parts == 1 || parts > kMostParts || nodes_ * parts > kMostNodes) return;
    const std::vector<Axis> outer(nest_.rows.begin(), nest_.rows.begin() + static_cast<ptrdiff_t>(first_));
    if (work_.hint_numel(outer) < 2.0 * work_.target.threads) return;
    std::vector<NestStage> stages;
    parts_.resize(nest_.rows.size());
    make(first_, stage, stages);
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

  // One stage for each combination of parts of the axes from `k` on; parts_[k] is the part chosen for axis k.
  void make(size_t k, const NestStage& whole, std::vector<NestStage>& out) {
    if (k == nest_.rows.size()) {
      out.push_back(part_of(whole));
      return;
    }
    for (size_t part = 0; part <= cuts_[k].size(); ++part) {
      parts_[k] = part;
      make(k + 1, whole, out);
    }
  }

  NestStage part_of(const NestStage& whole) {
    NestStage stage;
    Substitution symbols;
    for (size_t k = first_; k < nest_.rows.size(); ++k) {
      const Axis& axis = nest_.rows[k];
      const size_t part = parts_[k];
      const Expr begin = part == 0 ? Expr(0) : Expr(cuts_[k][part - 1]);
      const Expr length = (part < cuts_[k].size() ? Expr(cuts_[k][part]) : axis.extent) - begin;
      if (length == Expr(1)) {
        symbols.emplace_back(axis.symbol, begin);
      } else {
        stage.loops.push_back({work_.context.fresh_index("l", length), length});
        symbols.emplace_back(axis.symbol, begin + stage.loops.back().symbol);
      }
    }
    for (const Store& store : whole.stores) {
      Store part = store;
      part.address = sym::substitute(store.address, symbols);
      part.value = decide_comparisons(work_, work_.scalars.rewrite(store.value, symbols));
      stage.stores.push_back(std::move(part));
    }
    return stage;
  }

  Work& work_;
  Nest& nest_;
  std::unordered_set<Expr> predicates_;
  bool has_masked_load_ = false;
  size_t nodes_ = 0;
  std::vector<std::vector<int64_t>> cuts_;   // by row
  std::vector<size_t> parts_;                // likewise
  size_t first_ = 0;                         // the first row that is cut
};

}  // namespace

void split_borders(Work& work, Nest& nest) { BorderSplitter(work, nest).run(); }

}  // namespace braze::schedule
