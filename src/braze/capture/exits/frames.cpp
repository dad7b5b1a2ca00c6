#include "braze/capture/exits/frames.h"

#include <algorithm>

#include "braze/capture/execute/handled.h"
#include "braze/capture/execute/operator_methods.h"
#include "braze/capture/exits/step.h"
#include "braze/support/check.h"

namespace braze::capture {

namespace {

// CPython goes on after the instruction at `pc` (which then is the one that an error is raised by).
void stand_inside(const FrameView& v, const Code& code, uint32_t pc) { v.run(code.insns[pc].native); }

void stand_before(const FrameView& v, const Code& code, uint32_t pc) { v.stand_before(code.insns[pc].start); }

// The error that finish() was called with, until the innermost frame stands.
thread_local Raised to_raise;

// Sets the error as the program's own code would: with the exception that is being handled as its context.
void raise_here(Raised raised) {
  std::move(raised).set();
  const Ref exception = take_exception();
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())), exception.get());
}

// The frame that was called gave a result or an error; `ended`: it was a generator's, and returned. False: an error is
// set, to be raised where the frame stands; else it goes on at `next`.
bool take_result(const FrameView& v, const FramePoint& at, Ref result, bool ended, uint32_t& next) {
  const Insn& insn = at.code->insns[at.pc];
  const auto push = [&](Ref owned) { v.slots[(*v.n_slots_used)++] = owned.release(); };
  const auto top = [&](int depth) { return v.slots[*v.n_slots_used - depth]; };
  const auto drop = [&](int n) {
    for (; n > 0; n--) Ref::steal(v.slots[--*v.n_slots_used]);
  };
  next = at.pc + 1;
  if (!result) {
    if (at.after == After::Attribute) note_missing_attribute(top(1), PyTuple_GET_ITEM(at.code->names, insn.arg));
    if (at.after != After::Next || !PyErr_ExceptionMatches(PyExc_StopIteration)) return false;
    PyErr_Clear();
    drop(1);   // the iterator
    next = insn.target;
    return true;
  }
  if (ended && at.after == After::Next) {
    drop(1);
    next = insn.target;
    return true;
  }
  if (ended && at.after != After::Send) return _PyGen_SetStopIterationValue(result.get()), false;   // of next()
  switch (at.after) {
    case After::Send:
      drop(1);   // what was sent
      if (ended && insn.arg == kSendDropsIterator) drop(1);
      push(std::move(result));
      if (ended) next = insn.target;
      break;
    case After::None: case After::Push: case After::Next: push(std::move(result)); break;
    case After::Drop: break;
    case After::Attribute:
      drop(1);
      push(std::move(result));
      break;
    case After::Init:
      if (!is_init_result(result.get())) return false;
      break;
    case After::Iterator:
      if (!is_iterator(result.get())) return false;
      push(std::move(result));
      break;
    case After::Again:
      if (!is_bool_result(result.get())) return false;
      push(std::move(result));
      next = at.pc;
      break;
    case After::Branch:
      if (!is_bool_result(result.get())) return false;
      if ((result.get() == Py_True) == (insn.op == Op::JumpIfTrueOrPop)) next = insn.target;
      else drop(1);
      break;
    case After::Contains: {
      const int in = PyObject_IsTrue(result.get());
      if (in < 0) return false;
      push(Ref::borrow((in == 1) != (insn.arg == 1) ? Py_True : Py_False));
      break;
    }
    case After::InPlace: case After::ReflectedFirst: case After::Forward: case After::Reflected:
      if (result.get() == Py_NotImplemented) result = rest_of_operator(insn, at.after, top(2), top(1));
      if (result && insn.op == Op::CompareOp && (insn.arg & kCompareToBool) != 0) {
        const int truth = PyObject_IsTrue(result.get());
        result = truth < 0 ? Ref() : Ref::borrow(truth == 1 ? Py_True : Py_False);
      }
      if (!result) return false;
      drop(2);
      push(std::move(result));
      break;
  }
  return true;
}

}  // namespace

bool is_init_result(PyObject* result) {
  if (result == Py_None) return true;
  PyErr_Format(PyExc_TypeError, "__init__() should return None, not '%.200s'", Py_TYPE(result)->tp_name);
  return false;
}

