#include "braze/capture/exits/frame_hook.h"

#include <frameobject.h>
#include <opcode.h>

#include <vector>

#include "braze/capture/cpython/frame.h"

namespace braze::capture {

namespace {

thread_local FrameRunner* armed = nullptr;
thread_local _PyFrameEvalFunction restored_when_entered = nullptr;
thread_local uint64_t natively = 0;
thread_local int refusing = 0;
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
thread_local Ref top_of_full_stack;   // of a generator that is being resumed

// Undoes what the start of a frame changed; the GIL was held since.
void enter_started_frame(PyInterpreterState* interpreter) {
  if (starting.function != nullptr) {
    starting.function->func_code = starting.code;
    if (starting.collecting) PyGC_Enable();
    starting = {};
  }
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
    if (refusing > 0 && generator == nullptr) {
      PyErr_SetString(PyExc_RuntimeError, "a call from native code while a call is compiled");
      return leave_frame(frame, nullptr);
    }
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

RefuseFrames::RefuseFrames() { refusing++; }
RefuseFrames::~RefuseFrames() { refusing--; }

namespace {

// The hook stands at least until the next frame is entered, which goes to `runner`.
void await_frame(PyInterpreterState* interpreter, FrameRunner* runner) {
  const _PyFrameEvalFunction before = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (before != evaluate) {
    restored_when_entered = before;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
  }
  armed = runner;
}

void stop_waiting(PyInterpreterState* interpreter) {
  if (armed == nullptr) return;   // the frame came to be
  armed = nullptr;
  enter_started_frame(interpreter);
}

// Calls the function, which then has this code, with dummies.
PyObject* call_with_dummies(PyObject* function, const PyCodeObject* code) {
  const int64_t n = code->co_argcount, n_keywords = code->co_kwonlyargcount;
  std::vector<PyObject*> dummies(static_cast<size_t>(n + n_keywords) + 1, Py_None);
  Ref names;
  if (n_keywords > 0) {
    names = Ref::steal(PyTuple_GetSlice(code->co_localsplusnames, n, n + n_keywords));
    if (!names) return nullptr;
  }
  return call_function_object(function, dummies.data(), static_cast<size_t>(n), names.get());
}

// The frame belongs to the code that the function had when the frame was cut. Until then no collection may run
// finalizers, whose frames are not the one that is waited for.
void give_code(PyFunctionObject* function, PyCodeObject* code) {
  starting = {function, function->func_code, PyGC_Disable() != 0};
  function->func_code = reinterpret_cast<PyObject*>(code);
}

}  // namespace

PyObject* start_frame(PyObject* object, PyCodeObject* code, FrameRunner* runner) {
  PyInterpreterState* const interpreter = PyInterpreterState_Get();
  give_code(reinterpret_cast<PyFunctionObject*>(object), code);
  await_frame(interpreter, runner);
  PyObject* const result = call_with_dummies(object, code);
  stop_waiting(interpreter);
  return result;
}

PyObject* new_generator(PyObject* function, PyCodeObject* code) {
  give_code(reinterpret_cast<PyFunctionObject*>(function), code);
  PyObject* const made = call_with_dummies(function, code);
  enter_started_frame(PyInterpreterState_Get());
  return made;
}

PySendResult resume_generator(PyObject* generator, PyObject*& result) {
  const FrameView v = view(frame_of_generator(generator));
  if (*v.n_slots_used == v.code->co_nlocalsplus + v.code->co_stacksize) {
    top_of_full_stack = Ref::steal(std::exchange(v.slots[--*v.n_slots_used], nullptr));
  }
  return PyIter_Send(generator, Py_None, &result);
}

PySendResult resume_generator(PyObject* generator, FrameRunner* runner, PyObject*& result) {
  PyInterpreterState* const interpreter = PyInterpreterState_Get();
  await_frame(interpreter, runner);
  const PySendResult outcome = resume_generator(generator, result);
  stop_waiting(interpreter);
  return outcome;
}

void take_sent(const FrameView& v) {
  Ref::steal(std::exchange(v.slots[--*v.n_slots_used], nullptr));
  if (top_of_full_stack) v.slots[(*v.n_slots_used)++] = top_of_full_stack.release();
}

PyObject* hand_over(NativeFrame* frame) { return _PyEval_EvalFrameDefault(PyThreadState_Get(), frame, 0); }

// No exported function clears a frame, so that CPython executes a RETURN_VALUE of ours in it.
PyObject* leave_frame(NativeFrame* frame, PyObject* result) {
  static uint16_t code[] = {0, RETURN_VALUE};
  const FrameView v = view(frame);
  while (*v.n_slots_used > v.code->co_nlocalsplus) Ref::steal(v.slots[--*v.n_slots_used]);
  if (!cpython::kLeftByCallee) return result;
  Raised raised = result == nullptr ? Raised::take() : Raised();
  uint16_t* const position = *v.position;
  // A frame object that lives on keeps the position.
  const Ref object = Ref::borrow(reinterpret_cast<PyObject*>(frame->frame_obj));
  v.slots[v.code->co_nlocalsplus] = result != nullptr ? result : Ref::borrow(Py_None).release();
  *v.n_slots_used = v.code->co_nlocalsplus + 1;
  *v.position = code + 1 - kPositionLag;
  PyObject* const returned = hand_over(frame);
  if (object) *view(reinterpret_cast<PyFrameObject*>(object.get())->f_frame).position = position;
  if (result != nullptr) return returned;
  Ref::steal(returned);
  std::move(raised).set();
  return nullptr;
}

FrameView view(NativeFrame* f) {
  PyCodeObject* const code = cpython::code_of(f);
  return {cpython::function_of(f),
          code,
          f->f_globals,
          f->f_builtins,
          f->f_locals,
          f->localsplus,
          &f->stacktop,
          reinterpret_cast<uint16_t**>(cpython::position_of(f)),
          reinterpret_cast<uint16_t*>(code->co_code_adaptive)};
}

Raised Raised::take() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  return {Ref::steal(type), Ref::steal(value), Ref::steal(traceback)};
}

void Raised::set() && { PyErr_Restore(type.release(), value.release(), traceback.release()); }

Ref take_exception() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Ref t = Ref::steal(type), tb = Ref::steal(traceback);
  PyException_SetTraceback(value, traceback != nullptr ? traceback : Py_None);
  return Ref::steal(value);
}

FrameLink::FrameLink(NativeFrame* frame) : before_(cpython::current_frame(PyThreadState_Get())) {
  cpython::enter_link(frame);
  frame->previous = before_;
  cpython::current_frame(PyThreadState_Get()) = frame;
}

FrameLink::~FrameLink() { cpython::current_frame(PyThreadState_Get()) = before_; }

NativeFrame* frame_of_generator(PyObject* generator) {
  return reinterpret_cast<NativeFrame*>(reinterpret_cast<PyGenObject*>(generator)->gi_iframe);
}

PyObject* generator_of_frame(NativeFrame* frame) {
  return frame->owner == FRAME_OWNED_BY_GENERATOR ? reinterpret_cast<PyObject*>(_PyFrame_GetGenerator(frame)) : nullptr;
}

void suspend_generator(NativeFrame* frame, bool delegating) {
  cpython::suspend(frame, delegating);
  frame->previous = nullptr;
}

void forget_generator(PyObject* object) {
  auto* generator = reinterpret_cast<PyGenObject*>(object);
  // Created, suspended or suspended in a `yield from`.
  if (generator->gi_frame_state >= FRAME_EXECUTING || generator->gi_frame_state == FRAME_CREATED) return;
  const FrameView v = view(frame_of_generator(object));
  const int used = *v.n_slots_used;
  *v.n_slots_used = v.code->co_nlocalsplus;
  for (int i = 0; i < used; i++) Ref::steal(std::exchange(v.slots[i], nullptr));
  v.stand_before(0);
  generator->gi_frame_state = FRAME_CREATED;
}

Ref frame_object(NativeFrame* frame) { return Ref::borrow(reinterpret_cast<PyObject*>(frame->frame_obj)); }

void forget_variables(PyObject* object) {
  *view(reinterpret_cast<PyFrameObject*>(object)->f_frame).n_slots_used = 0;
}

Ref new_traceback(PyObject* row, PyObject* next) {
  auto* const code = reinterpret_cast<PyCodeObject*>(PyTuple_GET_ITEM(row, 0));
  const Ref globals = Ref::steal(PyDict_New());
  if (!globals || PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins()) < 0 ||
      PyDict_SetItemString(globals.get(), "__name__", PyTuple_GET_ITEM(row, 1)) < 0) {
    return {};
  }
  PyFrameObject* const frame = PyFrame_New(PyThreadState_Get(), code, globals.get(), nullptr);
  const Ref held = Ref::steal(reinterpret_cast<PyObject*>(frame));
  if (!held) return {};
  // It stands where the error was raised, without variables.
  const FrameView v = view(frame->f_frame);
  v.run(static_cast<uint32_t>(PyLong_AsLong(PyTuple_GET_ITEM(row, 2)) / 2));
  *v.n_slots_used = 0;
  return Ref::steal(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PyTraceBack_Type), next == nullptr ? Py_None : next,
                                                 held.get(), PyTuple_GET_ITEM(row, 2), PyTuple_GET_ITEM(row, 3), nullptr));
}

