// Merged axes, the vector axis, the parallel axes.
#include <algorithm>
#include <cmath>

#include "braze/schedule/cost.h"
#include "braze/schedule/shape.h"
#include "braze/support/check.h"

namespace braze::schedule {
namespace {

using loop::Axis;

constexpr int64_t kChunk = 2048;        // elements of a piece, where a vector axis is cut to occupy the threads
constexpr int64_t kShort = 8;           // a vector axis up to this long is no good

enum class Walk : uint8_t { Fixed, Unit, Strided, Gather };   // how an address moves along an axis

struct Access {
  Expr address;
  bool is_store = false;
  bool after = false;      // once after the stage's loops, not in each iteration
};

Walk walk_of(Expr address, Expr axis) {
  if (!sym::depends_on(address, axis)) return Walk::Fixed;
  const auto c = sym::coefficient(address, axis);
  if (!c) return Walk::Gather;
  return *c == Expr(1) ? Walk::Unit : Walk::Strided;
}

class Planner {
 public:
  Planner(Work& work, const Nest& nest) : work_(work), nest_(nest) {}

  Plan run() {
    collect();
    split_axes(rows_);
    for (size_t s = 0; s < nest_.stages.size(); ++s)
      if (!nest_.stages[s].scan) split_axes(loops_[s]);
    merge_rows();
    for (size_t s = 0; s < nest_.stages.size(); ++s) merge_loops(s);
    if (is_flat()) {
      plan_flat();
    } else {
      plan_rows();
    }
    return std::move(plan_);
  }

 private:
  // ---- What is accessed where

  void collect() {
    accesses_.resize(nest_.stages.size());
    for (size_t s = 0; s < nest_.stages.size(); ++s) {
      const NestStage& stage = nest_.stages[s];
      for (const auto* list : {&stage.stores, &stage.inner_stores}) {
        for (const Store& store : *list) {
          accesses_[s].push_back({store.address, true, list == &stage.stores && !stage.accumulators.empty()});
          collect(s, store.value);
          for (const Binding& b : store.bindings) collect(s, b.value);
        }
      }
      for (const Accumulator& acc : stage.accumulators) collect(s, acc.value);
      kept_.push_back(stage.kept);
      loops_.push_back(stage.loops);
    }
    rows_ = nest_.rows;
  }

  void collect(size_t s, const Scalar* value) {
    visit(value, [&](const Scalar& node) {
      if (node.op != ScalarOp::Load && node.op != ScalarOp::Index) return;
      const Access access{node.indices[0], false};
      const bool known = std::ranges::any_of(accesses_[s], [&](const Access& a) { return a.address == access.address && !a.is_store; });
      if (!known) (node.op == ScalarOp::Load ? accesses_[s] : index_accesses(s)).push_back(access);
    });
  }
  std::vector<Access>& index_accesses(size_t s) {
    indices_.resize(nest_.stages.size());
    return indices_[s];
  }

  // ---- Splitting: an axis of which addresses use quotient and remainder becomes two

  // The greatest divisor of the axis itself in an address that cuts it evenly; 0: none.
  Expr divisor_of(const Axis& axis) const {
    Expr found = 0;
    const auto walk = [&](auto&& self, Expr e) -> void {
      if (e.is_constant() || e.is_symbol() || !sym::depends_on(e, axis.symbol)) return;
      const auto operands = e.operands();
      if ((e.op() == sym::Op::FloorDiv || e.op() == sym::Op::Mod) && operands[0] == axis.symbol) {
        const Expr d = operands[1], n = sym::floor_div(axis.extent, d);
        if (work_.is_size(d) && n * d == axis.extent && work_.hint(d) > work_.hint(found)) found = d;
        return;
      }
      for (Expr operand : operands) self(self, operand);
    };
    for (const auto* lists : {&accesses_, &indices_})
      for (const auto& list : *lists)
        for (const Access& a : list) walk(walk, a.address);
    return found;
  }