bool is_bool_result(PyObject* result) {
  if (PyBool_Check(result)) return true;
  PyErr_Format(PyExc_TypeError, "__bool__ should return bool, returned %s", Py_TYPE(result)->tp_name);
  return false;
}

bool is_iterator(PyObject* result) {
  if (PyIter_Check(result)) return true;
  PyErr_Format(PyExc_TypeError, "iter() returned non-iterator of type '%.100s'", Py_TYPE(result)->tp_name);
  return false;
}

void note_missing_attribute(PyObject* object, PyObject* name) {
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return;
  Ref exception = take_exception();
  auto* const error = reinterpret_cast<PyAttributeErrorObject*>(exception.get());
  if (error->name == nullptr && error->obj == nullptr) {
    error->name = Ref::borrow(name).release();
    error->obj = Ref::borrow(object).release();
  }
  raise_again(std::move(exception));
}

LiveFrames::LiveFrames(std::span<const FramePoint> points, PyObject** roots) {
  for (const FramePoint& point : points) {
    LiveFrame frame{point, Ref::steal(*roots++), {}, {}};
    for (int32_t i = 0; i < point.n_slots && !point.generator; i++) frame.slots.push_back(Ref::steal(*roots++));
    if (point.handles) frame.handled = Ref::steal(*roots++);
    frames_.push_back(std::move(frame));
  }
}

LiveFrames::~LiveFrames() {
  if (frames_.empty()) return;
  std::vector<Ref> generators;   // all of them live until the last is forgotten: one may be held by another
  for (const LiveState& state : states()) {
    if (state.generator != nullptr) generators.push_back(Ref::borrow(state.generator));
  }
  for (const Ref& generator : generators) forget_generator(generator.get());
}

namespace {

LiveState state_of_generator(PyObject* generator) {
  const FrameView v = view(frame_of_generator(generator));
  const GeneratorState state = generator_state(generator);
  return {&decode(v.code), reinterpret_cast<PyObject*>(v.function), {v.slots, v.slots + *v.n_slots_used}, state.handled,
          generator, state};
}

bool is_suspended(PyObject* object) {
  if (object == nullptr || !PyGen_CheckExact(object)) return false;
  const auto kind = generator_state(object).kind;
  return kind != GeneratorState::Kind::Running && kind != GeneratorState::Kind::Ended;
}

}  // namespace

int64_t index_of_generator(const std::vector<LiveState>& states, PyObject* object) {
  if (object == nullptr || !PyGen_CheckExact(object)) return -1;
  for (size_t i = 0; i < states.size(); i++) {
    if (states[i].generator == object) return static_cast<int64_t>(i);
  }
  return -1;
}

std::vector<LiveState> LiveFrames::states() const {
  std::vector<LiveState> out;
  for (const LiveFrame& frame : frames_) {
    if (frame.at.generator) {
      out.push_back(state_of_generator(frame.function.get()));
      continue;
    }
    LiveState state{frame.at.code, frame.function.get(), {}, frame.handled.get(), nullptr, {}};
    for (const Ref& slot : frame.slots) state.slots.push_back(slot.get());
    out.push_back(std::move(state));
  }
  for (size_t i = 0; i < out.size(); i++) {   // grows
    for (size_t k = 0; k < out[i].slots.size(); k++) {
      PyObject* const object = out[i].slots[k];
      if (is_suspended(object) && index_of_generator(out, object) < 0) out.push_back(state_of_generator(object));
    }
  }
  // Without those that others hold, and so without what only these hold.
  for (bool all = false; !all;) {
    all = true;
    for (size_t i = 0; i < out.size(); i++) {
      if (out[i].generator == nullptr) continue;
      Py_ssize_t held = i < frames_.size() ? 1 : 0;
      for (const LiveState& state : out) held += std::count(state.slots.begin(), state.slots.end(), out[i].generator);
      if (held == Py_REFCNT(out[i].generator)) continue;
      if (i < frames_.size()) return {};
      out.erase(out.begin() + static_cast<int64_t>(i));
      all = false;
      break;
    }
  }
  return out;
}

namespace {

template <class T>
void append(std::string& key, const T& number) {
  key.append(reinterpret_cast<const char*>(&number), sizeof number);
}

bool is_generator(const Ref& slot) { return slot && PyGen_CheckExact(slot.get()); }

}  // namespace

