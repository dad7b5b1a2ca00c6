// Operators, truth, length, comparison, membership, and slots called by name.
#include <opcode.h>

#include "braze/capture/execute/executor.h"
#include "braze/capture/execute/generic_types.h"
#include "braze/capture/execute/operator_methods.h"
#include "braze/capture/execute/operators.h"
#include "braze/capture/execute/types.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

namespace {

// A function of the module operator (borrowed, kept for ever).
PyObject* operator_function(const char* name) {
  static PyObject* const module = PyImport_ImportModule("_operator");
  const Ref found = Ref::steal(PyObject_GetAttr(module, interned(name)));
  if (!found) unsupported(std::string("operator.") + name + " is missing");
  return found.get();   // the module holds it
}

}  // namespace

bool is_python_method(PyTypeObject* type, PyObject* name, PyObject*& found) {
  found = _PyType_Lookup(type, name);
  return found != nullptr && PyFunction_Check(found);
}

bool is_plain(Executor& x, Value v) {
  switch (x.prov.category(v.object)) {
    case Category::Constant: return !is_python_class(Py_TYPE(v.object));
    case Category::Symbolic: return true;
    case Category::Referent: return Py_TYPE(v.object)->tp_as_number == nullptr || PyType_Check(v.object);
    case Category::Tuple: return true;
    case Category::Identity:
      return PyList_CheckExact(v.object) || PyDict_CheckExact(v.object) || PyAnySet_CheckExact(v.object) ||
             PyByteArray_CheckExact(v.object) || PyDictKeys_Check(v.object) || PyDictItems_Check(v.object);
    case Category::Method: case Category::Tensor: case Category::Unset: return false;
  }
  return false;
}

Owned call_tensor_operator(Executor& x, const char* name, std::initializer_list<Value> operands) {
  ArgumentList list;
  for (const Value& v : operands) list.add(v);
  return x.call_tensor(operator_function(name), list.get());
}

namespace {

struct BinaryRow {
  const char* function;            // in the module operator
  const char* in_place_function;
  PyObject* (*native)(PyObject*, PyObject*);
  PyObject* (*native_in_place)(PyObject*, PyObject*);
};

PyObject* power(PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }
PyObject* power_in_place(PyObject* a, PyObject* b) { return PyNumber_InPlacePower(a, b, Py_None); }

constexpr BinaryRow kBinary[] = {
    {"add", "iadd", PyNumber_Add, PyNumber_InPlaceAdd},
    {"and_", "iand", PyNumber_And, PyNumber_InPlaceAnd},
    {"floordiv", "ifloordiv", PyNumber_FloorDivide, PyNumber_InPlaceFloorDivide},
    {"lshift", "ilshift", PyNumber_Lshift, PyNumber_InPlaceLshift},
    {"matmul", "imatmul", PyNumber_MatrixMultiply, PyNumber_InPlaceMatrixMultiply},
    {"mul", "imul", PyNumber_Multiply, PyNumber_InPlaceMultiply},
    {"mod", "imod", PyNumber_Remainder, PyNumber_InPlaceRemainder},
    {"or_", "ior", PyNumber_Or, PyNumber_InPlaceOr},
    {"pow", "ipow", power, power_in_place},
    {"rshift", "irshift", PyNumber_Rshift, PyNumber_InPlaceRshift},
    {"sub", "isub", PyNumber_Subtract, PyNumber_InPlaceSubtract},
    {"truediv", "itruediv", PyNumber_TrueDivide, PyNumber_InPlaceTrueDivide},
    {"xor", "ixor", PyNumber_Xor, PyNumber_InPlaceXor},
};

// List and tuple concatenation and repetition keep their items' sources.
bool sequence_operator(Executor& x, uint32_t op, Value a, Value b, Owned& out) {
  const bool in_place = op >= kFirstInPlace;
  const auto kind = static_cast<Binary>(op % kFirstInPlace);
  const bool lists = PyList_CheckExact(a.object), tuples = PyTuple_CheckExact(a.object);
  if (!lists && !tuples) return false;
  if (kind == Binary::Add) {
    if (in_place && lists) {
      if (!PyList_CheckExact(b.object) && !PyTuple_CheckExact(b.object)) {   // it may look at the list meanwhile
        if (x.for_each(b, [&](Value item) { return x.list_append(a, item); })) out = Owned::borrow(a);
        return true;
      }
      std::vector<Owned> items;   // all of them first: b may be a itself
      if (!x.for_each(b, [&](Value item) { return items.push_back(Owned::borrow(item)), true; })) return true;
      for (const Owned& item : items) {
        if (!x.list_append(a, item.get())) return true;
      }
      out = Owned::borrow(a);
      return true;
    }
    if (Py_TYPE(a.object) != Py_TYPE(b.object)) return false;
    std::vector<Value> items;
    for (const Value& v : {a, b}) {
      const Py_ssize_t n = PySequence_Fast_GET_SIZE(v.object);
      if (!x.prov.has_origin(v)) x.fail("a list of unknown origin");
      x.prov.use_length(v, n);
      for (Py_ssize_t i = 0; i < n; i++) items.push_back(x.prov.item_of(v, PySequence_Fast_GET_ITEM(v.object, i), i));
    }
    const auto n = static_cast<int64_t>(items.size());
    out = lists ? x.make_list(items.data(), n) : x.make_tuple(items.data(), n);
    return true;
  }
  if (kind == Binary::Multiply && PyLong_CheckExact(b.object) && !(in_place && lists)) {
    x.prov.use_constant(b);
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(a.object);
    x.prov.use_length(a, n);
    const Ref made = Ref::steal(PySequence_Repeat(a.object, PyLong_AsSsize_t(b.object)));
    if (!made) return true;
    if (lists) x.prov.add_fresh(made.get());
    for (Py_ssize_t i = 0; i < n; i++) {
      x.prov.stored(made.get(), x.prov.item_of(a, PySequence_Fast_GET_ITEM(a.object, i), i));
    }
    out = Owned(made);
    return true;
  }
  return false;
}

}  // namespace