  void split_axes(std::vector<Axis>& axes) {
    for (size_t k = 0; k < axes.size(); ++k) {
      const Expr divisor = divisor_of(axes[k]);
      if (divisor == Expr(0)) continue;
      const Axis whole = axes[k];
      const Expr count = sym::floor_div(whole.extent, divisor);
      const Axis high{work_.context.fresh_index("h", count), count};
      const Axis low{work_.context.fresh_index("h", divisor), divisor};
      axes[k] = high;
      axes.insert(axes.begin() + static_cast<ptrdiff_t>(k) + 1, low);
      apply({{whole.symbol, high.symbol * divisor + low.symbol}});
      --k;                     // the parts may fall apart further
    }
  }

  // ---- Merging

  // Outermost first by how far the first store (else load) moves.
  void sort_axes(std::vector<Axis>& axes, const std::vector<Access>& accesses) const {
    const auto store = std::ranges::find_if(accesses, [](const Access& a) { return a.is_store; });
    const Access* leading = store != accesses.end() ? &*store : accesses.empty() ? nullptr : &accesses.front();
    if (leading == nullptr) return;
    std::vector<std::pair<int64_t, Axis>> keyed;
    for (const Axis& axis : axes) {
      const auto c = sym::coefficient(leading->address, axis.symbol);
      if (!c || (!c->is_constant() && !work_.is_size(*c))) return;
      const int64_t step = std::abs(work_.hint(*c));
      if (step == 0) return;
      keyed.emplace_back(step, axis);
    }
    std::ranges::stable_sort(keyed, [](const auto& a, const auto& b) { return a.first > b.first; });
    for (size_t k = 0; k < axes.size(); ++k) axes[k] = keyed[k].second;
  }

  void apply(const Substitution& s) {
    if (s.empty()) return;
    for (auto* lists : {&accesses_, &indices_})
      for (auto& list : *lists)
        for (Access& a : list) a.address = sym::substitute(a.address, s);
    for (auto& [from, to] : plan_.symbols) to = sym::substitute(to, s);
    plan_.symbols.insert(plan_.symbols.end(), s.begin(), s.end());
    for (auto* lists : {&kept_, &loops_})
      for (auto& axes : *lists)
        for (Axis& axis : axes) axis.extent = sym::substitute(axis.extent, s);
  }

  void merge(std::vector<Axis>& axes, std::span<const Access> extra_extents, std::initializer_list<size_t> stages) {
    if (axes.size() < 2) return;
    std::vector<Expr> addresses;
    for (const Access& a : extra_extents) addresses.push_back(a.address);
    for (size_t s : stages) {
      for (const Access& a : accesses_[s]) addresses.push_back(a.address);
      if (s < indices_.size())
        for (const Access& a : indices_[s]) addresses.push_back(a.address);
    }
    loop::MergedAxes merged = loop::merge_axes(work_.context, axes, addresses);
    axes = std::move(merged.axes);
    apply(merged.substitution);
  }

  void merge_rows() {
    for (size_t s = 0; s < accesses_.size() && nest_.chunk == 1; ++s)
      if (std::ranges::any_of(accesses_[s], [](const Access& a) { return a.is_store; })) {
        sort_axes(rows_, accesses_[s]);
        break;
      }
    if (rows_.size() < 2) return;
    std::vector<Expr> addresses;
    for (size_t s = 0; s < accesses_.size(); ++s) {
      for (const Access& a : accesses_[s]) addresses.push_back(a.address);
      if (s < indices_.size())
        for (const Access& a : indices_[s]) addresses.push_back(a.address);
      for (const auto* axes : {&kept_[s], &loops_[s]})
        for (const Axis& axis : *axes)
          if (!axis.extent.is_constant()) addresses.push_back(axis.extent);
    }
    loop::MergedAxes merged = loop::merge_axes(work_.context, rows_, addresses);
    rows_ = std::move(merged.axes);
    apply(merged.substitution);
  }

  void merge_loops(size_t s) {
    const NestStage& stage = nest_.stages[s];
    if (!stage.ordered) sort_axes(loops_[s], accesses_[s]);
    if (stage.scan) return;
    std::vector<Access> indices;
    for (const Accumulator& acc : stage.accumulators)
      if (acc.op == ReduceOp::ArgMax || acc.op == ReduceOp::ArgMin)
        indices.push_back({sym::substitute(acc.index, plan_.symbols), false});
    merge(loops_[s], indices, {s});
  }

  // ---- Choice of the vector axis