GeneratorState generator_state(PyObject* object) {
  auto* const generator = reinterpret_cast<PyGenObject*>(object);
  using Kind = GeneratorState::Kind;
  const int state = generator->gi_frame_state;
  if (state > FRAME_EXECUTING) return {};
  const Kind kind = state == FRAME_EXECUTING ? Kind::Running
                    : state == FRAME_CREATED ? Kind::Created
                    : state == cpython::kDelegating ? Kind::Delegating : Kind::Suspended;
  PyObject* const handled = generator->gi_exc_state.exc_value;
  return {kind, view(frame_of_generator(object)).running(), handled == Py_None ? nullptr : handled};
}

void set_generator(PyObject* object, const GeneratorState& state, PyObject* const* slots, size_t n) {
  auto* const generator = reinterpret_cast<PyGenObject*>(object);
  const FrameView v = view(frame_of_generator(object));
  const int used = *v.n_slots_used;
  *v.n_slots_used = 0;
  for (int i = 0; i < used; i++) Ref::steal(std::exchange(v.slots[i], nullptr));   // dummies
  for (size_t i = 0; i < n; i++) v.slots[i] = Ref::borrow(slots[i]).release();
  *v.n_slots_used = static_cast<int>(n);
  *v.position = v.first_instruction + state.position;
  Ref::steal(std::exchange(generator->gi_exc_state.exc_value, Ref::borrow(state.handled).release()));
  using Kind = GeneratorState::Kind;
  if (state.kind == Kind::Created) return;
  generator->gi_frame_state = static_cast<int8_t>(state.kind == Kind::Delegating ? cpython::kDelegating : FRAME_SUSPENDED);
}

void add_traceback() {
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  if (frame == nullptr) return;
  PyTraceBack_Here(frame);
  Ref::steal(reinterpret_cast<PyObject*>(frame));
}

RecursionScope::RecursionScope() : entered_(Py_EnterRecursiveCall(" while calling a Python object") == 0) {
  int* const left = cpython::python_calls_left(PyThreadState_Get());
  if (!entered_ || left == nullptr || (*left)-- > 0) return;
  ++*left;
  Py_LeaveRecursiveCall();
  entered_ = false;
  PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
}

RecursionScope::~RecursionScope() {
  if (!entered_) return;
  if (int* const left = cpython::python_calls_left(PyThreadState_Get())) ++*left;
  Py_LeaveRecursiveCall();
}

RecursionLeft recursion_left() {
  PyThreadState* const thread = PyThreadState_Get();
  const int* const python = cpython::python_calls_left(thread);
  return {python == nullptr ? 0 : *python, cpython::c_calls_left(thread)};
}

void restore_recursion(RecursionLeft left) {
  PyThreadState* const thread = PyThreadState_Get();
  if (int* const python = cpython::python_calls_left(thread)) *python = left.python;
  cpython::c_calls_left(thread) = left.c;
}

}  // namespace braze::capture
