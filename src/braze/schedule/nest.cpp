#include "braze/schedule/nest.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "braze/schedule/cost.h"
#include "braze/support/check.h"

namespace braze::schedule {
namespace {

using loop::Axis;
using loop::Indices;

constexpr int64_t kMostScratchBytes = 48 << 10;   // per thread: it must stay in L1 or near

bool is_arg(ReduceOp op) { return op == ReduceOp::ArgMax || op == ReduceOp::ArgMin; }

// Builds the nest of Pointwise and Reduction members.
class Builder {
 public:
  Builder(Work& work, const Group& group, const std::vector<bool>& stored) : work_(work), group_(group), stored_(stored) {
    for (size_t i = 0; i < group.members.size(); ++i) number_[group.members[i].buffer] = i;
    parts_.resize(group.members.size());
  }

  Nest run() {
    nest_.rows = group_.rows;
    assign_stages();
    choose_scratch();
    for (size_t i = 0; i < parts_.size(); ++i) emit(i);
    order_stages();
    for (const Member& m : group_.members) {
      nest_.note += (nest_.note.empty() ? "" : ", ") + work_.buffer(m.buffer).name;
      if (const auto it = work_.running.find(m.buffer); it != work_.running.end()) nest_.chunk = std::max(nest_.chunk, it->second);
    }
    return std::move(nest_);
  }

 private:
  struct Part {                        // of a member
    int level = 0;                     // reductions that must be complete before
    int stage = -1;                    // where it is evaluated for its own sake; -1: only by its readers
    std::vector<int> evaluated_in;     // stages that evaluate it, if it has no scratch row
    int scratch = -1, scratch_stage = -1;
    int accumulator = -1;
    bool stored = false, gathered = false;
    std::vector<size_t> reads;         // members
  };
  struct StageKey {
    int level;
    std::vector<Expr> extents;
  };

  const Member& member(size_t i) const { return group_.members[i]; }
  const Buffer& buffer(size_t i) const { return work_.buffer(member(i).buffer); }
  bool is_reduction(size_t i) const { return buffer(i).kind == BufferKind::Reduction; }

  int stage_for(size_t i, int level) {
    std::vector<Expr> extents;
    for (const Axis& axis : member(i).inner) extents.push_back(axis.extent);
    for (size_t s = 0; s < keys_.size(); ++s) {
      if (keys_[s].level != level || keys_[s].extents.size() != extents.size()) continue;
      bool same = true;
      for (size_t k = 0; k < extents.size(); ++k) same = same && work_.equal(keys_[s].extents[k], extents[k]);
      if (same) return static_cast<int>(s);
    }
    keys_.push_back({level, extents});
    NestStage stage;
    for (const Axis& axis : member(i).inner)
      stage.loops.push_back({work_.context.fresh_index("l", axis.extent), axis.extent});
    nest_.stages.push_back(std::move(stage));
    return static_cast<int>(keys_.size()) - 1;
  }

  // Members of which a reader takes elements at computed places of the row: they are written whole before it.
  void find_gathered() {
    for (size_t i = 0; i < parts_.size(); ++i)
      for (const Read& read : work_.statement(member(i).buffer).reads) {
        const auto it = number_.find(read.buffer);
        if (it == number_.end() || is_reduction(it->second) || read.load->bindings.empty()) continue;
        Part& part = parts_[it->second];
        const Member& m = member(it->second);
        for (size_t k = 0; k < m.at.size(); ++k)
          for (const Axis& axis : m.inner)
            part.gathered |= m.at[k] == axis.symbol && std::ranges::any_of(read.load->bindings, [&](const Binding& b) {
                               return sym::depends_on(read.load->indices[k], b.symbol);
                             });
        int64_t bytes = size_of(buffer(it->second).dtype);
        for (const Axis& axis : m.inner) bytes *= work_.hint(axis.extent);
        part.gathered &= bytes <= kMostScratchBytes / 2;
      }
  }

  void assign_stages() {
    find_gathered();
    for (size_t i = 0; i < parts_.size(); ++i) {
      Part& part = parts_[i];
      for (const Read& read : work_.statement(member(i).buffer).reads) {
        const auto it = number_.find(read.buffer);
        if (it == number_.end() || std::ranges::find(part.reads, it->second) != part.reads.end()) continue;
        part.reads.push_back(it->second);
        const int ready = parts_[it->second].level + (is_reduction(it->second) || parts_[it->second].gathered ? 1 : 0);
        part.level = std::max(part.level, ready);
      }
      part.stored = stored_[static_cast<size_t>(member(i).buffer)];
    }
    // The last level at which a value is needed decides where a pointwise store goes: as early as possible.
    for (size_t i = 0; i < parts_.size(); ++i)
      if (is_reduction(i) || parts_[i].stored || parts_[i].gathered) parts_[i].stage = stage_for(i, parts_[i].level);
    for (size_t i = parts_.size(); i-- > 0;) {
      Part& part = parts_[i];
      if (part.stage >= 0) add_once(part.evaluated_in, part.stage);
      if (is_reduction(i)) part.evaluated_in = {part.stage};
      for (size_t read : part.reads)
        if (!is_reduction(read))
          for (int s : part.evaluated_in) add_once(parts_[read].evaluated_in, s);
    }
  }

