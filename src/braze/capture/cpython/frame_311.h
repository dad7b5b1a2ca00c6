// CPython 3.11's frames: see frame.h.
#pragma once

namespace braze::capture::cpython {

inline PyCodeObject* code_of(_PyInterpreterFrame* frame) { return frame->f_code; }
inline PyFunctionObject* function_of(_PyInterpreterFrame* frame) { return frame->f_func; }
inline _Py_CODEUNIT** position_of(_PyInterpreterFrame* frame) { return &frame->prev_instr; }
inline _PyInterpreterFrame*& current_frame(PyThreadState* thread) { return thread->cframe->current_frame; }
inline int* python_calls_left(PyThreadState*) { return nullptr; }
inline int& c_calls_left(PyThreadState* thread) { return thread->recursion_remaining; }
inline void enter_link(_PyInterpreterFrame* frame) { frame->is_entry = true; }
inline void suspend(_PyInterpreterFrame* frame, bool) {
  _PyFrame_GetGenerator(frame)->gi_frame_state = FRAME_SUSPENDED;
}
inline constexpr int kDelegating = FRAME_SUSPENDED;
inline constexpr bool kLeftByCallee = false;

}  // namespace braze::capture::cpython
