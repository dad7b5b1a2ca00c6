// Where a trace starts and ends other than at a call and its return: at frames that a graph break cuts.
#include "braze/capture/execute/executor.h"
#include "braze/capture/execute/handled.h"
#include "braze/capture/execute/opcodes.h"
#include "braze/capture/markings.h"

namespace braze::capture {

void Executor::note_handled_at_start() {
  place_at_start_ = present_place();
  handled_at_start_ = handled_in(place_at_start_);
}

Owned Executor::call_outermost(Value callable, const Arguments& arguments) {
  note_handled_at_start();
  after_ = After::Push;
  Owned result = call(callable, arguments);
  if (result) close_dropped_generators();
  return result;
}

Owned Executor::resume(const std::vector<EntryFrame>& frames) {
  note_handled_at_start();
  if (frames[0].at.handles) exchange_handled(present_place(), Ref::borrow(frames[0].handled.object));
  bool ended = false;
  Owned result = resume(frames, 0, ended);
  if (result) close_dropped_generators();
  return result;
}

// `ended`: the frame is a generator's, and returned.
Owned Executor::resume(const std::vector<EntryFrame>& frames, size_t i, bool& ended) {
  const EntryFrame& entry = frames[i];
  pending_ = {entry.function, nullptr, kNoSource, i == 0 ? After::Push : frames[i - 1].at.after, &frames, i};
  PyObject* result = nullptr;
  if (entry.at.generator) {
    ended = resume_generator(entry.generator.object, result) == PYGEN_RETURN;
  } else {
    result = start_frame(entry.function.object, entry.at.code->object, this);
  }
  pending_ = {};
  check_abort();
  return Owned::steal(result, result == nullptr ? kNoSource : returned_);
}

// Fills a frame that was started for it; an error of the frames inside is left set.
void Executor::enter_resumed(Frame& f, const PendingCall& call) {
  const EntryFrame& entry = (*call.resumed)[call.index];
  if (entry.at.generator) {
    f.sync();
    take_sent(f.view);
    f.sp = f.slots + *f.view.n_slots_used;
    *f.view.n_slots_used = -1;
  } else {
    for (int i = 0; i < f.code->n_slots; i++) Ref::steal(std::exchange(f.slots[i], nullptr));   // dummies
    f.sp = f.slots;
    for (const Value& v : entry.slots) f.push(Owned::borrow(v));
  }
  f.pc = entry.at.pc;
  if (call.index + 1 == call.resumed->size()) return;
  f.view.run(f.code->insns[f.pc].native);
  bool ended = false;
  Owned result = resume(*call.resumed, call.index + 1, ended);
  go_on(f, entry.at.after, std::move(result), ended);
}

// The frame that `f` called gave a result (`ended`: a generator's, and it returned); without one, an error is set, and is
// left so unless it ends a loop.
void Executor::go_on(Frame& f, After after, Owned result, bool ended) {
  const Insn& insn = f.code->insns[f.pc];
  if (!result) {
    if (after == After::Attribute) note_missing_attribute(f.top().object, f.name(insn.arg));
    if (after != After::Next || !PyErr_ExceptionMatches(PyExc_StopIteration)) return;
    PyErr_Clear();
    f.drop(1);
    f.pc = insn.target;
    return;
  }
  if (ended && after == After::Next) {
    f.drop(1);
    f.pc = insn.target;
    return;
  }
  if (ended && after != After::Send) {   // of next()
    prov.use_constant(result.get());
    _PyGen_SetStopIterationValue(result.ref.get());
    return;
  }
  switch (after) {
    case After::Send:
      f.drop(1);   // what was sent
      if (ended && insn.arg == kSendDropsIterator) f.drop(1);
      f.push(std::move(result));
      f.pc = ended ? insn.target : f.pc + 1;
      return;
    case After::None: case After::Push: case After::Next: f.push(std::move(result)); break;
    case After::Drop: break;
    case After::Attribute:
      f.drop(1);
      f.push(std::move(result));
      break;
    case After::Iterator:
      if (!is_iterator(result.ref.get())) return;
      f.push(std::move(result));
      break;
    case After::Init:
      prov.use_constant(result.get());
      if (!is_init_result(result.ref.get())) return;
      break;
    case After::Again:
      if (!is_bool_result(result.ref.get())) return;
      f.push(std::move(result));
      return;
    case After::Branch: {
      if (!is_bool_result(result.ref.get())) return;
      prov.use_constant(result.get());
      const bool jump = (result.ref.get() == Py_True) == (insn.op == Op::JumpIfTrueOrPop);
      if (!jump) f.drop(1);
      f.pc = jump ? insn.target : f.pc + 1;
      return;
    }
    case After::InPlace: case After::ReflectedFirst: case After::Forward: case After::Reflected:
      if (result.ref.get() == Py_NotImplemented) {
        Opcodes::expect_result(*this, f, 0, after);
        const int op = static_cast<int>(insn.arg & ~kCompareToBool);
        result = insn.op == Op::CompareOp ? python_comparison(op, f.top(2), f.top(), after)
                                          : python_operator(insn.arg, f.top(2), f.top(), after);
      }
      if (!Opcodes::replace(f, 2, std::move(result))) return;
      if (insn.op == Op::CompareOp && (insn.arg & kCompareToBool) != 0 && !Opcodes::to_bool(*this, f)) return;
      break;
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
    if (PyObject* const generator = generator_of_frame(g->native)) {
      c.at.generator = true;
      c.generator = Owned::borrow(generator);
      if (PyObject* const handled = generator_state(generator).handled) c.handled = Owned::borrow(handled, prov.recall(handled, handled));
    }
    cut_.insert(cut_.begin(), std::move(c));
  }
  PyObject* const handled = handled_in(place_at_start_);
  if (handled != handled_at_start_ && handled != nullptr) {
    cut_.front().at.handles = true;
    cut_.front().handled = Owned::borrow({handled, prov.recall(handled, handled)});
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
