// Which buffers are computed on their own ("real"), and which are written into the bodies of their users.
#include <algorithm>
#include <unordered_map>

#include "braze/schedule/cost.h"
#include "braze/schedule/work.h"

namespace braze::schedule {
namespace {

constexpr double kSmallInput = 16;     // an input that many times smaller than the result costs nothing to read again
constexpr size_t kLargestBody = 400;   // nodes; beyond it compile time grows faster than memory traffic shrinks

constexpr size_t kLargestText = 1600;  // nodes of a user's bodies with what is written into them: a Cat has many bodies
constexpr size_t kSmallBody = 4;       // written in wherever it may be

bool is_integer_division(const Scalar& s) {
  const bool division = s.op == ScalarOp::FloorDiv || s.op == ScalarOp::TruncDiv || s.op == ScalarOp::Remainder ||
                        s.op == ScalarOp::Fmod;
  return division && !is_floating(s.dtype) &&
         (s.operands[1]->op != ScalarOp::Constant || s.operands[1]->integer == 0);
}

// The loop that runs fastest, as far as the definition tells.
const loop::Axis* innermost_of(const Buffer& b) {
  for (const auto* axes : {&b.update_axes, &b.reduce_axes, &b.axes})
    for (size_t k = axes->size(); k-- > 0;)
      if ((*axes)[k].extent != Expr(1)) return &(*axes)[k];
  return nullptr;
}

// Counts what a body computes and loads. What the innermost loop does not move is computed once for all of it.
void collect(Work& work, const Buffer& b, const Scalar* body) {
  BufferInfo& info = work.at(b.id);
  const loop::Axis* innermost = innermost_of(b);
  const double still = innermost == nullptr ? 1 : 1.0 / static_cast<double>(std::max<int64_t>(1, work.hint(innermost->extent)));
  std::unordered_map<const Scalar*, bool> moving;
  visit(body, [&](const Scalar& s) {
    bool moves = innermost != nullptr && std::ranges::any_of(s.indices, [&](Expr e) { return sym::depends_on(e, innermost->symbol); });
    for (const Scalar* operand : s.operands) moves = moves || moving[operand];
    for (const Binding& binding : s.bindings) moves = moves || moving[binding.value];
    moving[&s] = moves;
    const double share = moves ? 1 : still;
    ++info.nodes;
    info.weight += share * weight_of(s.op, s.dtype);
    info.has_index |= s.op == ScalarOp::Index;
    info.has_division |= is_integer_division(s);
    if (s.op != ScalarOp::Load) return;
    const auto known = std::ranges::find(info.reads, s.buffer);
    if (known == info.reads.end()) {
      info.reads.push_back(s.buffer);
      info.loads.push_back(1);
      info.shares.push_back(share);
    } else {
      ++info.loads[static_cast<size_t>(known - info.reads.begin())];
      info.shares[static_cast<size_t>(known - info.reads.begin())] += share;
    }
  });
}

void collect(Work& work) {
  work.info.assign(work.buffers.size(), {});
  int32_t rank = 0;
  for (const loop::OutputRef& output : work.loops->outputs)
    if (output.view.buffer >= 0) work.at(output.view.buffer).required = true;
  for (const loop::LoopProgram::Mutation& mutation : work.loops->mutations)
    if (mutation.value.buffer >= 0) work.at(mutation.value.buffer).required = true;
  for (const loop::ExternCall& call : work.loops->calls)
    for (const View& view : call.operands) work.at(view.buffer).required = true;
  for (const int32_t id : work.order) {
    const Buffer& b = work.buffer(id);
    BufferInfo& info = work.at(id);
    info.rank = rank++;
    info.elements = 1;
    for (Expr size : b.sizes) info.elements *= static_cast<double>(work.hint(size));
    info.iterations = info.elements * work.hint_numel(b.reduce_axes);
    if (b.kind == BufferKind::Scatter) info.iterations += work.hint_numel(b.update_axes);
    for (const Scalar* body : bodies_of(b)) collect(work, b, body);
    for (int32_t read : info.reads) work.at(read).users.push_back(id);
  }
}

// Forgets users whose values nobody needs; `users` of a dead buffer is empty and `required` is false.
void drop_dead(Work& work) {
  for (size_t k = work.order.size(); k-- > 0;) {
    const int32_t id = work.order[k];
    BufferInfo& info = work.at(id);
    if (!work.is_computed(id) || info.required || !info.users.empty()) continue;
    for (int32_t read : info.reads) std::erase(work.at(read).users, id);
    info.reads.clear();
    info.shares.clear();
    info.loads.clear();
  }
}

// How a user reads a buffer: how often the buffer's body would be evaluated if it were written into the user's.
struct Use {
  double evaluations = 0;
  double gathered = 0;     // of these, with each lane at another place
  bool possible = true;    // false: the body can't be moved to where the load stands
  bool scrambled = false;  // read at quotients and remainders: at other rows than its own
};

bool has_quotient(Expr e) {
  if (e.is_constant() || e.is_symbol()) return false;
  if (e.op() == sym::Op::FloorDiv || e.op() == sym::Op::Mod) return true;
  return std::ranges::any_of(e.operands(), has_quotient);
}

Use use_of(const Work& work, const Buffer& producer, const Buffer& user) {
  Use use;
  const BufferInfo& info = work.at(producer.id);
  std::vector<loop::Axis> loops = user.axes;
  loops.insert(loops.end(), user.reduce_axes.begin(), user.reduce_axes.end());
  for (const Scalar* body : bodies_of(user)) {
    visit(body, [&](const Scalar& s) {
      if (s.op != ScalarOp::Load || s.buffer != producer.id) return;
      if (!s.operands.empty() && info.has_division) use.possible = false;
      if (!s.bindings.empty() && (info.has_index || loses_check(s, producer))) use.possible = false;
      // Loops inside of the last one that moves the load: it is computed once outside of them.
      double evaluations = work.at(user.id).iterations;
      if (s.operands.empty() && s.bindings.empty()) {
        for (size_t k = loops.size(); k-- > 0;) {
          if (std::ranges::any_of(s.indices, [&](Expr e) { return sym::depends_on(e, loops[k].symbol); })) break;
          evaluations /= static_cast<double>(std::max<int64_t>(1, work.hint(loops[k].extent)));
        }
      }
      use.evaluations += evaluations;
      if (!s.bindings.empty()) use.gathered += evaluations;
      use.scrambled |= std::ranges::any_of(s.indices, has_quotient);
    });
  }
  return use;
}

bool better_written_in(Work& work, const Buffer& b) {
  const BufferInfo& info = work.at(b.id);
  double evaluations = 0, gathered = 0, users_ns = 0;
  for (int32_t user : info.users) {
    const Use use = use_of(work, b, work.buffer(user));
    if (!use.possible) return false;
    // The end of a norm belongs to the kernel of its rows, not to a reader that takes the rows in another order.
    if (use.scrambled && info.finishes_rows) return false;
    evaluations += use.evaluations;
    gathered += use.gathered;
    const BufferInfo& u = work.at(user);
    users_ns += u.iterations * (kNsPerOp * u.weight + kNsPerByte * 4);
  }
  if (info.users.size() == 1 && evaluations <= info.elements * 1.01) return true;
  double extra_ns = (evaluations - info.elements) * info.weight * kNsPerOp;
  if (gathered > info.elements) extra_ns += (gathered - info.elements) * static_cast<double>(info.reads.size()) * kNsPerGather;
  if (extra_ns < 0.1 * users_ns && extra_ns < 0.25 * kLaunchNs * static_cast<double>(info.users.size())) return true;

  double input_bytes = 0;
  int inputs = 0;
  for (int32_t read : info.reads) {
    const double elements = std::min(work.at(read).elements, info.elements);
    input_bytes += elements * static_cast<double>(size_of(work.buffer(read).dtype));
    if (elements * kSmallInput > info.elements) ++inputs;
  }
  const double own_bytes = info.elements * static_cast<double>(size_of(b.dtype));
  // One user that reads it more than once, for less than a trip through memory.
  if (info.users.size() == 1 && extra_ns < 2 * kNsPerByte * own_bytes + 0.5 * kLaunchNs) return true;
  // As cheap to compute again as to load: a cast, a scaling, a normalization by known statistics, a mask made from a
  // smaller tensor, a range.
  if (info.weight <= 2 && inputs <= 1 && input_bytes <= own_bytes * (1 + 2 / kSmallInput)) return true;
  if (info.weight <= 8 && input_bytes * 4 <= own_bytes) return true;
  return false;
}

size_t nodes_in(const Work& work, const Buffer& b, int32_t user) {
  const BufferInfo& u = work.at(user);
  const auto read = std::ranges::find(u.reads, b.id);
  return u.loads[static_cast<size_t>(read - u.reads.begin())] * work.at(b.id).nodes;
}

// Steps of a recurrence, each of which reads the one before and is read by a Cat of all: written into that, the text
// would grow with the square of their number.
bool makes_too_much_text(const Work& work, const Buffer& b, const std::vector<size_t>& text) {
  const BufferInfo& info = work.at(b.id);
  return info.nodes > kSmallBody && std::ranges::any_of(info.users, [&](int32_t user) {
           return text[static_cast<size_t>(user)] + nodes_in(work, b, user) > kLargestText;
         });
}

}  // namespace

void choose(Work& work) {
  collect(work);
  drop_dead(work);
  std::vector<size_t> text(work.buffers.size());   // nodes of bodies with what was written into them so far
  for (const int32_t id : work.order) text[static_cast<size_t>(id)] = work.at(id).nodes;
  for (const int32_t id : work.order) {
    const Buffer& b = work.buffer(id);
    BufferInfo& info = work.at(id);
    if (!work.is_computed(id)) continue;
    info.holds_row_results = b.kind == BufferKind::Reduction;
    for (size_t k = 0; k < info.reads.size(); ++k) {
      const int32_t read = info.reads[k];
      const BufferInfo& producer = work.at(read);
      if (producer.holds_row_results) {
        info.finishes_rows |= producer.elements * 4 <= info.elements;
        info.holds_row_results |= producer.elements <= info.elements && info.elements <= producer.elements * 1.01;
      }
      if (!work.is_computed(read) || producer.real) continue;
      info.weight += info.shares[k] * producer.weight;
      info.nodes += info.loads[k] * producer.nodes;
      info.has_index |= producer.has_index;
      info.has_division |= producer.has_division;
      info.finishes_rows |= producer.finishes_rows;
    }
    const bool used = info.required || !info.users.empty();
    const bool wanted = b.kind != BufferKind::Pointwise || info.required || !work.options.fusion ||
                        info.nodes > kLargestBody || !better_written_in(work, b) || makes_too_much_text(work, b, text);
    info.real = used && wanted;
    if (used && !wanted)
      for (const int32_t user : info.users) text[static_cast<size_t>(user)] += nodes_in(work, b, user);
  }
}

}  // namespace braze::schedule
