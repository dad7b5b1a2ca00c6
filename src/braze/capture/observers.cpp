#include "braze/capture/observers.h"

#include "braze/capture/ref.h"

namespace braze::capture {

namespace {

#if PY_VERSION_HEX >= 0x030c0000
PyObject* monitoring(const char* name) {
  PyObject* const module = PySys_GetObject("monitoring");   // borrowed
  PyObject* const found = module == nullptr ? nullptr : PyObject_GetAttrString(module, name);
  if (found == nullptr) PyErr_Clear();
  return found;
}

// A tool of sys.monitoring that waits for events of all code.
bool is_monitored() {
  static PyObject* const get_tool = monitoring("get_tool");
  static PyObject* const get_events = monitoring("get_events");
  if (get_tool == nullptr || get_events == nullptr) return false;
  constexpr long kTools = 6;
  for (long i = 0; i < kTools; i++) {
    const Ref id = Ref::steal(PyLong_FromLong(i));
    const Ref tool = Ref::steal(PyObject_CallOneArg(get_tool, id.get()));
    if (tool.get() == Py_None) continue;
    const Ref events = tool ? Ref::steal(PyObject_CallOneArg(get_events, id.get())) : Ref();
    if (!events) PyErr_Clear();
    else if (PyObject_IsTrue(events.get()) == 1) return true;
  }
  return false;
}
#else
bool is_monitored() { return false; }
#endif

}  // namespace

bool is_observed() {
  const PyThreadState* const thread = PyThreadState_Get();
  return thread->c_tracefunc != nullptr || thread->c_profilefunc != nullptr || is_monitored();
}

}  // namespace braze::capture