Owned Executor::python_operator(uint32_t op, Value a, Value b, After from) {
  const bool can_go_on = take_after() != After::None;
  const OperatorMethods methods = binary_methods(op);
  const OperandOrder order = binary_order(methods, Py_TYPE(a.object), Py_TYPE(b.object));
  Owned result = ask_operands<Owned>(order, from, [&](After stage) -> Owned {
    const bool right = asks_right_operand(stage);
    const Method m = special(right ? b : a, right                      ? methods.reflected
                                            : stage == After::InPlace ? methods.in_place
                                                                       : methods.forward);
    if (!m.function) return Owned::borrow(Py_NotImplemented);
    if (can_go_on) expect(stage);
    return call_method(m, {right ? a : b});
  });
  if (object_of(result) != Py_NotImplemented) return result;
  set_operand_error({Op::BinaryOp, op, 0, 0, 0}, a.object, b.object);
  return {};
}

Owned Executor::binary(uint32_t op, Value a, Value b) {
  const After after = take_after();
  const OperatorMethods methods = binary_methods(op);
  const BinaryRow& row = kBinary[op % kFirstInPlace];
  const bool in_place = op >= kFirstInPlace;
  prov.reject_address(a.object);
  prov.reject_address(b.object);
  a = number(a), b = number(b);
  Owned fixed_a, fixed_b;
  if ((prov.category(a.object) == Category::Symbolic || prov.category(b.object) == Category::Symbolic) &&
      !is_tensor(*this, a) && !is_tensor(*this, b)) {
    if (Owned out = symbolic_binary(op, a, b); out || PyErr_Occurred()) return out;
    fixed_a = concrete(a), fixed_b = concrete(b);
    a = fixed_a.get(), b = fixed_b.get();
  }
  if (prov.category(a.object) == Category::Constant && prov.category(b.object) == Category::Constant &&
      is_plain(*this, a) && is_plain(*this, b)) {
    prov.use_constant(a);
    prov.use_constant(b);
    return Owned::steal(in_place ? row.native_in_place(a.object, b.object) : row.native(a.object, b.object));
  }
  if (is_tensor(*this, a) || is_tensor(*this, b)) {
    PyObject* method = nullptr;
    const Value other = is_tensor(*this, a) ? b : a;
    const bool python_other = !is_tensor(*this, other) &&
                              (is_python_method(Py_TYPE(other.object), methods.forward, method) ||
                               is_python_method(Py_TYPE(other.object), methods.reflected, method));
    if (!python_other) return call_tensor_operator(*this, in_place ? row.in_place_function : row.function, {a, b});
    expect(after);
    return python_operator(op, a, b);
  }
  Owned out;
  if (op == NB_OR && type_union(*this, a, b, out)) return out;
  const Value target = a;
  if (!in_place || !PyList_CheckExact(a.object)) a = seen(a);
  b = seen(b);
  if (sequence_operator(*this, op, a, b, out)) return out;
  if (is_plain(*this, a) && is_plain(*this, b)) {
    prov.use_deep(a);
    prov.use_deep(b);
    if (PyUnicode_Check(a.object)) reject_shown_address(b);   // "%s" % b
    if (in_place && prov.category(a.object) == Category::Identity) {   // s |= t and the like
      static PyObject* const kNames[] = {nullptr, interned("__iand__"), nullptr, nullptr, nullptr, nullptr, nullptr,
                                         interned("__ior__"), nullptr, nullptr, interned("__isub__"), nullptr,
                                         interned("__ixor__")};
      PyObject* name = kNames[op % kFirstInPlace];
      PyObject* method = name == nullptr ? nullptr : _PyType_Lookup(Py_TYPE(target.object), name);
      if (method == nullptr) require_fresh(target, "changing");
      if (method != nullptr) {
        ArgumentList arguments;
        arguments.add(target);
        arguments.add(b);
        return mutate(method, arguments.get()) ? Owned::borrow(target) : Owned();
      }
    }
    return fresh_native(Ref::steal(in_place ? row.native_in_place(a.object, b.object) : row.native(a.object, b.object)));
  }
  expect(after);
  return python_operator(op, a, b);
}