  bool is_flat() const {
    return nest_.stages.size() == 1 && nest_.stages[0].loops.empty() && nest_.stages[0].kept.empty() &&
           nest_.stages[0].accumulators.empty();
  }

  static double score(Walk walk, bool is_store) {
    switch (walk) {
      case Walk::Fixed: return is_store ? -4 : 0.1;
      case Walk::Unit: return is_store ? 2 : 1;
      case Walk::Strided: return is_store ? -3 : -1.5;
      case Walk::Gather: return is_store ? -3 : -2;
    }
    return 0;
  }

  double score(size_t s, Expr axis) const {
    double sum = 0;
    for (const Access& a : accesses_[s])
      if (!a.after) sum += score(walk_of(a.address, axis), a.is_store);
    return sum;
  }

  double length_penalty(const Axis& axis) const { return work_.hint(axis.extent) <= kShort ? 2.5 : 0; }

  // Moves the best axis to the end. Gives its score.
  double choose_last(std::vector<Axis>& axes, size_t s, bool movable) const {
    size_t best = axes.size() - 1;
    double best_score = -1e9;
    for (size_t k = axes.size(); k-- > 0;) {
      if (!movable && k + 1 != axes.size()) break;
      const double value = score(s, axes[k].symbol) - length_penalty(axes[k]);
      if (value > best_score + 1e-9) {
        best = k;
        best_score = value;
      }
    }
    std::rotate(axes.begin() + static_cast<ptrdiff_t>(best), axes.begin() + static_cast<ptrdiff_t>(best) + 1, axes.end());
    return best_score;
  }

  static LoopAxis axis(const Axis& a, AxisRole role = AxisRole::Serial) { return {a.symbol, a.extent, role}; }

  double hint_of(const Axis& a) const { return static_cast<double>(work_.hint(a.extent)); }

  // ---- Flat

  void plan_flat() {
    plan_.kind = NestKind::Flat;
    plan_.kept.resize(nest_.stages.size());
    plan_.loops.resize(nest_.stages.size());
    if (rows_.empty()) return;
    choose_last(rows_, 0, true);
    const Axis vector = rows_.back();
    if (rows_.size() == 1) {
      plan_.parallel.push_back(axis(vector, AxisRole::Vector));
      return;
    }
    if (plan_tile(vector)) return;
    rows_.pop_back();
    std::vector<LoopAxis>& loops = plan_.loops[0];
    double outer = 1;
    size_t n = 0;
    const double wanted = 8.0 * work_.target.threads;
    for (; n < rows_.size() && outer < wanted; ++n) {
      plan_.parallel.push_back(axis(rows_[n]));
      outer *= hint_of(rows_[n]);
    }
    for (; n < rows_.size(); ++n) loops.push_back(axis(rows_[n]));
    if (outer < wanted && hint_of(vector) > 2 * kChunk) {
      cut(vector);
    } else {
      loops.push_back(axis(vector, AxisRole::Vector));
    }
  }

  // The vector axis in pieces, the piece number being the last parallel axis.
  void cut(const Axis& vector) {
    const Expr pieces = sym::ceil_div(vector.extent, kChunk);
    const Axis piece{work_.context.fresh_index("c", pieces), pieces};
    const Expr length = sym::min(kChunk, vector.extent - piece.symbol * kChunk);
    const Axis within{work_.context.fresh_index("v", kChunk), length};
    plan_.parallel.push_back(axis(piece));
    plan_.loops[0].push_back(axis(within, AxisRole::Vector));
    apply({{vector.symbol, piece.symbol * kChunk + within.symbol}});
  }

