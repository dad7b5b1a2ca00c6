#include "braze/capture/execute/operator_methods.h"

#include "braze/capture/natives/natives.h"

namespace braze::capture {

namespace {

struct Names {
  const char *forward, *reflected, *in_place, *sign;
};

constexpr Names kBinary[] = {
    {"__add__", "__radd__", "__iadd__", "+"},
    {"__and__", "__rand__", "__iand__", "&"},
    {"__floordiv__", "__rfloordiv__", "__ifloordiv__", "//"},
    {"__lshift__", "__rlshift__", "__ilshift__", "<<"},
    {"__matmul__", "__rmatmul__", "__imatmul__", "@"},
    {"__mul__", "__rmul__", "__imul__", "*"},
    {"__mod__", "__rmod__", "__imod__", "%"},
    {"__or__", "__ror__", "__ior__", "|"},
    {"__pow__", "__rpow__", "__ipow__", "**"},
    {"__rshift__", "__rrshift__", "__irshift__", ">>"},
    {"__sub__", "__rsub__", "__isub__", "-"},
    {"__truediv__", "__rtruediv__", "__itruediv__", "/"},
    {"__xor__", "__rxor__", "__ixor__", "^"},
};

constexpr Names kComparison[] = {
    {"__lt__", "__gt__", nullptr, "<"},  {"__le__", "__ge__", nullptr, "<="}, {"__eq__", "__eq__", nullptr, "=="},
    {"__ne__", "__ne__", nullptr, "!="}, {"__gt__", "__lt__", nullptr, ">"},  {"__ge__", "__le__", nullptr, ">="},
};

OperatorMethods methods_of(const Names& names, bool in_place) {
  return {in_place ? interned(names.in_place) : nullptr, interned(names.forward), interned(names.reflected)};
}

// A method found on the class, called; NotImplemented where there is none.
Ref ask_natively(PyObject* self, PyObject* name, PyObject* other) {
  PyObject* const found = _PyType_Lookup(Py_TYPE(self), name);
  if (found == nullptr) return Ref::borrow(Py_NotImplemented);
  const descrgetfunc get = Py_TYPE(found)->tp_descr_get;
  const Ref method = get == nullptr ? Ref::borrow(found)
                                    : Ref::steal(get(found, self, reinterpret_cast<PyObject*>(Py_TYPE(self))));
  return method ? Ref::steal(PyObject_CallOneArg(method.get(), other)) : Ref();
}

}  // namespace

OperatorMethods binary_methods(uint32_t op) { return methods_of(kBinary[op % kFirstInPlace], op >= kFirstInPlace); }

OperatorMethods comparison_methods(int op) { return methods_of(kComparison[op], false); }

int reflected_comparison(int op) {
  static constexpr int kReflected[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};
  return kReflected[op];
}

OperandOrder binary_order(const OperatorMethods& methods, PyTypeObject* a, PyTypeObject* b) {
  PyObject* const reflected = _PyType_Lookup(b, methods.reflected);
  const bool first = a != b && PyType_IsSubtype(b, a) && reflected != nullptr &&
                     reflected != _PyType_Lookup(a, methods.reflected);
  return {methods.in_place != nullptr, first, !first && a != b};
}

OperandOrder comparison_order(PyTypeObject* a, PyTypeObject* b) {
  const bool first = a != b && PyType_IsSubtype(b, a);
  return {false, first, !first};
}

void set_operand_error(const Insn& insn, PyObject* a, PyObject* b) {
  if (insn.op == Op::CompareOp) {
    PyErr_Format(PyExc_TypeError, "'%s' not supported between instances of '%.100s' and '%.100s'",
                 kComparison[insn.arg & ~kCompareToBool].sign, Py_TYPE(a)->tp_name, Py_TYPE(b)->tp_name);
    return;
  }
  const bool in_place = insn.arg >= kFirstInPlace;
  const bool power = insn.arg == static_cast<uint32_t>(Binary::Power);
  PyErr_Format(PyExc_TypeError, "unsupported operand type(s) for %s%s: '%.100s' and '%.100s'",
               kBinary[insn.arg % kFirstInPlace].sign, in_place ? "=" : power ? " or pow()" : "", Py_TYPE(a)->tp_name,
               Py_TYPE(b)->tp_name);
}

Ref rest_of_operator(const Insn& insn, After stage, PyObject* a, PyObject* b) {
  const bool comparison = insn.op == Op::CompareOp;
  const int op = static_cast<int>(insn.arg & ~kCompareToBool);
  const OperatorMethods methods = comparison ? comparison_methods(op) : binary_methods(insn.arg);
  const OperandOrder order = comparison ? comparison_order(Py_TYPE(a), Py_TYPE(b))
                                        : binary_order(methods, Py_TYPE(a), Py_TYPE(b));
  const Ref result = ask_operands<Ref>(order, stage, [&](After next) {
    if (asks_right_operand(next)) return ask_natively(b, methods.reflected, a);
    return ask_natively(a, next == After::InPlace ? methods.in_place : methods.forward, b);
  });
  if (object_of(result) != Py_NotImplemented) return result;
  if (comparison && (op == Py_EQ || op == Py_NE)) return Ref::borrow((a == b) == (op == Py_EQ) ? Py_True : Py_False);
  set_operand_error(insn, a, b);
  return {};
}

}  // namespace braze::capture
