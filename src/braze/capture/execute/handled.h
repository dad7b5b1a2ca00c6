// The exceptions that a thread handles: what an `except` or `finally` block has caught and not left yet. The frames of a
// thread keep the innermost one in one place (the others stand on their stacks); a generator has a place of its own,
// which is the present one while its frame runs.
#pragma once

#include "braze/capture/cpython/version.h"
#include "braze/capture/ref.h"

namespace braze::capture {

inline _PyErr_StackItem* present_place() { return PyThreadState_Get()->exc_info; }

// Borrowed; nullptr where nothing is handled.
inline PyObject* handled_in(const _PyErr_StackItem* place) {
  return place->exc_value == Py_None ? nullptr : place->exc_value;
}

inline Ref exchange_handled(_PyErr_StackItem* place, Ref exception) {
  return Ref::steal(std::exchange(place->exc_value, exception.release()));
}

// What `raise` without an argument raises.
inline PyObject* innermost_handled() {
  const _PyErr_StackItem* place = present_place();
  while (handled_in(place) == nullptr && place->previous_item != nullptr) place = place->previous_item;
  return handled_in(place);
}

inline PyObject* handled_or_none(bool innermost) {
  PyObject* const exception = innermost ? innermost_handled() : handled_in(present_place());
  return exception == nullptr ? Py_None : exception;
}

// Raises the exception once more: its traceback stays as it is.
inline void raise_again(Ref exception) {
  PyObject* const traceback = PyException_GetTraceback(exception.get());
  Ref type = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())));
  PyErr_Restore(type.release(), exception.release(), traceback);
}

// What an `except` clause may name; else TypeError is set.
inline bool is_except_pattern(PyObject* pattern) {
  bool ok = PyExceptionClass_Check(pattern) != 0;
  if (PyTuple_Check(pattern)) {
    ok = true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pattern); i++) {
      ok = ok && PyExceptionClass_Check(PyTuple_GET_ITEM(pattern, i)) != 0;
    }
  }
  if (!ok) PyErr_SetString(PyExc_TypeError, "catching classes that do not inherit from BaseException is not allowed");
  return ok;
}

// Another exception is handled in the present place for a while.
class HandledScope {
 public:
  explicit HandledScope(Ref exception)
      : place_(present_place()), before_(exchange_handled(place_, std::move(exception))) {}
  ~HandledScope() { take(); }
  HandledScope(const HandledScope&) = delete;
  HandledScope& operator=(const HandledScope&) = delete;
  // Ends the scope: what is handled now.
  Ref take() {
    if (ended_) return {};
    ended_ = true;
    return exchange_handled(place_, std::move(before_));
  }

 private:
  _PyErr_StackItem* place_;
  Ref before_;
  bool ended_ = false;
};

}  // namespace braze::capture
