#include "braze/capture/frames.h"

#include "braze/capture/step.h"
#include "braze/support/check.h"

namespace braze::capture {

namespace {

// CPython goes on after the instruction at `pc` (which then is the one that an error is raised by).
void stand_inside(const FrameView& v, const Code& code, uint32_t pc) { v.run(code.insns[pc].native); }

void stand_before(const FrameView& v, const Code& code, uint32_t pc) { v.stand_before(code.insns[pc].start); }

// The error that finish() was called with, until the innermost frame stands.
thread_local Raised to_raise;

// The instruction at `pc` raised the error that is set: CPython goes on at its handler, or the frame ends. (CPython's own
// loop would do so, too, but not on all versions with the right line in the traceback.)
PyObject* unwind(NativeFrame* native, const Code& code, uint32_t pc) {
  const FrameView v = view(native);
  stand_inside(v, code, pc);
  const Handler* const handler = code.handler_of(pc);
  Ref exception;
  {
    const FrameLink link(native);   // also for the code that makes the exception object
    add_traceback();
    if (handler != nullptr) exception = take_exception();
  }
  if (handler == nullptr) return leave_frame(native, nullptr);
  const int depth = code.n_slots + static_cast<int>(handler->depth);
  while (*v.n_slots_used > depth) Ref::steal(v.slots[--*v.n_slots_used]);
  const auto push = [&](PyObject* object) { v.slots[(*v.n_slots_used)++] = object; };
  if (handler->push_last_instruction) push(PyLong_FromLongLong(v.running()));
  push(exception.release());
  stand_before(v, code, handler->target);
  return hand_over(native);
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

LiveFrames::LiveFrames(std::span<const FramePoint> points, PyObject** roots) {
  for (const FramePoint& point : points) {
    LiveFrame frame{point, Ref::steal(*roots++), {}};
    for (int32_t i = 0; i < point.n_slots; i++) frame.slots.push_back(Ref::steal(*roots++));
    frames_.push_back(std::move(frame));
  }
}

std::vector<PyObject*> LiveFrames::values() const {
  std::vector<PyObject*> out;
  for (const LiveFrame& frame : frames_) {
    out.push_back(frame.function.get());
    for (const Ref& slot : frame.slots) {
      if (slot) out.push_back(slot.get());
    }
  }
  return out;
}

std::string LiveFrames::key() const {
  std::string out;
  for (const LiveFrame& frame : frames_) {
    out.append(reinterpret_cast<const char*>(&frame.at.code), sizeof frame.at.code);
    out.append(reinterpret_cast<const char*>(&frame.at.pc), sizeof frame.at.pc);
    out.push_back(static_cast<char>('0' + static_cast<int>(frame.at.after)));
    for (const Ref& slot : frame.slots) out.push_back(slot ? 'x' : '-');
    out.push_back('\n');
  }
  return out;
}

bool LiveFrames::step(PyObject*& result) {
  stepping_ = true;
  stepped_ = false;
  result = start(0);
  stepping_ = false;
  if (stepped_) Ref::steal(std::exchange(result, nullptr));
  return stepped_;
}

PyObject* LiveFrames::finish() {
  stepped_ = false;
  to_raise = Raised::take();
  PyObject* const result = start(0);
  to_raise = {};
  return result;
}

PyObject* LiveFrames::start(size_t i) {
  entered_ = i;
  const LiveFrame& frame = frames_[i];
  const Ref function = frame.function;
  return start_frame(function.get(), frame.at.code->object, this);
}

PyObject* LiveFrames::run_frame(NativeFrame* native, bool) {
  const size_t i = entered_;
  LiveFrame& frame = frames_[i];
  const FrameView v = view(native);
  for (int k = 0; k < frame.at.code->n_slots; k++) Ref::steal(std::exchange(v.slots[k], nullptr));   // dummies
  for (size_t k = 0; k < frame.slots.size(); k++) v.slots[k] = frame.slots[k].release();
  *v.n_slots_used = frame.at.n_slots;
  if (i + 1 == frames_.size()) return run_innermost(native, frame);

  stand_inside(v, *frame.at.code, frame.at.pc);
  PyObject* result = nullptr;
  {
    const FrameLink link(native);
    const RecursionScope recursion;
    *v.n_slots_used = -1;   // as while a frame runs
    if (recursion) result = start(i + 1);
    *v.n_slots_used = frame.at.n_slots;
  }
  if (stepped_) {
    take_back(native, frame);
    return leave_frame(native, result);
  }
  if (!take_result(v, frame, result)) return unwind(native, *frame.at.code, frame.at.pc);
  return hand_over(native);
}

// The frame that was called has ended. False: an error is set, to be raised where the frame stands.
bool LiveFrames::take_result(const FrameView& v, const LiveFrame& frame, PyObject* result) {
  const Code& code = *frame.at.code;
  const auto push = [&](PyObject* owned) { v.slots[(*v.n_slots_used)++] = owned; };
  Ref owned = Ref::steal(result);
  uint32_t next = frame.at.pc + 1;
  if (!owned) {
    if (frame.at.after != After::Next || !PyErr_ExceptionMatches(PyExc_StopIteration)) return false;
    PyErr_Clear();
    Ref::steal(v.slots[--*v.n_slots_used]);   // the iterator
    next = code.insns[frame.at.pc].target;
  } else {
    switch (frame.at.after) {
      case After::None: case After::Push: case After::Next: push(owned.release()); break;
      case After::Drop: break;
      case After::Init:
        if (!is_init_result(owned.get())) return false;
        break;
      case After::Again:
        if (!is_bool_result(owned.get())) return false;
        push(owned.release());
        next = frame.at.pc;
        break;
      case After::Contains: {
        const int in = PyObject_IsTrue(owned.get());
        if (in < 0) return false;
        push(Ref::borrow((in == 1) != (code.insns[frame.at.pc].arg == 1) ? Py_True : Py_False).release());
        break;
      }
    }
  }
  stand_before(v, code, next);
  return true;
}

PyObject* LiveFrames::run_innermost(NativeFrame* native, LiveFrame& frame) {
  const FrameView v = view(native);
  const Code& code = *frame.at.code;
  if (to_raise) {
    std::exchange(to_raise, {}).set();
    return unwind(native, code, frame.at.pc);
  }
  if (stepping_) {
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
    if (outcome == Step::Done) {
      frame.at.pc = s.pc;
      frame.at.n_slots = *v.n_slots_used;
      take_back(native, frame);
      stepped_ = true;
      return leave_frame(native, Ref::borrow(Py_None).release());
    }
    if (outcome == Step::Raised) return unwind(native, code, frame.at.pc);
  }
  stand_before(v, code, frame.at.pc);
  return hand_over(native);
}

void LiveFrames::take_back(NativeFrame* native, LiveFrame& frame) {
  const FrameView v = view(native);
  frame.slots.clear();
  for (int32_t k = 0; k < frame.at.n_slots; k++) frame.slots.push_back(Ref::steal(std::exchange(v.slots[k], nullptr)));
  *v.n_slots_used = frame.at.code->n_slots;
}

}  // namespace braze::capture