bool LiveFrames::describe(std::vector<PyObject*>& values, std::string& key) const {
  values.clear();
  key.clear();
  const bool plain = std::none_of(frames_.begin(), frames_.end(), [](const LiveFrame& frame) {
    return frame.at.generator || std::any_of(frame.slots.begin(), frame.slots.end(), is_generator);
  });
  for (const LiveFrame& frame : frames_) {
    append(key, frame.at.code);
    append(key, frame.at.pc);
    append(key, frame.at.after);
    if (!plain) continue;
    values.push_back(frame.function.get());
    for (const Ref& slot : frame.slots) {
      key.push_back(slot ? 'x' : '-');
      if (slot) values.push_back(slot.get());
    }
    key.push_back(frame.handled ? 'h' : '\n');
    if (frame.handled) values.push_back(frame.handled.get());
  }
  if (plain) return true;
  const std::vector<LiveState> all = states();
  for (const LiveState& state : all) {
    append(key, state.code);
    append(key, state.state.position);
    append(key, state.state.kind);
    values.push_back(state.function);
    for (PyObject* slot : state.slots) {
      const int64_t generator = index_of_generator(all, slot);
      key.push_back(slot == nullptr ? '-' : generator < 0 ? 'x' : 'g');
      if (generator >= 0) append(key, generator);
      else if (slot != nullptr) values.push_back(slot);
    }
    key.push_back(state.handled != nullptr ? 'h' : '\n');
    if (state.handled != nullptr) values.push_back(state.handled);
  }
  return !all.empty();
}

bool LiveFrames::run(Mode mode, PyObject*& result) {
  mode_ = mode;
  stopped_ = false;
  PyObject* const outside = handled_in(present_place());
  LiveFrame& outermost = frames_.front();
  HandledScope scope(outermost.handled ? std::move(outermost.handled) : Ref::borrow(outside));
  bool ended = false;
  result = start(0, ended);
  Ref handled = scope.take();
  if (!stopped_) return frames_.clear(), false;   // they have ended
  Ref::steal(std::exchange(result, nullptr));
  outermost.at.handles = handled && handled.get() != outside;
  outermost.handled = outermost.at.handles ? std::move(handled) : Ref();
  return true;
}

PyObject* LiveFrames::finish() {
  to_raise = Raised::take();
  PyObject* result = nullptr;
  run(Mode::Finish, result);
  to_raise = {};
  return result;
}

// `ended`: the frame is a generator's, and returned.
PyObject* LiveFrames::start(size_t i, bool& ended) {
  entered_ = i;
  LiveFrame& frame = frames_[i];
  const Ref function = std::move(frame.function);   // given back by take_out()
  PyObject* result = nullptr;
  if (!frame.at.generator) {
    result = start_frame(function.get(), frame.at.code->object, this);
    for (const Ref& object : std::exchange(left_, {})) forget_variables(object.get());
    return result;
  }
  ended = resume_generator(function.get(), this, result) == PYGEN_RETURN;
  return result;
}

PyObject* LiveFrames::run_frame(NativeFrame* native, bool) {
  const size_t i = entered_;
  LiveFrame& frame = frames_[i];
  const FrameView v = view(native);
  if (frame.at.generator) {
    take_sent(v);
  } else {
    for (int k = 0; k < frame.at.code->n_slots; k++) Ref::steal(std::exchange(v.slots[k], nullptr));   // dummies
    for (size_t k = 0; k < frame.slots.size(); k++) v.slots[k] = frame.slots[k].release();
    *v.n_slots_used = frame.at.n_slots;
  }
  if (i + 1 == frames_.size()) return run_innermost(native, i);

  stand_inside(v, *frame.at.code, frame.at.pc);
  PyObject* result = nullptr;
  bool ended = false;
  {
    const FrameLink link(native);
    const RecursionScope recursion;
    *v.n_slots_used = -1;   // as while a frame runs
    if (recursion) result = start(i + 1, ended);
    *v.n_slots_used = frame.at.n_slots;
  }
  if (stopped_) {
    Ref::steal(result);
    return take_out(native, frame);
  }
  uint32_t next = 0;
  bool ok = false;
  {
    const FrameLink link(native);   // for Python code that decides what the result means
    ok = take_result(v, frame.at, Ref::steal(result), ended, next);
  }
  return ok ? go_on(native, i, next) : raise(native, i, false);
}