Owned Executor::unary(Op op, Value v) {
  if (op == Op::UnaryNot) {   // with what is expected of it
    const int t = truth(v);
    return t < 0 ? Owned() : Owned::boolean(t == 0);
  }
  const After after = take_after();
  const char* name = op == Op::UnaryNegative ? "__neg__" : op == Op::UnaryPositive ? "__pos__" : "__invert__";
  if (is_tensor(*this, v)) {
    const char* function = op == Op::UnaryNegative ? "neg" : op == Op::UnaryPositive ? "pos" : "invert";
    return call_tensor_operator(*this, function, {v});
  }
  v = number(v);
  Owned fixed;
  if (prov.category(v.object) == Category::Symbolic && op != Op::UnaryNegative) fixed = concrete(v), v = fixed.get();
  if (is_plain(*this, v)) {
    prov.use_constant(v);
    PyObject* r = op == Op::UnaryNegative   ? PyNumber_Negative(v.object)
                  : op == Op::UnaryPositive ? PyNumber_Positive(v.object)
                                            : PyNumber_Invert(v.object);
    return Owned::steal(r);
  }
  const Method m = special(v, interned(name));
  if (!m.function) {
    PyErr_Format(PyExc_TypeError, "bad operand type for unary %s: '%.200s'",
                 op == Op::UnaryNegative ? "-" : op == Op::UnaryPositive ? "+" : "~", Py_TYPE(v.object)->tp_name);
    return {};
  }
  expect(after);
  return call_method(m, {});
}

int Executor::is_same(Value a, Value b) {
  const bool same = a.object == b.object;
  const Category ca = prov.category(a.object), cb = prov.category(b.object);
  if (a.src == kNoSource && b.src == kNoSource) return same;
  const bool with_identity_a = ca == Category::Identity || ca == Category::Tensor;
  const bool with_identity_b = cb == Category::Identity || cb == Category::Tensor;
  if (with_identity_a && with_identity_b) {
    if (!same) prov.use_distinct(a, b);
    return same;
  }
  // One of them is None, a number, a class and so on: its value or the other's type decides.
  for (const Value& v : {a, b}) {
    const Category c = prov.category(v.object);
    if (c == Category::Constant && v.object != Py_None && v.object != Py_True && v.object != Py_False &&
        (with_identity_a || with_identity_b)) {
      prov.use_type(v);
    } else if (c == Category::Constant || c == Category::Referent) {
      prov.use_constant(v);
    } else {
      prov.use_type(v);
    }
  }
  return same;
}