  static void add_once(std::vector<int>& v, int x) {
    if (std::ranges::find(v, x) == v.end()) v.push_back(x);
  }

  // Cost of evaluating a member for one element, in operations: what its body computes and loads that is not the same
  // for the whole row.
  double cost_of(size_t i, std::vector<double>& known) {
    if (known[i] >= 0) return known[i];
    double cost = 0;
    const Member& m = member(i);
    std::unordered_map<const Scalar*, bool> moving;
    for (const Scalar* body : work_.statement(m.buffer).bodies) {
      visit(body, [&](const Scalar& s) {
        const auto it = s.op == ScalarOp::Load && !work_.running.contains(s.buffer) ? number_.find(s.buffer) : number_.end();
        bool moves = (s.op == ScalarOp::Load || s.op == ScalarOp::Index) && moves_along_row(s, m);
        if (it != number_.end() && is_reduction(it->second)) moves = false;
        for (const Scalar* operand : s.operands) moves = moves || moving[operand];
        for (const Binding& b : s.bindings) moves = moves || moving[b.value];
        moving[&s] = moves;
        if (!moves) return;
        cost += weight_of(s.op, s.dtype);
        if (s.op != ScalarOp::Load) return;
        if (it == number_.end()) {
          cost += s.bindings.empty() ? 1 : 1.5;
        } else {
          cost += parts_[it->second].scratch >= 0 ? 1 : cost_of(it->second, known);
        }
      });
    }
    return known[i] = cost;
  }

  // False if the load's address is the same for the whole row: it is loaded once.
  bool moves_along_row(const Scalar& load, const Member& m) const {
    for (size_t k = 0; k < m.at.size(); ++k) {
      const Expr axis = buffer_of(m).axes[k].symbol;
      const bool inner = std::ranges::any_of(m.inner, [&](const Axis& a) { return sym::depends_on(m.at[k], a.symbol); });
      if (inner && std::ranges::any_of(load.indices, [&](Expr e) { return sym::depends_on(e, axis); })) return true;
    }
    for (const Axis& axis : buffer_of(m).reduce_axes)
      if (std::ranges::any_of(load.indices, [&](Expr e) { return sym::depends_on(e, axis.symbol); })) return true;
    return false;
  }
  const Buffer& buffer_of(const Member& m) const { return work_.buffer(m.buffer); }

  // A pointwise member that several stages evaluate is kept in a scratch row if evaluating costs more than a load.
  void choose_scratch() {
    int64_t used = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      Part& part = parts_[i];
      if (is_reduction(i) || part.evaluated_in.size() < 2 || member(i).inner.empty()) continue;
      std::vector<double> known(parts_.size(), -1);
      const double again = static_cast<double>(part.evaluated_in.size() - 1) * (cost_of(i, known) - 1);
      if (again <= 1.5 && !part.gathered) continue;
      Expr elements = 1;
      int64_t bytes = size_of(buffer(i).dtype);
      for (const Axis& axis : member(i).inner) {
        elements = elements * axis.extent;
        bytes *= work_.hint(axis.extent);
      }
      if (used + bytes > kMostScratchBytes) continue;
      const int first = *std::ranges::min_element(part.evaluated_in, {}, [&](int s) { return rank_of(s); });
      if (keys_[static_cast<size_t>(first)].extents.size() != member(i).inner.size() ||
          !same_loops(first, member(i)))
        continue;
      used += bytes;
      part.scratch = static_cast<int>(nest_.scratch.size());
      part.scratch_stage = first;
      nest_.scratch.push_back({buffer(i).dtype, elements});
    }
  }

  bool same_loops(int stage, const Member& m) const {
    const auto& extents = keys_[static_cast<size_t>(stage)].extents;
    for (size_t k = 0; k < extents.size(); ++k)
      if (!work_.equal(extents[k], m.inner[k].extent)) return false;
    return true;
  }