// The frame stands before the instruction at `pc`; those inside it have ended.
PyObject* LiveFrames::go_on(NativeFrame* native, size_t i, uint32_t pc) {
  LiveFrame& frame = frames_[i];
  const FrameView v = view(native);
  stand_before(v, *frame.at.code, pc);
  // A frame that the program looks at has to stay the one that it is.
  if (*v.n_slots_used > frame.at.code->n_slots && v.slots[*v.n_slots_used - 1] != nullptr &&
      PyFrame_Check(v.slots[*v.n_slots_used - 1])) {
    mode_ = Mode::Finish;
  }
  if (mode_ == Mode::Finish) return hand_over(native);
  frames_.erase(frames_.begin() + static_cast<int64_t>(i) + 1, frames_.end());
  frame.at.pc = pc;
  frame.at.n_slots = *v.n_slots_used;
  frame.at.after = After::None;
  stopped_ = true;
  return take_out(native, frame);
}

// The instruction at which the frame stands raised the error that is set, or (`again`) raised one that had been raised
// before: the frame goes on at its handler, or ends. (CPython's own loop would do so, too, but not on all versions with
// the right line in the traceback.)
PyObject* LiveFrames::raise(NativeFrame* native, size_t i, bool again) {
  const FramePoint& at = frames_[i].at;
  const FrameView v = view(native);
  if (!again) stand_inside(v, *at.code, at.pc);
  const Handler* const handler = at.code->handler_of(at.pc);
  Ref exception;
  {
    const FrameLink link(native);   // also for the code that makes the exception object
    if (!again) add_traceback();
    if (handler != nullptr) exception = take_exception();
  }
  if (handler == nullptr) return leave_frame(native, nullptr);
  const int depth = at.code->n_slots + static_cast<int>(handler->depth);
  while (*v.n_slots_used > depth) Ref::steal(v.slots[--*v.n_slots_used]);
  const auto push = [&](PyObject* object) { v.slots[(*v.n_slots_used)++] = object; };
  if (handler->push_last_instruction) push(PyLong_FromLongLong(v.running()));
  push(exception.release());
  return go_on(native, i, handler->target);
}

PyObject* LiveFrames::run_innermost(NativeFrame* native, size_t i) {
  LiveFrame& frame = frames_[i];
  const FrameView v = view(native);
  const Code& code = *frame.at.code;
  if (to_raise) {
    raise_here(std::exchange(to_raise, {}));
    return raise(native, i, false);
  }
  if (mode_ == Mode::Step) {
    StepFrame s{code, v, v.slots + frame.at.n_slots, frame.at.pc};
    Step outcome = Step::Raised;
    stand_inside(v, code, frame.at.pc);
    {
      const FrameLink link(native);
      const RecursionScope recursion;
      *v.n_slots_used = -1;
      if (recursion && PyErr_CheckSignals() == 0) outcome = step_instruction(s);
      *v.n_slots_used = static_cast<int>(s.sp - v.slots);
    }
    switch (outcome) {
      case Step::Done: return go_on(native, i, s.pc);
      case Step::Raised: return raise(native, i, false);
      case Step::RaisedAgain: return raise(native, i, true);
      case Step::HandOver: break;
    }
  }
  stand_before(v, code, frame.at.pc);
  return hand_over(native);
}

// The frame leaves CPython's stack: a generator's as it stands, at any instruction; others when their slots are taken.
// What whoever evaluates the frame returns.
PyObject* LiveFrames::take_out(NativeFrame* native, LiveFrame& frame) {
  const FrameView v = view(native);
  PyObject* const none = Ref::borrow(Py_None).release();
  if (frame.at.generator) {
    frame.function = Ref::borrow(generator_of_frame(native));
    stand_before(v, *frame.at.code, frame.at.pc);
    suspend_generator(native, false);
    return none;
  }
  frame.function = Ref::borrow(reinterpret_cast<PyObject*>(v.function));
  if (Ref object = frame_object(native)) left_.push_back(std::move(object));
  frame.slots.clear();
  for (int32_t k = 0; k < frame.at.n_slots; k++) frame.slots.push_back(Ref::steal(std::exchange(v.slots[k], nullptr)));
  *v.n_slots_used = frame.at.code->n_slots;
  return leave_frame(native, none);
}

}  // namespace braze::capture