int Executor::truth(Value v) {
  const After after = take_after();
  v = seen(v);
  PyObject* o = v.object;
  if (o == Py_True || o == Py_False || o == Py_None) {
    prov.use_constant(v);
    return o == Py_True;
  }
  switch (prov.category(o)) {
    case Category::Constant: {
      const int t = PyObject_IsTrue(o);
      if (t >= 0 && !is_python_class(Py_TYPE(o))) {
        prov.use_truth(v, t == 1);
      } else {
        prov.use_constant(v);
      }
      return t;
    }
    case Category::Symbolic: {
      const int t = PyObject_IsTrue(o);
      if (t < 0) {
        PyErr_Clear();
        fail("the truth of a symbolic number");
      }
      return t;
    }
    case Category::Referent:
    case Category::Method: {
      PyObject* meta_bool = _PyType_Lookup(Py_TYPE(o), interned("__bool__"));
      PyObject* meta_len = _PyType_Lookup(Py_TYPE(o), interned("__len__"));
      prov.use_type(v);
      if (meta_bool == nullptr && meta_len == nullptr) return 1;
      prov.use_constant(v);
      break;
    }
    case Category::Tuple:
      if (PyTuple_CheckExact(o)) {
        prov.use_truth(v, PyTuple_GET_SIZE(o) > 0);
        return PyTuple_GET_SIZE(o) > 0;
      }
      break;
    case Category::Tensor: {
      const Method m = special(v, interned("__bool__"));
      const Owned r = call_method(m, {});
      if (!r) return -1;
      if (!PyBool_Check(r.ref.get())) fail("the truth of a tensor", "use torch.where or torch.cond");
      return r.ref.get() == Py_True;
    }
    case Category::Identity:
    case Category::Unset: break;
  }
  PyTypeObject* type = Py_TYPE(o);
  PyObject* method = nullptr;
  if (is_python_method(type, interned("__bool__"), method)) {
    const Method m = special(v, interned("__bool__"));
    expect(after);
    const Owned r = call_method(m, {});
    if (!r || !is_bool_result(r.ref.get())) return -1;
    prov.use_constant(r.get());
    return r.ref.get() == Py_True;
  }
  if (type->tp_as_number != nullptr && type->tp_as_number->nb_bool != nullptr) {
    if (!prov.is_fresh(o) && v.src != kNoSource) fail(std::string("the truth of the native type ") + type->tp_name);
    return PyObject_IsTrue(o);
  }
  if (is_python_method(type, interned("__len__"), method)) {
    const int64_t n = length(v);
    return n < 0 ? -1 : n > 0;
  }
  const bool sized = (type->tp_as_mapping != nullptr && type->tp_as_mapping->mp_length != nullptr) ||
                     (type->tp_as_sequence != nullptr && type->tp_as_sequence->sq_length != nullptr);
  if (!sized) {
    prov.use_type(v);
    prov.use_type_attribute(type, interned("__bool__"), nullptr);
    prov.use_type_attribute(type, interned("__len__"), nullptr);
    return 1;
  }
  if (!prov.has_origin(v)) fail(std::string("the length of an object of unknown origin: ") + type->tp_name);
  const Py_ssize_t n = PyObject_Size(o);
  if (n < 0) return -1;
  if (PyList_Check(o) || PyDict_Check(o) || PyAnySet_Check(o)) {
    prov.use_truth(v, n > 0);
  } else if (v.src != kNoSource) {
    fail(std::string("the length of the native type ") + type->tp_name);
  }
  return n > 0;
}

