#include "braze/capture/execute/generic_types.h"

#include <cstring>

#include "braze/capture/execute/types.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

namespace {

// What stands in the brackets of a generic type: classes, type variables, lists of such.
void use_type_parameter(Executor& x, Value v) {
  if (PyTuple_CheckExact(v.object) || PyList_CheckExact(v.object)) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(v.object);
    if (v.src != kNoSource) x.prov.use_length(v, n);
    for (Py_ssize_t i = 0; i < n; i++) use_type_parameter(x, x.prov.item_of(v, PySequence_Fast_GET_ITEM(v.object, i), i));
  } else if (x.prov.category(v.object) != Category::Identity) {
    x.prov.use_constant(v);
  } else if (v.src != kNoSource) {
    x.prov.use_identity(v);
  } else if (!x.prov.is_derived(v.object)) {
    x.fail("a generic type of an object that the call makes");
  }
}

Owned derived(Executor& x, PyObject* made) {
  const Ref object = Ref::steal(made);
  if (object) x.prov.add_derived(object.get());
  return Owned(object);
}

bool is_of_typing(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  if (std::strncmp(type->tp_name, "typing.", 7) == 0) return true;
  PyObject* const module = is_python_class(type) ? PyDict_GetItemWithError(type_dict(type), interned("__module__")) : nullptr;
  return module != nullptr && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "typing") == 0;
}

bool is_type(PyObject* object) {
  if (object == Py_None || PyObject_TypeCheck(object, &Py_GenericAliasType)) return true;
  if (PyType_Check(object)) return Py_TYPE(object)->tp_as_number->nb_or == PyType_Type.tp_as_number->nb_or;
  return std::strcmp(Py_TYPE(object)->tp_name, "types.UnionType") == 0 || is_of_typing(object);
}

}  // namespace

Owned generic_alias(Executor& x, Value type, const Arguments& a) {
  const Ref args = Ref::steal(PyTuple_New(a.n_positional()));
  for (int64_t i = 0; i < a.n_positional(); i++) {
    use_type_parameter(x, a[i]);
    PyTuple_SET_ITEM(args.get(), i, Ref::borrow(a.objects[i]).release());
  }
  return derived(x, Py_GenericAliasType.tp_new(reinterpret_cast<PyTypeObject*>(type.object), args.get(), nullptr));
}

bool type_union(Executor& x, Value a, Value b, Owned& out) {
  if (!is_type(a.object) || !is_type(b.object)) return false;
  use_type_parameter(x, a);
  use_type_parameter(x, b);
  out = derived(x, PyNumber_Or(a.object, b.object));
  return true;
}

Owned type_subscript(Executor& x, Value type, Value key) {
  use_type_parameter(x, type);
  use_type_parameter(x, key);
  return derived(x, PyObject_GetItem(type.object, key.object));
}

bool typing_subscript(Executor& x, Value type, Value key, Owned& out) {
  if (!is_of_typing(type.object)) return false;
  out = type_subscript(x, type, key);
  return true;
}

}  // namespace braze::capture
