#include "braze/schedule/groups.h"

#include <algorithm>

#include "braze/support/check.h"

namespace braze::schedule {
namespace {

using loop::Axis;

Expr subst(Expr e, const Substitution& s) { return s.empty() ? e : sym::substitute(e, s); }

// Rows replaced in where a member stands; the extents of its own axes may mention them too.
void replace(Member& m, const Substitution& s) {
  for (Expr& e : m.at) e = subst(e, s);
  for (Axis& axis : m.inner) axis.extent = subst(axis.extent, s);
}

bool depends_on_any(Expr e, const std::vector<Axis>& axes) {
  return std::ranges::any_of(axes, [&](const Axis& axis) { return sym::depends_on(e, axis.symbol); });
}

const Axis* axis_of(const std::vector<Axis>& axes, Expr symbol) {
  const auto it = std::ranges::find_if(axes, [&](const Axis& axis) { return axis.symbol == symbol; });
  return it == axes.end() ? nullptr : &*it;
}

// e == symbol * coefficient + rest, 0 <= rest < coefficient, for a row of `rows`.
struct Digits {
  Expr symbol, coefficient, rest;
};

// Unifies the rows of a producer (a) with those of a consumer (b). Both are copies that may be refined: a row split
// into two, or made an inner axis of each member.
class Unifier {
 public:
  Unifier(Work& work, Group& a, Group& b) : work_(work), a_(a), b_(b) {}

  // Null if it worked; else why not.
  const char* run() {
    if (reads_index_at_computed_place()) return "a body with an index, read at a computed place";
    if (loses_checks()) return "an index would not be checked";
    if (const char* reason = bind()) return reason;
    for (int round = 0;; ++round) {
      if (round > 8) return "rows of different shapes";
      const Refined refined = refine();
      if (refined == Refined::Failed) return "rows of different shapes";
      if (refined == Refined::No) break;
    }
    if (const char* reason = demote_producer()) return reason;
    if (const char* reason = match()) return reason;
    if (const char* reason = demote_consumer()) return reason;
    return verify();
  }

 private:
  struct Bound {
    Expr row;      // of a_
    Expr value;    // over b_'s rows and inner axes
  };

  // Calls f(member of a_, the indices at which it is read, over b_'s axes) for each read between the groups.
  template <class F>
  const char* for_each_read(F&& f) {
    for (const Member& consumer : b_.members) {
      const Buffer& buffer = work_.buffer(consumer.buffer);
      Substitution at;
      for (size_t k = 0; k < buffer.axes.size(); ++k)
        if (buffer.axes[k].symbol != consumer.at[k]) at.emplace_back(buffer.axes[k].symbol, consumer.at[k]);
      for (const Read& read : work_.statement(consumer.buffer).reads) {
        const Member* producer = a_.find(read.buffer);
        if (producer == nullptr) continue;
        std::vector<Expr> indices;
        for (Expr e : read.load->indices) indices.push_back(subst(e, at));
        if (const char* reason = f(*producer, indices)) return reason;
      }
    }
    return nullptr;
  }

  // In the reader's kernel an index value of the producer's would be an expression of what is computed there.
  bool reads_index_at_computed_place() const {
    if (std::ranges::none_of(a_.members, [&](const Member& m) { return work_.at(m.buffer).has_index; })) return false;
    for (const Member& consumer : b_.members)
      for (const Read& read : work_.statement(consumer.buffer).reads) {
        if (read.load->bindings.empty()) continue;
        if (b_.find(read.buffer) != nullptr) return true;
        if (a_.find(read.buffer) != nullptr && (a_.members.size() > 1 || index_is_computed(*read.load))) return true;
      }
    return false;
  }