  // Stages run by level; those with accumulators before those that only store.
  std::tuple<int, int, int> rank_of(int stage) const {
    bool accumulates = false;
    for (size_t i = 0; i < parts_.size(); ++i) accumulates |= is_reduction(i) && parts_[i].stage == stage;
    return {keys_[static_cast<size_t>(stage)].level, accumulates ? 0 : 1, stage};
  }

  // The values of a member's axes inside a stage: its inner axes are the stage's loops.
  Substitution axes_in(size_t i, int stage) const {
    Substitution inner, out;
    const Member& m = member(i);
    const auto& loops = nest_.stages[static_cast<size_t>(stage)].loops;
    CHECK(loops.size() == m.inner.size());
    for (size_t k = 0; k < loops.size(); ++k) inner.emplace_back(m.inner[k].symbol, loops[k].symbol);
    for (size_t k = 0; k < m.at.size(); ++k) {
      const Expr value = inner.empty() ? m.at[k] : sym::substitute(m.at[k], inner);
      if (value != buffer(i).axes[k].symbol) out.emplace_back(buffer(i).axes[k].symbol, value);
    }
    if (is_reduction(i))
      for (size_t k = 0; k < loops.size(); ++k) out.emplace_back(buffer(i).reduce_axes[k].symbol, loops[k].symbol);
    return out;
  }

  // The body with loads of members replaced by what holds or computes them in this stage, and addresses for the rest.
  const Scalar* value_in(int stage, const Scalar* body, const Substitution& symbols, std::span<const Binding> scope) {
    return work_.scalars.rewrite(
        body, symbols, [&](const Scalar& load, const Indices& indices, const std::vector<Binding>& bindings) {
          std::vector<Binding> all(scope.begin(), scope.end());
          for (const Binding& binding : bindings)
            if (std::ranges::find(all, binding) == all.end()) all.push_back(binding);
          const auto it = number_.find(load.buffer);
          if (it == number_.end() || work_.running.contains(load.buffer)) return load_memory(load, indices, std::move(all));
          const size_t i = it->second;
          if (is_reduction(i)) return result_of(i);
          if (const Scalar* kept = load_scratch(i, stage, indices, all)) return kept;
          Substitution inner;
          for (size_t k = 0; k < indices.size(); ++k)
            if (buffer(i).axes[k].symbol != indices[k]) inner.emplace_back(buffer(i).axes[k].symbol, indices[k]);
          const Scalar* value = value_in(stage, work_.statement(member(i).buffer).bodies[0], inner, all);
          CHECK(keeps_checks(value, bindings), "an index would not be checked");
          return value;
        });
  }

  const Scalar* load_memory(const Scalar& load, const Indices& indices, std::vector<Binding> bindings) {
    const Expr address = loop::address(indices, work_.buffer(load.buffer).strides);
    return work_.scalars.load(load.buffer, load.dtype, {address}, std::move(bindings));
  }

  const Scalar* load_scratch(size_t i, int stage, const Indices& indices, const std::vector<Binding>& bindings) {
    const Part& part = parts_[i];
    if (part.scratch < 0 || part.scratch_stage == stage) return nullptr;
    const Member& m = member(i);
    Indices inner;
    for (const Axis& axis : m.inner) {
      Expr at = -1;
      for (size_t k = 0; k < m.at.size(); ++k)
        if (m.at[k] == axis.symbol) at = indices[k];
      if (at == Expr(-1)) return nullptr;      // a digit of an axis: computed again instead
      inner.push_back(at);
    }
    return work_.scalars.load(-1 - part.scratch, buffer(i).dtype, {row_address(m, inner)}, bindings);
  }

  static Expr row_address(const Member& m, const Indices& inner) {
    Expr address = 0, stride = 1;
    for (size_t k = inner.size(); k-- > 0;) {
      address = address + inner[k] * stride;
      stride = stride * m.inner[k].extent;
    }
    return address;
  }

  Expr address_of(size_t i, const Substitution& symbols) const { return address_in(buffer(i), symbols); }

  void emit(size_t i) {
    const Part& part = parts_[i];
    const Buffer& b = buffer(i);
    const Scalar* body = work_.statement(b.id).bodies[0];
    if (is_reduction(i)) {
      emit_reduction(i, b, body);
    } else if (part.stored) {
      const Substitution symbols = axes_in(i, part.stage);
      Store store{b.id, address_of(i, symbols), value_in(part.stage, body, symbols, {}), false, {}, Store::Combine::Overwrite};
      add_store(part.stage, std::move(store), true);
    }
    if (part.scratch >= 0) {
      const Substitution symbols = axes_in(i, part.scratch_stage);
      Indices inner;
      for (const Axis& axis : nest_.stages[static_cast<size_t>(part.scratch_stage)].loops) inner.push_back(axis.symbol);
      Store store{-1 - part.scratch, row_address(member(i), inner), value_in(part.scratch_stage, body, symbols, {}), false,
                  {}, Store::Combine::Overwrite};
      add_store(part.scratch_stage, std::move(store), true);
    }
  }

