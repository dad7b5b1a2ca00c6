// CPython 3.12's frames: see frame.h.
#pragma once

namespace braze::capture::cpython {

inline PyCodeObject* code_of(_PyInterpreterFrame* frame) { return frame->f_code; }
inline PyFunctionObject* function_of(_PyInterpreterFrame* frame) {
  return reinterpret_cast<PyFunctionObject*>(frame->f_funcobj);
}
inline _Py_CODEUNIT** position_of(_PyInterpreterFrame* frame) { return &frame->prev_instr; }
inline _PyInterpreterFrame*& current_frame(PyThreadState* thread) { return thread->cframe->current_frame; }
inline int* python_calls_left(PyThreadState* thread) { return &thread->py_recursion_remaining; }
inline int& c_calls_left(PyThreadState* thread) { return thread->c_recursion_remaining; }
inline void enter_link(_PyInterpreterFrame*) {}
inline void suspend(_PyInterpreterFrame* frame, bool) {
  PyGenObject* const generator = _PyFrame_GetGenerator(frame);
  generator->gi_frame_state = FRAME_SUSPENDED;
  PyThreadState_Get()->exc_info = std::exchange(generator->gi_exc_state.previous_item, nullptr);
}
inline constexpr int kDelegating = FRAME_SUSPENDED;
inline constexpr bool kLeftByCallee = true;

}  // namespace braze::capture::cpython
