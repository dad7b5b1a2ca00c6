// Frames that a graph break cut out of a traced call, outermost first, and how they run on.
//
// A frame's state is its function, the instruction at which it stands, and its slots: locals, cells, free variables,
// then the stack. The innermost frame stands before an instruction; each other one is inside the instruction that
// called the next.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "braze/capture/code.h"
#include "braze/capture/exits/frame_hook.h"

namespace braze::capture {

// What a frame does with the result of the frame that it called.
enum class After : uint8_t {
  None,      // not known to this file: a callee under this instruction can't be cut
  Push,      // the result of the instruction
  Drop,      // setters
  Init,      // __init__: must be None; the object is on the stack
  Again,     // __bool__: the instruction is executed once more, on the result
  Branch,    // __bool__ under a jump that keeps the object where it jumps
  Iterator,  // __iter__: must be an iterator
  Attribute, // what a look-up on the object on the stack gives
  Send,      // of what the frame delegates to: the result of a `yield from`, or yielded on
  Contains,  // __contains__: its truth
  Next,      // __next__: pushed; StopIteration, or the end of a generator, ends the loop
  // A method of an operator, of which NotImplemented means that the next one is asked; in the order in which they are.
  InPlace,         // __iadd__
  ReflectedFirst,  // __radd__ of a right operand whose class derives from the left one's
  Forward,         // __add__
  Reflected,       // __radd__
};
// What __init__, __bool__ and __iter__ must give; else the error is set.
bool is_init_result(PyObject* result);
bool is_bool_result(PyObject* result);
bool is_iterator(PyObject* result);
// An AttributeError that is set says what was looked for, as PyObject_GetAttr sees to.
void note_missing_attribute(PyObject* object, PyObject* name);

struct FramePoint {
  const Code* code = nullptr;
  uint32_t pc = 0;
  int32_t n_slots = 0;   // that are in use
  After after = After::None;   // of frames that called another one
  bool handles = false;  // the outermost frame: an exception other than the caller's is being handled
  bool generator = false;   // the frame is a generator's, which holds its slots and what it handles

  bool operator==(const FramePoint&) const = default;
};

struct LiveFrame {
  FramePoint at;
  Ref function;             // or the generator
  std::vector<Ref> slots;   // empty where a slot holds nothing
  Ref handled;              // where `at` says so: the exception
};

// What a continuation sees of a frame, or of a suspended generator that nothing but the frames holds (so that it can be
// made anew). Borrowed.
struct LiveState {
  const Code* code = nullptr;
  PyObject* function = nullptr;
  std::vector<PyObject*> slots;
  PyObject* handled = nullptr;
  PyObject* generator = nullptr;
  GeneratorState state;     // of the generator
};

class LiveFrames final : private FrameRunner {
 public:
  // roots: for each frame its function, its slots, and the exception that it handles if it says so; new references,
  // taken over.
  LiveFrames(std::span<const FramePoint> points, PyObject** roots);
  LiveFrames(LiveFrames&&) = default;
  LiveFrames& operator=(LiveFrames&& other) noexcept {
    std::swap(frames_, other.frames_);
    return *this;
  }
  // What is left has gone on elsewhere: generators are dropped without running on.
  ~LiveFrames();

  // Executes the next instruction of the innermost frame; where that is not one that can be taken alone, CPython runs
  // that frame to its end. What is raised goes to its handler. True: the frames that are left stand at their next
  // instruction. False: the outermost frame has ended; `result` is what it returned, or nullptr with an error set.
  bool step(PyObject*& result) { return run(Mode::Step, result); }
  // The same, but CPython runs the innermost frame to its end.
  bool end_innermost(PyObject*& result) { return run(Mode::EndInnermost, result); }
  // CPython runs the frames to their end. An error that is set is raised where the innermost frame stands.
  PyObject* finish();

  const std::vector<LiveFrame>& frames() const { return frames_; }
  // Of the frames, then of the generators that are theirs alone. Empty if a frame's generator is not.
  std::vector<LiveState> states() const;
  // The values that a continuation is called with: functions, slots and handled exceptions of the states in order,
  // without empty slots and without the states' generators; borrowed. And a key of all else that it depends on. False
  // where states() is empty.
  bool describe(std::vector<PyObject*>& values, std::string& key) const;

 private:
  enum class Mode : uint8_t { Step, EndInnermost, Finish };

  bool run(Mode mode, PyObject*& result);
  PyObject* run_frame(NativeFrame* native, bool throwing) override;
  bool owns(PyObject*) override { return false; }
  PyObject* start(size_t i, bool& ended);
  PyObject* run_innermost(NativeFrame* native, size_t i);
  PyObject* go_on(NativeFrame* native, size_t i, uint32_t pc);
  PyObject* raise(NativeFrame* native, size_t i, bool again);
  PyObject* take_out(NativeFrame* native, LiveFrame& frame);

  std::vector<LiveFrame> frames_;
  size_t entered_ = 0;
  Mode mode_ = Mode::Finish;
  std::vector<Ref> left_;  // frame objects, of tracebacks, whose frames were taken out
  bool stopped_ = false;   // the frames were taken out of CPython's stack again
};

// Which of the states is the object's; -1: it is none of their generators.
int64_t index_of_generator(const std::vector<LiveState>& states, PyObject* object);

}  // namespace braze::capture
