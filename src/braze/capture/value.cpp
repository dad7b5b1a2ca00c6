#include "braze/capture/value.h"

namespace braze::capture {

void unsupported(std::string reason, std::string remedy) { throw Abort{{std::move(reason), std::move(remedy)}}; }
void end_segment(std::string reason) { throw Abort{{std::move(reason), ""}, 0, true}; }

bool must_propagate(PyObject* exception_type) {
  return PyErr_GivenExceptionMatches(exception_type, PyExc_KeyboardInterrupt) ||
         PyErr_GivenExceptionMatches(exception_type, PyExc_MemoryError) ||
         PyErr_GivenExceptionMatches(exception_type, PyExc_SystemExit);
}

Value Arguments::keyword(const char* name) const {
  for (int64_t i = 0; i < n_keywords(); i++) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), name) == 0) return (*this)[n_positional() + i];
  }
  return {};
}

}  // namespace braze::capture