int64_t Executor::length(Value v) {
  v = seen(v);
  PyTypeObject* type = Py_TYPE(v.object);
  PyObject* method = nullptr;
  if (prov.category(v.object) == Category::Constant) {
    prov.use_constant(v);
    return PyObject_Size(v.object);
  }
  if (is_python_method(type, interned("__len__"), method)) {
    const Owned r = call_method(special(v, interned("__len__")), {});
    if (!r) return -1;
    prov.use_constant(r.get());
    if (!PyLong_Check(r.ref.get())) {
      PyErr_Format(PyExc_TypeError, "'%.200s' object cannot be interpreted as an integer", Py_TYPE(r.ref.get())->tp_name);
      return -1;
    }
    const Py_ssize_t n = PyLong_AsSsize_t(r.ref.get());
    if (n < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "__len__() should return >= 0");
    return n;
  }
  if (!prov.has_origin(v)) fail(std::string("the length of an object of unknown origin: ") + type->tp_name);
  const Py_ssize_t n = PyObject_Size(v.object);
  if (n < 0) return -1;
  if (PyList_Check(v.object) || PyTuple_Check(v.object) || PyDict_Check(v.object) || PyAnySet_Check(v.object)) {
    prov.use_length(v, n);
  } else if (v.src != kNoSource) {
    fail(std::string("the length of the native type ") + type->tp_name);
  } else if (PyDictViewSet_Check(v.object) || PyDictValues_Check(v.object)) {
    PyObject* dict = viewed_dict(v.object);
    prov.use_length({dict, prov.recall(v.object, dict)}, n);
  }
  return n;
}

namespace {

// Equality of builtin containers that hold tensors or instances would call into them.
bool compares_natively(Executor& x, Value v, int depth = 0) {
  constexpr int kDeepest = 200;
  if (depth > kDeepest) x.fail("a comparison of deeply nested values");
  switch (x.prov.category(v.object)) {
    case Category::Constant: return true;
    case Category::Referent: return !PyType_Check(v.object) || Py_TYPE(v.object)->tp_richcompare == PyType_Type.tp_richcompare;
    case Category::Symbolic: return true;
    case Category::Method: return true;
    case Category::Tuple:
      if (PyTuple_Check(v.object)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(v.object); i++) {
          if (!compares_natively(x, {PyTuple_GET_ITEM(v.object, i), kNoSource}, depth + 1)) return false;
        }
      }
      return true;
    case Category::Identity:
      if (PyList_CheckExact(v.object)) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(v.object); i++) {
          if (!compares_natively(x, {PyList_GET_ITEM(v.object, i), kNoSource}, depth + 1)) return false;
        }
        return true;
      }
      if (PyDict_CheckExact(v.object)) {
        PyObject *key = nullptr, *value = nullptr;
        Py_ssize_t position = 0;
        while (PyDict_Next(v.object, &position, &key, &value)) {
          if (!compares_natively(x, {value, kNoSource}, depth + 1)) return false;
        }
        return true;
      }
      return PyAnySet_CheckExact(v.object) || PyDictKeys_Check(v.object);
    case Category::Tensor: case Category::Unset: return false;
  }
  return false;
}

bool compares_by_identity(PyObject* object) {
  return Py_TYPE(object)->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

}  // namespace

