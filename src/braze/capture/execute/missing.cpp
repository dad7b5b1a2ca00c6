#include "braze/capture/execute/missing.h"

namespace braze::capture {

bool raise_missing(PyObject* object, PyObject* name) {
  if (PyType_Check(object)) {
    PyErr_Format(PyExc_AttributeError, "type object '%.50s' has no attribute '%U'",
                 reinterpret_cast<PyTypeObject*>(object)->tp_name, name);
  } else {
    PyErr_Format(PyExc_AttributeError, "'%.100s' object has no attribute '%U'", Py_TYPE(object)->tp_name, name);
  }
  return false;
}

bool raise_missing_key(PyObject* key) {
  const Ref arguments = Ref::steal(PyTuple_Pack(1, key));
  if (arguments) PyErr_SetObject(PyExc_KeyError, arguments.get());
  return false;
}

}  // namespace braze::capture
