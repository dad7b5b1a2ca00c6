// Nests of the kinds that have loops of their own: pieces of a Cat, scans, scatters.
#include <algorithm>

#include "braze/schedule/cost.h"
#include "braze/schedule/nest.h"
#include "braze/support/check.h"

namespace braze::schedule {
namespace {

using loop::Axis;
using loop::Indices;

Store overwrite(int32_t buffer, Expr address, const Scalar* value) {
  return {buffer, address, value, false, {}, Store::Combine::Overwrite};
}

// A flat group whose Cats all cut the row `cut` in the same pieces.
class PieceBuilder {
 public:
  PieceBuilder(Work& work, const Group& group, const std::vector<bool>& stored) : work_(work), group_(group), stored_(stored) {
    for (const Member& m : group.members) {
      const Buffer& b = work.buffer(m.buffer);
      if (b.kind != BufferKind::Cat) continue;
      cut_ = m.at[static_cast<size_t>(b.cat_axis)];
      pieces_ = &b.pieces;
      break;
    }
    const auto place = std::ranges::find_if(group.rows, [&](const Axis& axis) { return axis.symbol == cut_; });
    CHECK(place != group.rows.end(), "the pieces' axis is no row");
    outer_.assign(group.rows.begin(), place);
    inner_.assign(place + 1, group.rows.end());
  }

  std::vector<Nest> run() {
    std::vector<Nest> out;
    const double rows = work_.hint_numel(outer_);
    const double ns = work_.hint_numel(group_.rows) * kNsPerByte * 8;
    const bool in_stages = rows >= 2.0 * work_.target.threads || ns < 2 * kWorthThreadsNs;
    if (in_stages) {
      Nest nest;
      nest.kind = NestKind::Cat;
      nest.rows = outer_;
      for (size_t piece = 0; piece < pieces_->size(); ++piece) nest.stages.push_back(stage(piece));
      out.push_back(std::move(nest));
    } else {
      for (size_t piece = 0; piece < pieces_->size(); ++piece) {
        Nest nest;
        NestStage only = stage(piece);
        nest.rows = outer_;
        nest.rows.insert(nest.rows.end(), only.loops.begin(), only.loops.end());
        only.loops.clear();
        nest.stages.push_back(std::move(only));
        out.push_back(std::move(nest));
      }
    }
    for (Nest& nest : out)
      for (const Member& m : group_.members) nest.note += (nest.note.empty() ? "" : ", ") + work_.buffer(m.buffer).name;
    return out;
  }

 private:
  NestStage stage(size_t number) {
    NestStage out;
    const loop::Piece& piece = (*pieces_)[number];
    Substitution rows;
    Expr at = piece.begin;
    if (piece.extent != Expr(1)) {
      const Axis along{work_.context.fresh_index("l", piece.extent), piece.extent};
      at = at + along.symbol;
      out.loops.push_back(along);
    }
    rows.emplace_back(cut_, at);
    for (const Axis& axis : inner_) {
      const Axis own{work_.context.fresh_index("l", axis.extent), axis.extent};
      rows.emplace_back(axis.symbol, own.symbol);
      out.loops.push_back(own);
    }
    for (const Member& m : group_.members) {
      if (!stored_[static_cast<size_t>(m.buffer)]) continue;
      Substitution axes;
      const Buffer& b = work_.buffer(m.buffer);
      for (size_t k = 0; k < m.at.size(); ++k) axes.emplace_back(b.axes[k].symbol, sym::substitute(m.at[k], rows));
      out.stores.push_back(overwrite(b.id, address_in(b, axes), value(number, body_of(b, number), axes, {})));
    }
    return out;
  }

  const Scalar* body_of(const Buffer& b, size_t piece) const {
    return work_.statement(b.id).bodies[b.kind == BufferKind::Cat ? piece : 0];
  }

  const Scalar* value(size_t piece, const Scalar* body, const Substitution& symbols, std::span<const Binding> scope) {
    return work_.scalars.rewrite(
        body, symbols, [&](const Scalar& load, const Indices& indices, const std::vector<Binding>& bindings) {
          std::vector<Binding> all(scope.begin(), scope.end());
          for (const Binding& binding : bindings)
            if (std::ranges::find(all, binding) == all.end()) all.push_back(binding);
          const Buffer& b = work_.buffer(load.buffer);
          if (group_.find(load.buffer) == nullptr)
            return work_.scalars.load(load.buffer, load.dtype, {loop::address(indices, b.strides)}, std::move(all));
          Substitution axes;
          for (size_t k = 0; k < indices.size(); ++k)
            if (b.axes[k].symbol != indices[k]) axes.emplace_back(b.axes[k].symbol, indices[k]);
          return value(piece, body_of(b, piece), axes, all);
        });
  }

