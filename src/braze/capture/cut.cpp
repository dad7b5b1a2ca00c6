// Where a trace starts and ends other than at a call and its return: at frames that a graph break cuts.
#include "braze/capture/executor.h"
#include "braze/capture/markings.h"

namespace braze::capture {

Owned Executor::call_outermost(Value callable, const Arguments& arguments) {
  handled_at_start_ = PyThreadState_Get()->exc_info->exc_value;
  after_ = After::Push;
  return call(callable, arguments);
}

Owned Executor::resume(const std::vector<EntryFrame>& frames, size_t i) {
  if (i == 0) handled_at_start_ = PyThreadState_Get()->exc_info->exc_value;
  const EntryFrame& entry = frames[i];
  pending_ = {entry.function, nullptr, kNoSource, i == 0 ? After::Push : frames[i - 1].at.after, &frames, i};
  PyObject* result = start_frame(entry.function.object, entry.at.code->object, this);
  check_abort();
  return Owned::steal(result, result == nullptr ? kNoSource : returned_);
}

// Fills a frame that was started for it; an error of the frames inside is left set.
void Executor::enter_resumed(Frame& f, const PendingCall& call) {
  const EntryFrame& entry = (*call.resumed)[call.index];
  for (int i = 0; i < f.code->n_slots; i++) Ref::steal(std::exchange(f.slots[i], nullptr));   // dummies
  f.sp = f.slots;
  for (const Value& v : entry.slots) f.push(Owned::borrow(v));
  f.pc = entry.at.pc;
  if (call.index + 1 == call.resumed->size()) return;
  f.view.run(f.code->insns[f.pc].native);
  Owned result = resume(*call.resumed, call.index + 1);
  go_on(f, entry.at.after, std::move(result));
}

// The frame that `f` called has ended; without a result, an error is set, and is left so unless it ends a loop.
void Executor::go_on(Frame& f, After after, Owned result) {
  const Insn& insn = f.code->insns[f.pc];
  if (!result) {
    if (after != After::Next || !PyErr_ExceptionMatches(PyExc_StopIteration)) return;
    PyErr_Clear();
    f.drop(1);
    f.pc = insn.target;
    return;
  }
  switch (after) {
    case After::None: case After::Push: case After::Next: f.push(std::move(result)); break;
    case After::Drop: break;
    case After::Init:
      prov.use_constant(result.get());
      if (!is_init_result(result.ref.get())) return;
      break;
    case After::Again:
      if (!is_bool_result(result.ref.get())) return;
      f.push(std::move(result));
      return;
    case After::Contains: {
      const int in = truth(result.get());
      if (in < 0) return;
      f.push(Owned::boolean((in == 1) != (insn.arg == 1)));
      break;
    }
  }
  f.pc++;
}

void Executor::cut(Frame& f) {
  if (in_transform_) throw Abort{{"a graph break inside a functional transform", ""}, transform_position_};
  if (!f.can_be_cut) fail("internal error: the trace took another way when it was repeated");
  if (PyThreadState_Get()->exc_info->exc_value != handled_at_start_) {
    PyObject* const handled = PyThreadState_Get()->exc_info->exc_value;
    throw Abort{{"a graph break while an exception is handled", ""}, handled == nullptr ? 0 : prov.birth_of(handled)};
  }
  const Frame* inner = nullptr;
  for (const Frame* g = &f; g != nullptr; inner = g, g = g->caller) {
    CutFrame c;
    const int64_t n = g->sp - g->slots - (g == &f ? 0 : g->operands);
    // A call is repeated from the instruction that names its keywords.
    c.at = {g->code, g == &f && g->kwnames != nullptr ? g->pc - 1 : g->pc, static_cast<int32_t>(n),
            inner == nullptr ? After::None : inner->returned};
    c.function = Owned::borrow(g->function);
    for (int64_t i = 0; i < n; i++) c.slots.push_back(Owned::borrow({g->slots[i], g->src[i]}));
    if (inner != nullptr && g->kept.object != nullptr) {
      c.slots.push_back(Owned::borrow(g->kept));
      c.at.n_slots++;
    }
    c.started = g->started;
    cut_.insert(cut_.begin(), std::move(c));
  }
  throw Abort{};
}

// After a call that may have entered or left a transform. Torch's own frames around it would be left in its middle.
void Executor::note_transform() {
  const bool now = session.in_transform();
  if (now == in_transform_) return;
  in_transform_ = now;
  transform_position_ = 0;
  if (!now) return;
  for (const Frame* f = frame_; f != nullptr && transform_position_ == 0; f = f->caller)
    if (f->can_be_cut && f->function.object != nullptr && !is_librarys(f->function.object)) transform_position_ = f->started;
  if (first_transform_ == 0) first_transform_ = transform_position_;
}

}  // namespace braze::capture
