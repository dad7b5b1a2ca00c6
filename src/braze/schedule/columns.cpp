// Sums over columns in the kernel that works on the rows of the same data (a norm's backward pass): each row adds to a
// partial sum of its chunk of rows, which stays in L1; a small kernel then adds up the chunks.
#include <algorithm>

#include "braze/schedule/groups.h"

namespace braze::schedule {
namespace {

using loop::Axis;

constexpr int64_t kLeastChunk = 16, kMostChunk = 256;   // rows that add to one partial sum

const Member* reduction_of(const Work& work, const Group& group) {
  const Member* found = nullptr;
  for (const Member& m : group.members) {
    if (work.buffer(m.buffer).kind == BufferKind::Reduction) {
      if (found != nullptr) return nullptr;
      found = &m;
    } else if (!m.inner.empty()) {
      return nullptr;
    }
  }
  return found;
}

std::vector<Axis> without_units(const std::vector<Axis>& axes) {
  std::vector<Axis> out;
  for (const Axis& axis : axes)
    if (axis.extent != Expr(1)) out.push_back(axis);
  return out;
}

bool same_extents(const Work& work, const std::vector<Axis>& a, const std::vector<Axis>& b) {
  return std::ranges::equal(a, b, [&](const Axis& x, const Axis& y) { return work.equal(x.extent, y.extent); });
}

class Columns {
 public:
  Columns(Work& work, const Group& rows, const Group& columns) : work_(work), rows_(rows), columns_(columns) {}

  ColumnMerge run() {
    if (const char* reason = match()) return {std::nullopt, {}, reason};
    Member running = make_running();
    Group rows = rows_, total = columns_;
    rows.members.push_back(std::move(running));
    std::ranges::stable_sort(rows.members, {}, [&](const Member& m) { return work_.at(m.buffer).rank; });
    for (Member& m : total.members)
      if (m.buffer == reduced_->buffer) m.inner = work_.buffer(m.buffer).reduce_axes;
    return {std::move(rows), std::move(total), ""};
  }

 private:
  const char* match() {
    reduced_ = reduction_of(work_, columns_);
    if (reduced_ == nullptr || work_.buffer(reduced_->buffer).reduce != ReduceOp::Sum) return "no single sum";
    if (!rows_.has_reduction || rows_.alone || rows_.rows.empty() || columns_.rows.empty()) return "no rows";
    over_ = without_units(work_.buffer(reduced_->buffer).reduce_axes);
    if (!same_extents(work_, over_, rows_.rows)) return "rows of different extents";
    if (std::ranges::none_of(rows_.members, [&](const Member& m) { return same_extents(work_, without_units(m.inner), columns_.rows); }))
      return "columns of different extents";
    return read_in_row() ? nullptr : "read at other rows";
  }

  // What the sum reads of the rows' own members it must read in the same row.
  bool read_in_row() const {
    const Buffer& b = work_.buffer(reduced_->buffer);
    Substitution at;
    for (size_t k = 0; k < over_.size(); ++k) at.emplace_back(over_[k].symbol, rows_.rows[k].symbol);
    for (const Read& read : work_.statement(b.id).reads) {
      const Member* producer = rows_.find(read.buffer);
      if (producer == nullptr) continue;
      if (!read.load->bindings.empty()) return false;
      for (size_t k = 0; k < producer->at.size(); ++k) {
        const Expr index = sym::substitute(read.load->indices[k], at);
        const auto is_at = [&](const Axis& axis) { return axis.symbol == producer->at[k]; };
        if (std::ranges::any_of(producer->inner, is_at)) {
          if (std::ranges::any_of(rows_.rows, [&](const Axis& row) { return sym::depends_on(index, row.symbol); })) return false;
        } else if (index != producer->at[k]) {
          return false;
        }
      }
    }
    return true;
  }

  // About eight chunks a thread.
  int64_t chunk() const {
    const double wanted = work_.hint_numel(rows_.rows) / (8.0 * work_.target.threads);
    int64_t rows = kLeastChunk;
    while (static_cast<double>(rows * 2) <= wanted && rows < kMostChunk) rows *= 2;
    return rows;
  }

