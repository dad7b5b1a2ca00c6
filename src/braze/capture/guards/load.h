// Reads of native objects' fields for guards. Results are borrowed, nullptr where there is none; a value of an
// unexpected type gives nullptr too. No Python code runs and no error is left.
#pragma once

#include <cstdint>
#include <cstring>

#include "braze/capture/guards/object.h"

namespace braze::capture::load {

inline PyObject* global(PyObject* function, PyObject* name, uint16_t& hint, bool& known) {
  if (!PyFunction_Check(function)) return nullptr;
  const auto* f = reinterpret_cast<PyFunctionObject*>(function);
  if (PyObject* value = object::dict_lookup(f->func_globals, name, hint, known)) return value;
  uint16_t no_hint = 0xffff;
  return f->func_builtins == nullptr ? nullptr : object::dict_lookup(f->func_builtins, name, no_hint, known);
}

inline PyObject* closure_cell(PyObject* function, int64_t i) {
  if (!PyFunction_Check(function)) return nullptr;
  PyObject* cells = reinterpret_cast<PyFunctionObject*>(function)->func_closure;
  return cells != nullptr && i < PyTuple_GET_SIZE(cells) ? PyTuple_GET_ITEM(cells, i) : nullptr;
}

inline PyObject* closure(PyObject* function, int64_t i) {
  PyObject* cell = closure_cell(function, i);
  return cell == nullptr ? nullptr : PyCell_GET(cell);
}

// None where the field is empty, as Python code sees it.
inline PyObject* function_field(PyObject* function, PyObject* PyFunctionObject::*field) {
  if (!PyFunction_Check(function)) return nullptr;
  PyObject* value = reinterpret_cast<PyFunctionObject*>(function)->*field;
  return value == nullptr ? Py_None : value;
}

// collections.deque itself: a class statement's name has no module.
inline bool is_deque(PyObject* object) { return std::strcmp(Py_TYPE(object)->tp_name, "collections.deque") == 0; }
PyObject* deque_item(PyObject* deque, int64_t i);

inline PyObject* item(PyObject* sequence, int64_t i) {
  if (PyList_Check(sequence)) return i < PyList_GET_SIZE(sequence) ? PyList_GET_ITEM(sequence, i) : nullptr;
  if (PyTuple_Check(sequence)) return i < PyTuple_GET_SIZE(sequence) ? PyTuple_GET_ITEM(sequence, i) : nullptr;
  return is_deque(sequence) ? deque_item(sequence, i) : nullptr;
}

inline PyObject* method_part(PyObject* method, uint32_t part) {
  if (!PyMethod_Check(method)) return nullptr;
  return part == 0 ? PyMethod_GET_SELF(method) : PyMethod_GET_FUNCTION(method);
}

// An attribute of a class by its MRO; for an object that is no class, of its type.
inline PyObject* type_attribute(PyObject* object, PyObject* name) {
  auto* type = PyType_Check(object) ? reinterpret_cast<PyTypeObject*>(object) : Py_TYPE(object);
  PyObject* found = _PyType_Lookup(type, name);
  if (found == nullptr) PyErr_Clear();
  return found;
}

// A hash over what stands in the class's slots: which special methods it has, apart from which Python functions these are.
uint64_t type_slots(PyTypeObject* type);
// Changes when a class is registered with an abstract one.
int64_t abc_token();
PyObject* super_attribute(PyTypeObject* type, PyObject* after, PyObject* name);
PyObject* dict_of(PyObject* object);              // a module's or a class's own dict; an instance's if it exists
PyObject* dict_key(PyObject* dict, int64_t i);
PyObject* dict_value(PyObject* dict, int64_t i);    // of a dict whose order is its entries'
// A key that is compared by identity, or a tuple of such keys and constants.
PyObject* lookup(PyObject* dict, PyObject* key, bool& known);
bool keys_equal(PyObject* dict, PyObject* tuple_of_keys);
// Slots and native getters, found on the type; a new reference. Of a weak reference weak_referent(): what it refers to.
Ref member(PyObject* object, PyObject* name);
inline PyObject* weak_referent() {
  static PyObject* const name = PyUnicode_InternFromString("()");
  return name;
}

int64_t length(PyObject* container);              // -1: no container with a native length
int truth(PyObject* object);                      // -1: not decidable natively

// Compared by type where a class holds one, since its contents have guards of their own.
inline bool is_mutable_container(PyObject* object) {
  return PyList_CheckExact(object) || PyDict_CheckExact(object) || PySet_CheckExact(object);
}

// property: getter, setter, deleter; staticmethod, classmethod: the function. Others: nothing.
bool is_wrapper(PyObject* object);
void wrapped_functions(PyObject* wrapper, PyObject* (&inner)[3]);
PyObject* wrapped_function(PyObject* wrapper, PyObject* name);   // by its attribute's name: "fget", "__func__"

}  // namespace braze::capture::load