  void add_store(int stage, Store&& store, bool inside) {
    NestStage& s = nest_.stages[static_cast<size_t>(stage)];
    (inside ? s.inner_stores : s.stores).push_back(std::move(store));
  }

  void emit_reduction(size_t i, const Buffer& b, const Scalar* body) {
    Part& part = parts_[i];
    const Substitution symbols = axes_in(i, part.stage);
    NestStage& stage = nest_.stages[static_cast<size_t>(part.stage)];
    Accumulator acc;
    acc.number = part.accumulator = next_accumulator_++;
    acc.op = b.reduce;
    acc.dtype = b.accumulate;
    acc.value = work_.scalars.cast(value_in(part.stage, body, symbols, {}), acc.dtype);
    if (is_arg(b.reduce)) {
      Indices at;
      loop::Shape extents;
      for (const Axis& axis : stage.loops) {
        at.push_back(axis.symbol);
        extents.push_back(axis.extent);
      }
      acc.index = loop::flatten(at, extents);
      stage.ordered = true;
    }
    stage.accumulators.push_back(acc);
    if (!part.stored) return;
    stage.stores.push_back({b.id, address_of(i, symbols), result_of(i), false, {}, Store::Combine::Overwrite});
  }

  // The finished value of a reduction, rounded to its buffer's type.
  const Scalar* result_of(size_t i) {
    const Buffer& b = buffer(i);
    const DType running = is_arg(b.reduce) ? DType::I64 : b.accumulate;
    return work_.scalars.cast(work_.scalars.reduced(running, parts_[i].accumulator), b.dtype);
  }

  void order_stages() {
    std::vector<size_t> order(nest_.stages.size());
    for (size_t s = 0; s < order.size(); ++s) order[s] = s;
    std::ranges::stable_sort(order, {}, [&](size_t s) { return rank_of(static_cast<int>(s)); });
    std::vector<NestStage> stages;
    for (size_t s : order) {
      NestStage& stage = nest_.stages[s];
      // Without accumulators there is one list of stores, inside the loops.
      if (stage.accumulators.empty()) {
        stage.stores = std::move(stage.inner_stores);
        stage.inner_stores.clear();
      }
      if (!stage.accumulators.empty() || !stage.stores.empty()) stages.push_back(std::move(stage));
    }
    nest_.stages = std::move(stages);
  }

  Work& work_;
  const Group& group_;
  const std::vector<bool>& stored_;
  std::unordered_map<int32_t, size_t> number_;   // buffer -> member
  std::vector<Part> parts_;
  std::vector<StageKey> keys_;
  Nest nest_;
  int32_t next_accumulator_ = 0;
};

}  // namespace

Expr address_in(const Buffer& buffer, const Substitution& symbols) {
  Expr address = 0;
  for (size_t k = 0; k < buffer.axes.size(); ++k)
    if (buffer.axes[k].extent != Expr(1))
      address = address + sym::substitute(buffer.axes[k].symbol, symbols) * buffer.strides[k];
  return address;
}

const Scalar* in_memory(Work& work, const Scalar* body, const Substitution& symbols) {
  return work.scalars.rewrite(
      body, symbols, [&](const Scalar& load, const Indices& indices, const std::vector<Binding>& bindings) {
        return work.scalars.load(load.buffer, load.dtype, {loop::address(indices, work.buffer(load.buffer).strides)}, bindings);
      });
}

std::vector<Nest> make_nests(Work& work, const Group& group, const std::vector<bool>& stored) {
  for (const Member& m : group.members)
    if (work.buffer(m.buffer).kind == BufferKind::Cat) return make_piece_nests(work, group, stored);
  const Buffer& first = work.buffer(group.members[0].buffer);
  std::vector<Nest> out;
  switch (first.kind) {
    case BufferKind::Scan: out.push_back(make_scan_nest(work, first)); break;
    case BufferKind::Scatter: out = make_scatter_nests(work, first); break;
    case BufferKind::Pointwise: case BufferKind::Reduction: out.push_back(Builder(work, group, stored).run()); break;
    case BufferKind::Cat: case BufferKind::Input: case BufferKind::Extern: CHECK(false, "no nest for " << first.name); break;
  }
  return out;
}

}  // namespace braze::schedule