  // The partial sums, [chunk][columns]. Further axes of stride 0 stand for the rows that add to one place.
  Member make_running() {
    const Buffer& b = work_.buffer(reduced_->buffer);
    const int64_t rows = chunk();
    Shape extents;
    std::vector<Expr> symbols;
    for (const Axis& row : rows_.rows) {
      extents.push_back(row.extent);
      symbols.push_back(row.symbol);
    }
    const Expr count = graph::numel(extents), chunks = sym::ceil_div(count, rows);

    Buffer* partial = work_.arena.make<Buffer>(b);
    partial->id = static_cast<int32_t>(work_.buffers.size());
    partial->name = b.name + "_part";
    partial->kind = BufferKind::Pointwise;
    partial->dtype = b.accumulate;
    partial->flexible = true;
    partial->axes = {{work_.context.fresh_index("c", chunks), chunks}};
    partial->sizes = {chunks};
    partial->reduce_axes.clear();
    Substitution own, total;
    Member member{partial->id, {}, {}};
    std::vector<Expr> place{partial->axes[0].symbol}, read;
    for (const Axis& axis : b.axes) {
      const bool unit = axis.extent == Expr(1);
      const Axis made{work_.context.fresh_index("v", axis.extent), axis.extent};
      partial->axes.push_back(made);
      partial->sizes.push_back(axis.extent);
      own.emplace_back(axis.symbol, made.symbol);
      place.push_back(unit ? Expr(0) : made.symbol);
      if (!unit) member.inner.push_back({work_.context.fresh_index("v", axis.extent), axis.extent});
      member.at.push_back(unit ? Expr(0) : member.inner.back().symbol);
      read.push_back(unit ? Expr(0) : axis.symbol);
    }
    partial->strides = graph::contiguous_strides(partial->sizes);
    std::vector<Expr> number;
    for (size_t k = 0; k < over_.size(); ++k) {
      const Axis made{work_.context.fresh_index("w", over_[k].extent), over_[k].extent};
      partial->axes.push_back(made);
      partial->sizes.push_back(over_[k].extent);
      partial->strides.push_back(0);
      own.emplace_back(over_[k].symbol, made.symbol);
      place.push_back(0);
      read.push_back(0);
      number.push_back(made.symbol);
      member.at.push_back(rows_.rows[k].symbol);
    }
    member.at.insert(member.at.begin(), sym::floor_div(loop::flatten(symbols, extents), rows));

    // The first row of a chunk starts from zero.
    ScalarBuilder& make = work_.scalars;
    const Scalar* later = make.cast(make.index(sym::ne(sym::mod(loop::flatten(number, extents), rows), 0)), DType::Bool);
    const Scalar* zero = is_floating(b.accumulate) ? make.constant(b.accumulate, 0) : make.constant_int(b.accumulate, 0);
    const Scalar* before = make.load_masked(partial->id, b.accumulate, std::move(place), {}, later, zero);
    const Statement& summed = work_.statement(b.id);
    const Scalar* value = make.cast(make.rewrite(summed.bodies[0], own), b.accumulate);
    Statement running{{make.apply(ScalarOp::Add, b.accumulate, {before, value})}, {}};
    visit(value, [&](const Scalar& s) {
      if (s.op == ScalarOp::Load) running.reads.push_back({s.buffer, &s});
    });
    partial->body = running.bodies[0];

    BufferInfo info = work_.at(b.id);
    info.real = true;
    info.required = false;
    info.users = {b.id};
    info.elements /= std::max(1.0, work_.hint_numel(rows_.rows) / static_cast<double>(rows));

    Buffer* sum = work_.arena.make<Buffer>(b);
    sum->reduce_axes = {{work_.context.fresh_index("r", chunks), chunks}};
    read.insert(read.begin(), sum->reduce_axes[0].symbol);
    sum->body = make.load(partial->id, b.accumulate, std::move(read));
    work_.statement(b.id) = {{sum->body}, {{partial->id, sum->body}}};
    work_.at(b.id).reads = {partial->id};
    work_.at(b.id).iterations = info.elements;

    work_.running.emplace(partial->id, rows);
    work_.buffers[static_cast<size_t>(b.id)] = sum;
    work_.buffers.push_back(partial);
    work_.info.push_back(std::move(info));
    work_.statements.push_back(std::move(running));
    return member;
  }

  Work& work_;
  const Group& rows_;
  const Group& columns_;
  const Member* reduced_ = nullptr;
  std::vector<Axis> over_;     // the axes summed over, as the rows
};

}  // namespace

ColumnMerge merge_columns(Work& work, const Group& rows, const Group& columns) { return Columns(work, rows, columns).run(); }

}  // namespace braze::schedule
