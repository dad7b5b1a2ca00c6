#include "braze/capture/frame_hook.h"

#define Py_BUILD_CORE 1
extern "C" {
#include <internal/pycore_frame.h>
}
#undef Py_BUILD_CORE

#include <vector>

namespace braze::capture {

namespace {

thread_local FrameRunner* armed = nullptr;
thread_local _PyFrameEvalFunction restored_when_entered = nullptr;
thread_local uint64_t natively = 0;
thread_local FrameRunner* present = nullptr;   // of the innermost scope on this thread

struct Installed {
  int count = 0;
  _PyFrameEvalFunction before = nullptr;
};

// Guarded by the GIL.
Installed& installed() {
  static Installed state;
  return state;
}

struct Starting {
  PyFunctionObject* function = nullptr;
  PyObject* code = nullptr;   // the function's own
  bool collecting = false;
};
thread_local Starting starting;

// Undoes what start_frame() changed; the GIL was held since.
void enter_started_frame(PyInterpreterState* interpreter) {
  if (starting.function == nullptr) return;
  starting.function->func_code = starting.code;
  if (starting.collecting) PyGC_Enable();
  starting = {};
  if (restored_when_entered == nullptr) return;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, std::exchange(restored_when_entered, nullptr));
}

PyObject* evaluate(PyThreadState* thread, _PyInterpreterFrame* frame, int throwing) {
  if (armed != nullptr) {
    FrameRunner* runner = armed;
    armed = nullptr;
    enter_started_frame(thread->interp);
    return runner->run_frame(frame, throwing != 0);
  }
  if (present != nullptr) {
    PyObject* generator = generator_of_frame(frame);
    if (generator != nullptr && present->owns(generator)) return present->run_frame(frame, throwing != 0);
    natively++;
    return _PyEval_EvalFrameDefault(thread, frame, throwing);
  }
  const _PyFrameEvalFunction before = installed().before;
  return before != nullptr ? before(thread, frame, throwing) : _PyEval_EvalFrameDefault(thread, frame, throwing);
}

}  // namespace

HookScope::HookScope(FrameRunner* runner) : outer_(present) {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  present = runner;
  if (installed().count++ > 0) return;
  installed().before = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
}

HookScope::~HookScope() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  armed = nullptr;
  present = outer_;
  if (--installed().count > 0) return;
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == evaluate) {
    _PyInterpreterState_SetEvalFrameFunc(interpreter, installed().before);
  }
}

void arm(FrameRunner* runner) { armed = runner; }

bool disarm() {
  const bool started = armed == nullptr;
  armed = nullptr;
  return started;
}

uint64_t frames_run_natively() { return natively; }

PyObject* start_frame(PyObject* object, PyCodeObject* code, FrameRunner* runner) {
  auto* function = reinterpret_cast<PyFunctionObject*>(object);
  const int64_t n = code->co_argcount, n_keywords = code->co_kwonlyargcount;
  std::vector<PyObject*> dummies(static_cast<size_t>(n + n_keywords) + 1, Py_None);
  Ref names;
  if (n_keywords > 0) {
    names = Ref::steal(PyTuple_GetSlice(code->co_localsplusnames, n, n + n_keywords));
    if (!names) return nullptr;
  }
  PyInterpreterState* const interpreter = PyInterpreterState_Get();
  const _PyFrameEvalFunction before = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (before != evaluate) {
    restored_when_entered = before;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
  }
  armed = runner;
  // The frame belongs to the code that the function had when the frame was cut.
  PyObject* const now = function->func_code;
  function->func_code = reinterpret_cast<PyObject*>(code);
  // A collection would run finalizers, whose frames are not the one that is waited for.
  starting = {function, now, PyGC_Disable() != 0};
  PyObject* result = _PyFunction_Vectorcall(object, dummies.data(), static_cast<size_t>(n), names.get());
  if (armed != nullptr) {   // no frame came to be
    armed = nullptr;
    enter_started_frame(interpreter);
  }
  return result;
}

PyObject* hand_over(NativeFrame* frame, bool throwing) {
  return _PyEval_EvalFrameDefault(PyThreadState_Get(), frame, throwing ? 1 : 0);
}

FrameView view(NativeFrame* f) {
  return {f->f_func,
          f->f_code,
          f->f_globals,
          f->f_builtins,
          f->f_locals,
          f->localsplus,
          &f->stacktop,
          &f->prev_instr,
          reinterpret_cast<uint16_t*>(f->f_code->co_code_adaptive),
          f->owner == FRAME_OWNED_BY_GENERATOR};
}

FrameLink::FrameLink(NativeFrame* frame) : frame_(frame) {
  _PyCFrame* cframe = PyThreadState_Get()->cframe;
  frame->is_entry = true;
  frame->previous = cframe->current_frame;
  cframe->current_frame = frame;
}

FrameLink::~FrameLink() { PyThreadState_Get()->cframe->current_frame = frame_->previous; }

NativeFrame* frame_of_generator(PyObject* generator) {
  return reinterpret_cast<NativeFrame*>(reinterpret_cast<PyGenObject*>(generator)->gi_iframe);
}

PyObject* generator_of_frame(NativeFrame* frame) {
  return frame->owner == FRAME_OWNED_BY_GENERATOR ? reinterpret_cast<PyObject*>(_PyFrame_GetGenerator(frame)) : nullptr;
}

void suspend_generator(NativeFrame* frame) { _PyFrame_GetGenerator(frame)->gi_frame_state = FRAME_SUSPENDED; }

void forget_generator(PyObject* object) {
  auto* generator = reinterpret_cast<PyGenObject*>(object);
  if (generator->gi_frame_state != FRAME_SUSPENDED) return;
  NativeFrame* frame = frame_of_generator(object);
  const int used = frame->stacktop;
  frame->stacktop = frame->f_code->co_nlocalsplus;
  for (int i = 0; i < used; i++) Py_CLEAR(frame->localsplus[i]);
  frame->prev_instr = reinterpret_cast<_Py_CODEUNIT*>(frame->f_code->co_code_adaptive) - 1;
  generator->gi_frame_state = FRAME_CREATED;
}

void add_traceback() {
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  if (frame == nullptr) return;
  PyTraceBack_Here(frame);
  Ref::steal(reinterpret_cast<PyObject*>(frame));
}

}  // namespace braze::capture
