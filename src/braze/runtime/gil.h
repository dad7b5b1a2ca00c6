// GilRelease drops the GIL for its lifetime, or until acquire(); HoldGil takes it, on any thread.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <utility>

namespace braze::runtime {

class GilRelease {
 public:
  explicit GilRelease(bool release) : state_(release ? PyEval_SaveThread() : nullptr) {}
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;
  ~GilRelease() { acquire(); }
  void acquire() {
    if (state_ != nullptr) PyEval_RestoreThread(std::exchange(state_, nullptr));
  }

 private:
  PyThreadState* state_;
};

class HoldGil {
 public:
  HoldGil() : state_(PyGILState_Ensure()) {}
  ~HoldGil() { PyGILState_Release(state_); }
  HoldGil(const HoldGil&) = delete;
  HoldGil& operator=(const HoldGil&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace braze::runtime