Owned Executor::compare(int op, Value a, Value b) {
  const After after = take_after();
  a = seen(a), b = seen(b);
  static constexpr const char* kFunctions[] = {"lt", "le", "eq", "ne", "gt", "ge"};
  const Category ca = prov.category(a.object), cb = prov.category(b.object);
  PyObject* method = nullptr;
  if (ca == Category::Tensor || cb == Category::Tensor) {
    const Value other = ca == Category::Tensor ? b : a;
    if (prov.category(other.object) == Category::Tensor ||
        !is_python_method(Py_TYPE(other.object), comparison_methods(op).forward, method)) {
      if (other.object == Py_None && (op == Py_EQ || op == Py_NE)) {   // never equal, no operation
        prov.use_constant(other);
        return Owned::boolean(op == Py_NE);
      }
      return call_tensor_operator(*this, kFunctions[op], {a, b});
    }
  }
  a = number(a), b = number(b);
  Owned fixed_a, fixed_b;
  if (prov.category(a.object) == Category::Symbolic || prov.category(b.object) == Category::Symbolic) {
    if (Owned out = symbolic_compare(op, a, b); out || PyErr_Occurred()) return out;
    fixed_a = concrete(a), fixed_b = concrete(b);
    a = fixed_a.get(), b = fixed_b.get();
  }
  if (compares_natively(*this, a) && compares_natively(*this, b)) {
    prov.use_deep(a);
    prov.use_deep(b);
    const uint64_t before = frames_run_natively();
    Owned r = Owned::steal(PyObject_RichCompare(a.object, b.object, op));
    if (frames_run_natively() != before && !has_symbolic(a.object) && !has_symbolic(b.object)) {
      fail("a comparison that calls Python code");
    }
    return r;
  }
  if ((op == Py_EQ || op == Py_NE) && (compares_by_identity(a.object) || ca == Category::Constant) &&
      (compares_by_identity(b.object) || cb == Category::Constant)) {
    prov.use_type(a);
    prov.use_type(b);
    return Owned::boolean((is_same(a, b) == 1) == (op == Py_EQ));
  }
  const bool sequences = (PyList_CheckExact(a.object) && PyList_CheckExact(b.object)) ||
                         (PyTuple_CheckExact(a.object) && PyTuple_CheckExact(b.object));
  if (sequences && (op == Py_EQ || op == Py_NE)) {   // of what has comparisons in Python
    ArgumentList items;
    items.add(a);
    items.add(b);
    if (op == Py_EQ) expect(after);
    const Owned equal = call_function({polyfill("equal_items").get(), kNoSource}, items.get());
    const int t = equal ? truth(equal.get()) : -1;
    return t < 0 ? Owned() : Owned::boolean((t == 1) == (op == Py_EQ));
  }
  expect(after);
  return python_comparison(op, a, b);
}

// Where a class with comparisons in Python takes part.
Owned Executor::python_comparison(int op, Value a, Value b, After from) {
  const bool can_go_on = take_after() != After::None;
  const OperandOrder order = comparison_order(Py_TYPE(a.object), Py_TYPE(b.object));
  Owned result = ask_operands<Owned>(order, from, [&](After stage) -> Owned {
    const bool right = asks_right_operand(stage);
    const Value self = right ? b : a, other = right ? a : b;
    const int how = right ? reflected_comparison(op) : op;
    PyTypeObject* const type = Py_TYPE(self.object);
    PyObject* const name = comparison_methods(how).forward;
    PyObject* found = _PyType_Lookup(type, name);
    if (found == nullptr) return Owned::borrow(Py_NotImplemented);
    if (PyFunction_Check(found)) {
      const Method m = special(self, name);
      if (can_go_on) expect(stage);
      return call_method(m, {other});
    }
    if (how == Py_NE && is_python_method(type, interned("__eq__"), found)) {   // object.__ne__
      if (can_go_on) expect(stage);
      return call({polyfill("object_ne").get(), kNoSource}, {self, other});
    }
    if (compares_by_identity(self.object) || compares_natively(*this, self)) {
      if (how == Py_EQ && is_same(self, other) == 1) return Owned::boolean(true);
      return Owned::borrow(Py_NotImplemented);
    }
    fail(std::string("a comparison of the native type ") + type->tp_name);
  });
  if (object_of(result) != Py_NotImplemented) return result;
  if (op == Py_EQ || op == Py_NE) return Owned::boolean((is_same(a, b) == 1) == (op == Py_EQ));
  set_operand_error({Op::CompareOp, static_cast<uint32_t>(op), 0, 0, 0}, a.object, b.object);
  return {};
}