  // Whether an axis at which a buffer is read by computed numbers is also a value in its body.
  bool index_is_computed(const Scalar& load) const {
    const Buffer& producer = work_.buffer(load.buffer);
    bool found = false;
    for (size_t k = 0; k < load.indices.size(); ++k) {
      if (std::ranges::none_of(load.bindings, [&](const Binding& b) { return sym::depends_on(load.indices[k], b.symbol); })) continue;
      for (const Scalar* body : work_.statement(load.buffer).bodies)
        visit(body, [&](const Scalar& s) {
          found |= s.op == ScalarOp::Index && sym::depends_on(s.indices[0], producer.axes[k].symbol);
        });
    }
    return found;
  }

  bool loses_checks() const {
    for (const Member& consumer : b_.members)
      for (const Read& read : work_.statement(consumer.buffer).reads)
        if (a_.find(read.buffer) != nullptr && loses_check(*read.load, work_.buffer(read.buffer))) return true;
    return false;
  }

  Bound* bound(Expr row) {
    const auto it = std::ranges::find_if(bound_, [&](const Bound& b) { return b.row == row; });
    return it == bound_.end() ? nullptr : &*it;
  }

  // A number that no row of the reader decides: computed, or an inner axis. Such a row becomes an inner axis.
  bool is_free(Expr value) const { return value.is_symbol() && !depends_on_any(value, b_.rows); }

  const char* bind() {
    const char* reason = for_each_read([&](const Member& p, const std::vector<Expr>& indices) -> const char* {
      for (size_t k = 0; k < indices.size(); ++k) {
        if (axis_of(a_.rows, p.at[k]) != nullptr) {
          if (const Bound* known = bound(p.at[k])) {
            if (known->value != indices[k] && !(is_free(known->value) && is_free(indices[k]))) return "read at other rows";
          } else {
            bound_.push_back({p.at[k], indices[k]});
          }
          continue;
        }
        for (const Axis& row : a_.rows) {
          if (!sym::depends_on(p.at[k], row.symbol)) continue;
          // The axis is made of rows and inner axes: the row is a digit of it.
          const auto coefficient = sym::coefficient(p.at[k], row.symbol);
          if (!coefficient || *coefficient == Expr(1)) return "rows of different shapes";
          const Expr value = sym::floor_div(indices[k], *coefficient);
          if (const Bound* known = bound(row.symbol)) {
            if (known->value != value) return "read at other rows";
          } else {
            bound_.push_back({row.symbol, value});
          }
        }
      }
      return nullptr;
    });
    if (reason != nullptr) return reason;
    return bound_.size() == a_.rows.size() ? nullptr : "rows that are not read";
  }

  enum class Refined : uint8_t { No, Yes, Failed };

  // Replaces `row` of a group by two: row == high * extent(low) + low.
  static void split(Group& group, Expr row, const Axis& high, const Axis& low) {
    const Substitution s{{row, high.symbol * low.extent + low.symbol}};
    for (Member& m : group.members) replace(m, s);
    const auto it = std::ranges::find_if(group.rows, [&](const Axis& axis) { return axis.symbol == row; });
    *it = high;
    group.rows.insert(it + 1, low);
  }