  Work& work_;
  const Group& group_;
  const std::vector<bool>& stored_;
  Expr cut_;
  const std::vector<loop::Piece>* pieces_ = nullptr;
  std::vector<Axis> outer_, inner_;      // rows before and after the cut one
};

Substitution units_to_zero(const std::vector<Axis>& axes) {
  Substitution out;
  for (const Axis& axis : axes)
    if (axis.extent == Expr(1)) out.emplace_back(axis.symbol, 0);
  return out;
}

Store::Combine combine_of(const Buffer& b) {
  if (!b.accumulate_updates) return Store::Combine::Overwrite;
  switch (b.reduce) {
    case ReduceOp::Sum: return Store::Combine::Add;
    case ReduceOp::Prod: return Store::Combine::Mul;
    case ReduceOp::Max: case ReduceOp::Any: return Store::Combine::Max;
    case ReduceOp::Min: case ReduceOp::All: return Store::Combine::Min;
    case ReduceOp::ArgMax: case ReduceOp::ArgMin: case ReduceOp::Xor: break;
  }
  CHECK(false, "updates of " << b.name << " can't be combined");
  return Store::Combine::Overwrite;
}

}  // namespace

std::vector<Nest> make_piece_nests(Work& work, const Group& group, const std::vector<bool>& stored) {
  return PieceBuilder(work, group, stored).run();
}

Nest make_scan_nest(Work& work, const Buffer& b) {
  Nest nest;
  nest.kind = NestKind::Scan;
  nest.note = b.name;
  const Substitution units = units_to_zero(b.axes);
  NestStage stage;
  stage.scan = stage.ordered = true;
  stage.exclusive = b.exclusive;
  for (size_t k = 0; k < b.axes.size(); ++k) {
    if (static_cast<int32_t>(k) == b.scan_axis) {
      stage.loops.push_back(b.axes[k]);
    } else if (b.axes[k].extent != Expr(1)) {
      nest.rows.push_back(b.axes[k]);
    }
  }
  const Scalar* body = in_memory(work, work.statement(b.id).bodies[0], units);
  stage.accumulators.push_back({0, b.reduce, b.accumulate, work.scalars.cast(body, b.accumulate), 0});
  const Scalar* running = work.scalars.cast(work.scalars.reduced(b.accumulate, 0), b.dtype);
  stage.inner_stores.push_back(overwrite(b.id, address_in(b, units), running));
  nest.stages.push_back(std::move(stage));
  return nest;
}

std::vector<Nest> make_scatter_nests(Work& work, const Buffer& b) {
  const Statement& statement = work.statement(b.id);
  std::vector<Nest> out(2);
  Nest& initial = out[0];
  initial.note = b.name + " before the updates";
  const Substitution units = units_to_zero(b.axes);
  for (const Axis& axis : b.axes)
    if (axis.extent != Expr(1)) initial.rows.push_back(axis);
  initial.stages.resize(1);
  initial.stages[0].stores.push_back(overwrite(b.id, address_in(b, units), in_memory(work, statement.bodies[0], units)));

  Nest& updates = out[1];
  updates.kind = NestKind::ScatterAdd;
  updates.note = b.name;
  NestStage stage;
  stage.ordered = true;   // updates of one place happen one after the other, lanes of a vector too
  const Substitution update_units = units_to_zero(b.update_axes);
  // Along an axis that is itself an index of the result, no two updates meet: these are the rows.
  for (const Axis& axis : b.update_axes) {
    if (axis.extent == Expr(1)) continue;
    const bool apart = std::ranges::find(b.update_at, axis.symbol) != b.update_at.end();
    (apart ? updates.rows : stage.loops).push_back(axis);
  }
  Indices at;
  for (Expr e : b.update_at) at.push_back(sym::substitute(e, update_units));
  Store store = overwrite(b.id, loop::address(at, b.strides), work.scalars.cast(in_memory(work, statement.bodies[1], update_units), b.dtype));
  store.combine = combine_of(b);
  for (size_t k = 0; k < b.update_bindings.size(); ++k)
    store.bindings.push_back({b.update_bindings[k].symbol, in_memory(work, statement.bodies[2 + k], update_units), b.update_bindings[k].extent});
  stage.stores.push_back(std::move(store));
  updates.stages.push_back(std::move(stage));
  return out;
}

}  // namespace braze::schedule