int Executor::contains(Value container, Value item) {
  const After after = take_after();
  PyTypeObject* type = Py_TYPE(container.object);
  PyObject* method = nullptr;
  if (!PyDict_Check(container.object)) container = seen(container);
  if (is_tensor(*this, container)) {
    const Owned r = call(get_attribute(container, interned("__contains__")).get(), {item});
    return r ? truth(r.get()) : -1;
  }
  if (is_python_method(type, interned("__contains__"), method)) {
    const Method m = special(container, interned("__contains__"));
    expect(after);
    const Owned r = call_method(m, {item});
    return r ? truth(r.get()) : -1;
  }
  if (prov.category(number(item).object) == Category::Symbolic && PyDict_Check(container.object))
    if (const int t = contains_symbolic(container, number(item)); t >= 0) return t;
  if (PyDict_Check(container.object) || PyDictKeys_Check(container.object)) {
    Value dict = container;
    if (PyDictKeys_Check(container.object)) {
      PyObject* d = viewed_dict(container.object);
      dict = {d, prov.recall(container.object, d)};
    }
    const Value found = dict_get(dict, item);
    if (found.object == nullptr) return PyErr_Occurred() ? -1 : 0;
    prov.use_present(found);
    return 1;
  }
  if (prov.category(container.object) == Category::Constant && !has_symbolic(container.object)) {
    prov.use_constant(container);
    const Owned fixed = concrete(item);
    item = fixed.get();
    prov.use_deep(item);
    return PySequence_Contains(container.object, item.object);
  }
  if (PyAnySet_Check(container.object) || (Py_TYPE(container.object)->tp_flags & Py_TPFLAGS_MAPPING) != 0) {
    prov.use_deep(container);
    prov.use_constant(item);
    require_native_hash(*this, item);
    return PySequence_Contains(container.object, item.object);
  }
  // Lists, tuples, anything iterable: e is x or e == x.
  if (type->tp_iter == nullptr && !PySequence_Check(container.object)) {
    PyErr_Format(PyExc_TypeError, "argument of type '%.200s' is not iterable", type->tp_name);
    return -1;
  }
  if (after == After::Contains && !(compares_natively(*this, container) && compares_natively(*this, item))) {
    expect(after);
    const Owned r = call({polyfill("contains").get(), kNoSource}, {container, item});
    return r ? truth(r.get()) : -1;
  }
  const Owned iterator = iterate(container);
  if (!iterator) return -1;
  for (;;) {
    const Owned e = next(iterator.get());
    if (!e) return PyErr_Occurred() ? -1 : 0;
    if (is_same(item, e.get()) == 1) return 1;
    const Owned equal = compare(Py_EQ, e.get(), item);
    const int t = equal ? truth(equal.get()) : -1;
    if (t != 0) return t;
  }
}

bool Executor::call_slot(PyObject* descriptor, const Arguments& a, Owned& out) {
  if (a.n == 0) return false;
  PyObject* name_object = reinterpret_cast<PyDescrObject*>(descriptor)->d_name;
  if (_PyType_Lookup(Py_TYPE(a.objects[0]), name_object) != descriptor) return false;
  const std::string name = PyUnicode_AsUTF8(name_object);
  const auto number = [&](int64_t n) { return n < 0 ? Owned() : Owned::steal(PyLong_FromLongLong(n)); };
  if (a.n == 1) {
    if (name == "__iter__") return out = iterate(a[0]), true;
    if (name == "__next__") {
      out = next(a[0]);
      if (!out && !PyErr_Occurred()) PyErr_SetNone(PyExc_StopIteration);
      return true;
    }
    if (name == "__len__") return out = number(length(a[0])), true;
    if (name == "__repr__" || name == "__str__") return out = to_string(a[0], name == "__repr__"), true;
    if (name == "__bool__") {
      const int t = truth(a[0]);
      return out = t < 0 ? Owned() : Owned::boolean(t == 1), true;
    }
    return false;
  }
  if (a.n == 2) {
    if (name == "__getitem__") return out = subscript(a[0], a[1]), true;
    if (name == "__delitem__") return out = delete_subscript(a[0], a[1]) ? Owned::none() : Owned(), true;
    if (name == "__contains__") {
      const int r = contains(a[0], a[1]);
      return out = r < 0 ? Owned() : Owned::boolean(r == 1), true;
    }
    if (is_plain(*this, a[0]) && is_plain(*this, a[1])) {   // with NotImplemented for what the slot does not take
      static constexpr const char* kPure[] = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__add__",
                                              "__mul__", "__sub__", "__or__", "__and__"};
      for (const char* pure : kPure) {
        if (name == pure) return out = call_pure(descriptor, a), true;
      }
    }
    return false;
  }
  if (a.n == 3 && name == "__setitem__") {
    return out = set_subscript(a[0], a[1], a[2]) ? Owned::none() : Owned(), true;
  }
  return false;
}

}  // namespace braze::capture