  Refined refine() {
    for (size_t i = 0; i < bound_.size(); ++i) {
      const Expr value = bound_[i].value;
      if (value.is_symbol() || value.is_constant()) continue;
      const Expr row = bound_[i].row;
      const Axis a = *axis_of(a_.rows, row);
      // value == b // K or b % K: the consumer's row b falls apart.
      if (value.op() == sym::Op::FloorDiv || value.op() == sym::Op::Mod) {
        const Expr b = value.operands()[0], divisor = value.operands()[1];
        const Axis* whole = axis_of(b_.rows, b);
        if (whole == nullptr) return Refined::Failed;
        const Expr high = value.op() == sym::Op::FloorDiv ? a.extent : sym::floor_div(whole->extent, divisor);
        if (!work_.equal(whole->extent, high * divisor)) return Refined::Failed;
        const Axis high_axis{work_.context.fresh_index("p", high), high};
        const Axis low_axis{work_.context.fresh_index("p", divisor), divisor};
        const Substitution s{{b, high_axis.symbol * divisor + low_axis.symbol}};
        split(b_, b, high_axis, low_axis);
        for (Bound& other : bound_) other.value = subst(other.value, s);
        return Refined::Yes;
      }
      // value == b * K + rest: the producer's row falls apart.
      if (value.op() == sym::Op::Add) {
        for (const Axis& b : b_.rows) {
          const auto coefficient = sym::coefficient(value, b.symbol);
          if (!coefficient || *coefficient == Expr(0)) continue;
          const Expr rest = value - b.symbol * *coefficient;
          if (!work_.equal(a.extent, b.extent * *coefficient)) continue;
          const Axis high_axis{work_.context.fresh_index("p", b.extent), b.extent};
          const Axis low_axis{work_.context.fresh_index("p", *coefficient), *coefficient};
          split(a_, row, high_axis, low_axis);
          bound_[i] = {high_axis.symbol, b.symbol};
          bound_.push_back({low_axis.symbol, rest});
          return Refined::Yes;
        }
      }
      return Refined::Failed;
    }
    return Refined::No;
  }

  // The row becomes an inner axis of each member, under a symbol that is never a row: buffers of one shape share axis
  // symbols, so the row's own symbol may stand for a row of the other group.
  void demote(Group& group, Expr row) {
    const auto it = std::ranges::find_if(group.rows, [&](const Axis& axis) { return axis.symbol == row; });
    const Expr extent = it->extent;
    group.rows.erase(it);
    for (Member& m : group.members) {
      Axis inner{work_.inner_symbol(row, extent), extent};
      if (axis_of(m.inner, inner.symbol) != nullptr) inner.symbol = work_.context.fresh_index("q", extent);
      replace(m, {{row, inner.symbol}});
      m.inner.push_back(inner);
      if (work_.buffer(m.buffer).kind != BufferKind::Reduction) sort_as_named(m);
    }
  }

  // Inner axes in the order in which the member's own axes name them.
  static void sort_as_named(Member& m) {
    std::vector<Axis> inner;
    for (Expr e : m.at)
      for (const Axis& own : m.inner)
        if (axis_of(inner, own.symbol) == nullptr && sym::depends_on(e, own.symbol)) inner.push_back(own);
    m.inner = std::move(inner);
  }

  bool is_consumer_row(Expr value) const { return axis_of(b_.rows, value) != nullptr; }

  const char* demote_producer() {
    for (const Bound& b : bound_) {
      if (is_consumer_row(b.value)) continue;
      if (a_.has_reduction) return "a reduction per element";
      demoted_.push_back(b.row);
      demote(a_, b.row);
    }
    std::erase_if(bound_, [&](const Bound& b) { return std::ranges::find(demoted_, b.row) != demoted_.end(); });
    return nullptr;
  }

  const char* match() {
    for (size_t i = 0; i < bound_.size(); ++i) {
      for (size_t j = 0; j < i; ++j)
        if (bound_[i].value == bound_[j].value) return "rows that are read twice";
      if (!work_.equal(axis_of(a_.rows, bound_[i].row)->extent, axis_of(b_.rows, bound_[i].value)->extent))
        return "rows of different extents";
    }
    return nullptr;
  }

  const char* demote_consumer() {
    std::vector<Expr> extra;
    for (const Axis& row : b_.rows)
      if (std::ranges::none_of(bound_, [&](const Bound& b) { return b.value == row.symbol; })) extra.push_back(row.symbol);
    if (!extra.empty() && b_.has_reduction) return "a reduction over other rows";
    // In the order of the rows: the last one becomes the innermost.
    for (Expr row : extra) demote(b_, row);
    return nullptr;
  }