  // A load that is contiguous along another axis than the stores: both axes in tiles.
  bool plan_tile(const Axis& vector) {
    const Axis* across = nullptr;
    for (const Access& a : accesses_[0]) {
      const Walk walk = walk_of(a.address, vector.symbol);
      if (walk == Walk::Gather || (a.is_store && walk != Walk::Unit)) return false;
      if (walk != Walk::Strided) continue;
      const Axis* unit = nullptr;
      for (const Axis& row : rows_)
        if (walk_of(a.address, row.symbol) == Walk::Unit) unit = &row;
      if (unit == nullptr || (across != nullptr && unit->symbol != across->symbol)) return false;
      across = unit;
    }
    if (across == nullptr || hint_of(*across) < 16 || hint_of(vector) < 16) return false;
    plan_.kind = NestKind::Tile2D;
    const Axis tile = *across;
    for (const Axis& row : rows_)
      if (row.symbol != tile.symbol && row.symbol != vector.symbol) plan_.parallel.push_back(axis(row));
    const Expr blocks = sym::ceil_div(tile.extent, kTile);
    const Axis block{work_.context.fresh_index("c", blocks), blocks};
    const Axis within{work_.context.fresh_index("v", kTile), sym::min(kTile, tile.extent - block.symbol * kTile)};
    plan_.parallel.push_back(axis(block));
    plan_.loops[0] = {axis(within), axis(vector, AxisRole::Vector)};
    apply({{tile.symbol, block.symbol * kTile + within.symbol}});
    return true;
  }

  // ---- Rows with stages

  void plan_rows() {
    std::vector<double> weight(nest_.stages.size(), 1);
    for (size_t s = 0; s < weight.size(); ++s) {
      for (const Axis& a : kept_[s]) weight[s] *= hint_of(a);
      for (const Axis& a : loops_[s]) weight[s] *= hint_of(a);
    }
    double inner = 0;
    bool has_kept = false;
    for (size_t s = 0; s < nest_.stages.size(); ++s) {
      const NestStage& stage = nest_.stages[s];
      has_kept |= !stage.kept.empty();
      if (loops_[s].empty()) continue;
      const double last = choose_last(loops_[s], s, !stage.ordered);
      inner += weight[s] * last;
    }
    const size_t lane = has_kept || nest_.chunk > 1 ? rows_.size() : best_lane(weight, inner);
    if (lane < rows_.size()) std::rotate(rows_.begin() + static_cast<ptrdiff_t>(lane), rows_.begin() + static_cast<ptrdiff_t>(lane) + 1, rows_.end());
    const bool lanes = lane < rows_.size();
    for (size_t k = 0; k < rows_.size(); ++k)
      plan_.parallel.push_back(axis(rows_[k], lanes && k + 1 == rows_.size() ? AxisRole::Vector : AxisRole::Serial));
    plan_.kept.resize(nest_.stages.size());
    plan_.loops.resize(nest_.stages.size());
    for (size_t s = 0; s < nest_.stages.size(); ++s) {
      for (const Axis& a : kept_[s]) plan_.kept[s].push_back(axis(a));
      for (const Axis& a : loops_[s]) plan_.loops[s].push_back(axis(a));
      if (lanes) continue;
      const bool kept_vector = !kept_[s].empty() && nest_.kind == NestKind::ColumnReduce;
      if (kept_vector) {
        plan_.kept[s].back().role = AxisRole::Vector;
      } else if (!plan_.loops[s].empty()) {
        plan_.loops[s].back().role = AxisRole::Vector;
      }
    }
    plan_.kind = nest_.kind != NestKind::Flat ? nest_.kind
                 : lanes                      ? NestKind::ColumnReduce
                 : rows_.empty()              ? NestKind::FullReduce
                                              : NestKind::RowStages;
  }

  // The row axis that is better as vector axis than the stages' own inner axes; rows_.size(): none.
  size_t best_lane(const std::vector<double>& weight, double inner) const {
    size_t best = rows_.size();
    double best_score = inner + 1e-9;
    for (size_t k = 0; k < rows_.size(); ++k) {
      if (hint_of(rows_[k]) <= kShort) continue;
      double sum = 0;
      for (size_t s = 0; s < nest_.stages.size(); ++s) {
        sum += weight[s] * score(s, rows_[k].symbol);
      }
      if (sum > best_score) {
        best = k;
        best_score = sum;
      }
    }
    return best;
  }

  Work& work_;
  const Nest& nest_;
  Plan plan_;
  std::vector<Axis> rows_;
  std::vector<std::vector<Axis>> kept_, loops_;
  std::vector<std::vector<Access>> accesses_, indices_;
};

}  // namespace

Plan plan_loops(Work& work, const Nest& nest) { return Planner(work, nest).run(); }

Shaped shape(Work& work, Nest nest) {
  const Plan plan = plan_loops(work, nest);
  return make_kernel(work, nest, plan);
}

}  // namespace braze::schedule
