// Sizes and numbers that the tensor domain keeps symbolic: where a program needs the number itself, it is fixed.
#include "braze/capture/execute/executor.h"
#include "braze/capture/execute/operators.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

namespace {

bool is_named(PyObject* object, std::string_view type) { return type == Py_TYPE(object)->tp_name; }

bool is_real(PyObject* o) { return PyFloat_CheckExact(o) || is_named(o, "SymFloat"); }

bool is_number(PyObject* o) { return PyLong_CheckExact(o) || is_real(o) || is_named(o, "SymInt"); }

// torch's operators on symbolic numbers raise where they have no answer; CPython's on the numbers themselves then tell.
Owned attempt(PyObject* result) {
  if (result == nullptr && !must_propagate(PyErr_Occurred())) PyErr_Clear();
  return Owned::steal(result);
}

}  // namespace

Value Executor::number(Value v) {
  if (!has_changing_numbers_ || v.src == kNoSource) return v;
  if (!PyLong_CheckExact(v.object) && !PyFloat_CheckExact(v.object)) return v;
  if (prov.is_guarded_constant(v.src)) return v;
  PyObject* const symbolic = session.changing_number(v.object, v.src);
  if (symbolic == nullptr) return v;
  prov.use_type(v);
  return {symbolic, kNoSource};
}

Owned Executor::symbolic_binary(uint32_t op, Value a, Value b) {
  if (!is_number(a.object) || !is_number(b.object)) return {};
  prov.use_constant(a);
  prov.use_constant(b);
  const bool real = is_real(a.object) || is_real(b.object);
  switch (static_cast<Binary>(op % kFirstInPlace)) {
    case Binary::Add: return attempt(PyNumber_Add(a.object, b.object));
    case Binary::Subtract: return attempt(PyNumber_Subtract(a.object, b.object));
    case Binary::Multiply: return attempt(PyNumber_Multiply(a.object, b.object));
    case Binary::TrueDivide: return attempt(PyNumber_TrueDivide(a.object, b.object));
    case Binary::FloorDivide: return real ? Owned() : attempt(PyNumber_FloorDivide(a.object, b.object));
    case Binary::Remainder: return real ? Owned() : attempt(PyNumber_Remainder(a.object, b.object));
    case Binary::Power: return attempt(PyNumber_Power(a.object, b.object, Py_None));
    default: return {};
  }
}

Owned Executor::symbolic_compare(int op, Value a, Value b) {
  if (!is_number(a.object) || !is_number(b.object)) return {};
  prov.use_constant(a);
  prov.use_constant(b);
  return attempt(PyObject_RichCompare(a.object, b.object, op));
}

Owned Executor::to_symbolic_float(Value v) {
  if (is_named(v.object, "SymFloat")) return Owned::borrow(v);
  return is_named(v.object, "SymInt") ? attempt(PyObject_CallMethod(v.object, "__sym_float__", nullptr)) : Owned();
}

int Executor::contains_symbolic(Value dict, Value number) {
  constexpr Py_ssize_t kMost = 64;
  if (PyDict_GET_SIZE(dict.object) > kMost) return -1;
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(dict.object, &at, &key, &value);)
    if (!PyLong_CheckExact(key)) return -1;
  prov.use_deep(dict);
  for (Py_ssize_t at = 0; PyDict_Next(dict.object, &at, &key, &value);) {
    const Owned equal = symbolic_compare(Py_EQ, number, {key, kNoSource});
    if (!equal) return -1;
    if (PyObject_IsTrue(equal.ref.get()) == 1) return 1;
  }
  PyErr_Clear();
  return 0;
}

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
      fail("the program needs the value of a tensor (item(), bool(), int(), float())",
           "compute with tensors, for example torch.where instead of if");
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
    prov.use_constant(items.back().get());
    values.push_back(items.back().get());
  }
  const Owned tuple = make_tuple(values.data(), n);
  if (type == &PyTuple_Type) return tuple;
  if (prov.category(v.object) != Category::Constant) fail("a named tuple of symbolic numbers");
  return checked(PyObject_CallOneArg(reinterpret_cast<PyObject*>(type), tuple.ref.get()));   // torch.Size
}

}  // namespace braze::capture