  // Every read must be of the reader's own row.
  const char* verify() {
    Substitution rows;
    for (const Bound& b : bound_) rows.emplace_back(b.row, b.value);
    for (Member& m : a_.members) replace(m, rows);
    a_.rows.clear();
    return for_each_read([&](const Member& p, const std::vector<Expr>& indices) -> const char* {
      for (size_t k = 0; k < indices.size(); ++k) {
        const Expr at = p.at[k];
        if (!depends_on_any(at, p.inner)) {
          if (at != indices[k]) return "read at other rows";
          continue;
        }
        if (!depends_on_any(at, b_.rows)) continue;   // anywhere in the row
        for (const Axis& row : b_.rows) {
          const auto coefficient = sym::coefficient(at, row.symbol);
          if (!coefficient) return "rows of different shapes";
          if (*coefficient != Expr(0) && sym::floor_div(indices[k], *coefficient) != row.symbol) return "read at other rows";
        }
      }
      return nullptr;
    });
  }

  Work& work_;
  Group& a_;
  Group& b_;
  std::vector<Bound> bound_;
  std::vector<Expr> demoted_;
};

void join(const Work& work, Group& into, Group&& other) {
  into.has_reduction |= other.has_reduction;
  for (Member& m : other.members) into.members.push_back(std::move(m));
  std::ranges::sort(into.members, {}, [&](const Member& m) { return work.at(m.buffer).rank; });
}

}  // namespace

bool has_one_partition(const Work& work, const Group& group) {
  const Member* first = nullptr;
  for (const Member& m : group.members) {
    const Buffer& b = work.buffer(m.buffer);
    if (b.kind != BufferKind::Cat) continue;
    const Expr axis = m.at[static_cast<size_t>(b.cat_axis)];
    if (std::ranges::any_of(group.members, [](const Member& other) { return !other.inner.empty(); }) || axis_of(group.rows, axis) == nullptr) return false;
    if (first == nullptr) {
      first = &m;
      continue;
    }
    const Buffer& other = work.buffer(first->buffer);
    if (first->at[static_cast<size_t>(other.cat_axis)] != axis || other.pieces.size() != b.pieces.size()) return false;
    for (size_t k = 0; k < b.pieces.size(); ++k)
      if (!work.equal(other.pieces[k].begin, b.pieces[k].begin)) return false;
  }
  return true;
}

Group group_of(const Work& work, int32_t id) {
  const Buffer& buffer = work.buffer(id);
  Group group;
  group.alone = buffer.kind == BufferKind::Scan || buffer.kind == BufferKind::Scatter;
  group.has_reduction = buffer.kind == BufferKind::Reduction;
  Member member{id, {}, {}};
  for (const Axis& axis : buffer.axes) {
    const bool unit = axis.extent == Expr(1);
    member.at.push_back(unit ? Expr(0) : axis.symbol);
    if (!unit) group.rows.push_back(axis);
  }
  for (const Axis& axis : buffer.reduce_axes) member.inner.push_back(axis);
  group.members.push_back(std::move(member));
  return group;
}

Merge merge_vertically(Work& work, const Group& producer, const Group& consumer) {
  Group a = producer, b = consumer;
  if (const char* reason = Unifier(work, a, b).run()) return {std::nullopt, reason};
  join(work, b, std::move(a));
  if (!has_one_partition(work, b)) return {std::nullopt, "pieces of another partition"};
  return {std::move(b), ""};
}

Merge merge_siblings(Work& work, const Group& a, const Group& b) {
  if (a.rows.size() != b.rows.size()) return {std::nullopt, "rows of different shapes"};
  for (size_t k = 0; k < a.rows.size(); ++k)
    if (!work.equal(a.rows[k].extent, b.rows[k].extent)) return {std::nullopt, "rows of different extents"};
  Substitution rows;
  for (size_t k = 0; k < a.rows.size(); ++k) rows.emplace_back(b.rows[k].symbol, a.rows[k].symbol);
  Group merged = a, other = b;
  for (Member& m : other.members) replace(m, rows);
  join(work, merged, std::move(other));
  if (!has_one_partition(work, merged)) return {std::nullopt, "pieces of another partition"};
  return {std::move(merged), ""};
}

}  // namespace braze::schedule
