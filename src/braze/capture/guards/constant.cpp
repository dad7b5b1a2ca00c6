#include "braze/capture/guards/constant.h"

#include "braze/capture/tensor_domain.h"

#include <cstring>
#include <vector>

#include "braze/support/hash.h"

namespace braze::capture {

namespace {

// A mistake in native code must not leave an error for the next instruction to trip over.
bool true_without_error(int outcome) {
  if (outcome < 0) PyErr_Clear();
  return outcome == 1;
}

bool is_singleton(PyObject* object) {
  return object == Py_None || object == Py_True || object == Py_False || object == Py_Ellipsis ||
         object == Py_NotImplemented;
}

bool same_double(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool tuples_equal(PyObject* a, PyObject* b) {
  const Py_ssize_t n = PyTuple_GET_SIZE(a);
  if (n != PyTuple_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < n; i++) {
    if (!constants_equal(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
  }
  return true;
}

std::vector<PyObject*> elements_of(PyObject* set) {
  std::vector<PyObject*> out;
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  Py_hash_t hash = 0;
  while (_PySet_NextEntry(set, &position, &key, &hash)) out.push_back(key);
  return out;
}

bool frozensets_equal(PyObject* a, PyObject* b) {
  if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) return false;
  const std::vector<PyObject*> right = elements_of(b);
  for (PyObject* element : elements_of(a)) {
    bool found = false;
    for (PyObject* other : right) {
      found = constants_equal(element, other);
      if (found) break;
    }
    if (!found) return false;
  }
  return true;
}

bool slices_equal(PyObject* a, PyObject* b) {
  const auto* left = reinterpret_cast<PySliceObject*>(a);
  const auto* right = reinterpret_cast<PySliceObject*>(b);
  return constants_equal(left->start, right->start) && constants_equal(left->stop, right->stop) &&
         constants_equal(left->step, right->step);
}

std::string type_text(PyObject* object) { return Py_TYPE(object)->tp_name; }

}  // namespace

bool is_value_constant(PyObject* object) {
  if (is_singleton(object) || PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyComplex_CheckExact(object) ||
      PyUnicode_CheckExact(object) || PyBytes_CheckExact(object) || PyRange_Check(object)) {
    return true;
  }
  if (PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++) {
      if (!is_value_constant(PyTuple_GET_ITEM(object, i))) return false;
    }
    return true;
  }
  if (PyAnySet_CheckExact(object)) {
    for (PyObject* element : elements_of(object)) {
      if (!is_value_constant(element)) return false;
    }
    return true;
  }
  if (PySlice_Check(object)) {
    const auto* slice = reinterpret_cast<PySliceObject*>(object);
    return is_value_constant(slice->start) && is_value_constant(slice->stop) && is_value_constant(slice->step);
  }
  return domain().is_constant(object);
}

bool constants_equal(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr || Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyLong_CheckExact(a) || PyRange_Check(a)) return true_without_error(PyObject_RichCompareBool(a, b, Py_EQ));
  if (PyFloat_CheckExact(a)) return same_double(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (PyComplex_CheckExact(a)) {
    const Py_complex left = PyComplex_AsCComplex(a), right = PyComplex_AsCComplex(b);
    return same_double(left.real, right.real) && same_double(left.imag, right.imag);
  }
  if (PyUnicode_CheckExact(a)) {
    if (PyUnicode_READY(a) != 0 || PyUnicode_READY(b) != 0) return PyErr_Clear(), false;
    return true_without_error(PyObject_RichCompareBool(a, b, Py_EQ));
  }
  if (PyBytes_CheckExact(a)) {
    return PyBytes_GET_SIZE(a) == PyBytes_GET_SIZE(b) &&
           std::memcmp(PyBytes_AS_STRING(a), PyBytes_AS_STRING(b), static_cast<size_t>(PyBytes_GET_SIZE(a))) == 0;
  }
  if (PyTuple_Check(a)) return is_value_constant(a) && tuples_equal(a, b);
  if (PyAnySet_CheckExact(a)) return is_value_constant(a) && is_value_constant(b) && frozensets_equal(a, b);
  if (PySlice_Check(a)) return slices_equal(a, b);
  // Immutable natives of a static C type (torch.device): their == is C code.
  if (!PyType_HasFeature(Py_TYPE(a), Py_TPFLAGS_HEAPTYPE) && !PyObject_IS_GC(a) && Py_TYPE(a)->tp_hash != nullptr &&
      Py_TYPE(a)->tp_hash != PyObject_HashNotImplemented) {
    return true_without_error(PyObject_RichCompareBool(a, b, Py_EQ));
  }
  return false;
}

uint64_t hash_constant(PyObject* object) {
  if (object == nullptr) return 0;
  if (!is_value_constant(object) || PySlice_Check(object) || PySet_Check(object)) return reinterpret_cast<uintptr_t>(Py_TYPE(object));
  if (PyTuple_Check(object)) {
    uint64_t h = 17;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++) h = mix(h, hash_constant(PyTuple_GET_ITEM(object, i)));
    return h;
  }
  const Py_hash_t h = PyObject_Hash(object);
  if (h == -1) PyErr_Clear();
  return mix(reinterpret_cast<uintptr_t>(Py_TYPE(object)), static_cast<uint64_t>(h));
}

std::string constant_text(PyObject* object) {
  if (object == nullptr) return "nothing";
  // Functions, classes and modules print their names; their fields are plain C members.
  if (PyType_Check(object)) return reinterpret_cast<PyTypeObject*>(object)->tp_name;
  if (PyModule_Check(object)) {
    const char* name = PyModule_GetName(object);
    if (name == nullptr) return PyErr_Clear(), "a module";
    return std::string("module ") + name;
  }
  if (PyFunction_Check(object)) {
    const char* name = PyUnicode_AsUTF8(reinterpret_cast<PyFunctionObject*>(object)->func_qualname);
    if (name == nullptr) return PyErr_Clear(), "a function";
    return std::string("function ") + name;
  }
  const bool native = is_value_constant(object) || PyCFunction_Check(object) || PyCode_Check(object) ||
                      (!PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE) && !PyObject_IS_GC(object));
  if (!native || (PyTuple_Check(object) && !PyTuple_CheckExact(object))) return "a " + type_text(object);
  Ref text = Ref::steal(PyObject_Repr(object));
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (utf8 == nullptr) return PyErr_Clear(), "a " + type_text(object);
  std::string out = utf8;
  if (out.size() > 80) out = out.substr(0, 77) + "...";
  return out;
}

}  // namespace braze::capture
