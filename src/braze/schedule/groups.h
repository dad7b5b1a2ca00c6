// Group: statements that become one kernel. They share row axes: for each row, every member computes its part of that
// row, and members may read what others have computed in the same row.
//
//   softmax over the last axis: rows (i, j); max and sum reduce over their own inner axis; the quotient has the inner
//   axis of its elements. A pointwise statement alone has all its axes as rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "braze/schedule/work.h"

namespace braze::schedule {

struct Member {
  int32_t buffer;
  std::vector<Expr> at;            // value of each of the buffer's axes, over the group's rows and `inner`
  std::vector<loop::Axis> inner;   // axes of its own: reduce axes, or those of its axes that are no rows
};

struct Group {
  std::vector<loop::Axis> rows;
  std::vector<Member> members;     // producers before consumers
  bool has_reduction = false;
  bool alone = false;              // Scan, Scatter: shares its kernel with nobody

  const Member* find(int32_t buffer) const {
    for (const Member& m : members)
      if (m.buffer == buffer) return &m;
    return nullptr;
  }
};

Group group_of(const Work& work, int32_t buffer);
// Cats in a group cut one row axis at the same places, and nothing is reduced there: the kernel runs piece by piece.
bool has_one_partition(const Work& work, const Group& group);

// The group of both, if `consumer` reads `producer` row by row; else the reason why not. Says nothing about cycles.
struct Merge {
  std::optional<Group> group;
  const char* reason = "";
};
Merge merge_vertically(Work& work, const Group& producer, const Group& consumer);
// Two groups that don't read each other, over equal rows.
Merge merge_siblings(Work& work, const Group& a, const Group& b);

// Sums over the columns of what `rows` works on row by row: `rows` with the partial sums of its chunks of rows, a buffer
// of the scheduler's own, and `columns` adding these up. Says nothing about cycles.
struct ColumnMerge {
  std::optional<Group> rows;
  Group total;
  const char* reason = "";
};
ColumnMerge merge_columns(Work& work, const Group& rows, const Group& columns);

// A step in the making: a group of statements, or a call.
struct Unit {
  int32_t call = -1;               // index in LoopProgram::calls; -1: a group
  Group group;
};

// Partition of all real buffers, and the calls. In topological order.
std::vector<Unit> fuse(Work& work);
// Another topological order, in which memory is freed earlier.
void free_early(const Work& work, std::vector<Unit>& units);

}  // namespace braze::schedule
