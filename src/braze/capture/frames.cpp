#include "braze/capture/frames.h"

#include "braze/capture/step.h"
#include "braze/support/check.h"

namespace braze::capture {

namespace {

// CPython goes on after the instruction at `pc` (which then is the one that an error is raised by).
void stand_inside(const FrameView& v, const Code& code, uint32_t pc) {
  *v.last_instruction = v.first_instruction + code.insns[pc].native;
}

void stand_before(const FrameView& v, const Code& code, uint32_t pc) {
  *v.last_instruction = v.first_instruction + code.insns[pc].start - 1;
}

// The error that finish() was called with, until the innermost frame stands.
struct Error {
  Ref type, value, traceback;
};
thread_local Error to_raise;

Error take_error() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  return {Ref::steal(type), Ref::steal(value), Ref::steal(traceback)};
}

class Recursion {
 public:
  Recursion() : entered_(Py_EnterRecursiveCall(" while calling a Python object") == 0) {}
  ~Recursion() {
    if (entered_) Py_LeaveRecursiveCall();
  }
  Recursion(const Recursion&) = delete;
  Recursion& operator=(const Recursion&) = delete;
  explicit operator bool() const { return entered_; }

 private:
  bool entered_;
};

}  // namespace

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
  to_raise = take_error();
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
    const Recursion recursion;
    *v.n_slots_used = -1;   // as while a frame runs
    if (recursion) result = start(i + 1);
    *v.n_slots_used = frame.at.n_slots;
  }
  if (stepped_) {
    take_back(native, frame);
    return result;
  }
  if (result != nullptr) {
    v.slots[(*v.n_slots_used)++] = result;
    stand_before(v, *frame.at.code, frame.at.pc + 1);
  }
  return hand_over(native, result == nullptr);
}

PyObject* LiveFrames::run_innermost(NativeFrame* native, LiveFrame& frame) {
  const FrameView v = view(native);
  const Code& code = *frame.at.code;
  Step outcome = Step::HandOver;
  if (to_raise.type) {
    Error error = std::exchange(to_raise, {});
    stand_inside(v, code, frame.at.pc);
    PyErr_Restore(error.type.release(), error.value.release(), error.traceback.release());
    return hand_over(native, true);
  }
  if (stepping_) {
    StepFrame s{code, v, v.slots + frame.at.n_slots, frame.at.pc};
    stand_inside(v, code, frame.at.pc);
    {
      const FrameLink link(native);
      const Recursion recursion;
      *v.n_slots_used = -1;
      outcome = !recursion || PyErr_CheckSignals() < 0 ? Step::Raised : step_instruction(s);
      *v.n_slots_used = static_cast<int>(s.sp - v.slots);
    }
    if (outcome == Step::Done) {
      frame.at.pc = s.pc;
      frame.at.n_slots = *v.n_slots_used;
      take_back(native, frame);
      stepped_ = true;
      return Ref::borrow(Py_None).release();
    }
  }
  if (outcome == Step::HandOver) stand_before(v, code, frame.at.pc);
  return hand_over(native, outcome == Step::Raised);
}

void LiveFrames::take_back(NativeFrame* native, LiveFrame& frame) {
  const FrameView v = view(native);
  frame.slots.clear();
  for (int32_t k = 0; k < frame.at.n_slots; k++) frame.slots.push_back(Ref::steal(std::exchange(v.slots[k], nullptr)));
  *v.n_slots_used = frame.at.code->n_slots;
}

}  // namespace braze::capture
