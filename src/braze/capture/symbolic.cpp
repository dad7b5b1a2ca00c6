// Sizes that the tensor domain keeps symbolic: where a program needs the number itself, it is fixed.
#include "braze/capture/executor.h"

namespace braze::capture {

bool Executor::has_symbolic(PyObject* object, int depth) {
  if (prov.category(object) == Category::Symbolic) return true;
  if (!PyTuple_Check(object)) return false;
  constexpr int kDeepest = 200;
  if (depth > kDeepest) fail("a deeply nested tuple");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++) {
    if (has_symbolic(PyTuple_GET_ITEM(object, i), depth + 1)) return true;
  }
  return false;
}

Owned Executor::concrete(Value v) {
  if (!has_symbolic(v.object)) return Owned::borrow(v);
  PyTypeObject* type = Py_TYPE(v.object);
  const auto checked = [&](PyObject* number) -> Owned {
    if (number == nullptr) {
      PyErr_Clear();
      fail("the value of a symbolic number that depends on data");
    }
    return Owned::steal(number);
  };
  if (prov.category(v.object) == Category::Symbolic) {
    const std::string name = type->tp_name;
    if (name == "SymFloat") return checked(PyNumber_Float(v.object));
    if (name == "SymBool") {
      const int t = PyObject_IsTrue(v.object);
      return checked(t < 0 ? nullptr : Ref::borrow(t == 1 ? Py_True : Py_False).release());
    }
    return checked(PyNumber_Long(v.object));
  }
  const Py_ssize_t n = PyTuple_GET_SIZE(v.object);
  std::vector<Owned> items;
  std::vector<Value> values;
  for (Py_ssize_t i = 0; i < n; i++) {
    items.push_back(concrete(prov.item_of(v, PyTuple_GET_ITEM(v.object, i), i)));
    values.push_back(items.back().get());
  }
  const Owned tuple = make_tuple(values.data(), n);
  if (type == &PyTuple_Type) return tuple;
  if (prov.category(v.object) != Category::Constant) fail("a named tuple of symbolic numbers");
  return checked(PyObject_CallOneArg(reinterpret_cast<PyObject*>(type), tuple.ref.get()));   // torch.Size
}

}  // namespace braze::capture
