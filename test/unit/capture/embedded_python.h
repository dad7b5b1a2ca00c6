// An interpreter inside the test program, started by the first test that needs it.
#pragma once

#include <string>

#include "braze/capture/ref.h"

namespace braze::capture::test {

inline void start_python() {
  if (Py_IsInitialized()) return;
  PyConfig config;
  PyConfig_InitIsolatedConfig(&config);
  PyConfig_SetBytesString(&config, &config.home, BRAZE_PYTHON_HOME);
  Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
}

// A namespace in which source text runs.
class Namespace {
 public:
  explicit Namespace(const char* text = "") {
    start_python();
    dict_ = Ref::steal(PyDict_New());
    PyDict_SetItemString(dict_.get(), "__builtins__", PyEval_GetBuiltins());
    PyDict_SetItemString(dict_.get(), "__name__", Ref::steal(PyUnicode_FromString("test")).get());
    exec(text);
  }
  void exec(const char* text) {
    Ref done = Ref::steal(PyRun_String(text, Py_file_input, dict_.get(), dict_.get()));
    if (!done) PyErr_Print();
  }
  Ref eval(const char* text) {
    Ref value = Ref::steal(PyRun_String(text, Py_eval_input, dict_.get(), dict_.get()));
    if (!value) PyErr_Print();
    return value;
  }
  PyObject* operator[](const char* name) { return PyDict_GetItemString(dict_.get(), name); }   // borrowed

 private:
  Ref dict_;
};

}  // namespace braze::capture::test
