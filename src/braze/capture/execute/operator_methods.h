// The special methods of binary operators and comparisons, and the order in which CPython asks the operands for them: for
// capture, whose methods are frames of the trace, and for real objects, where a frame of such a method was cut.
#pragma once

#include "braze/capture/code.h"
#include "braze/capture/exits/frames.h"
#include "braze/capture/value.h"

namespace braze::capture {

struct OperatorMethods {
  PyObject* in_place;    // nullptr: not an in-place operator
  PyObject* forward;
  PyObject* reflected;
};

OperatorMethods binary_methods(uint32_t op);       // BinaryOp's argument
OperatorMethods comparison_methods(int op);        // Py_LT and so on
int reflected_comparison(int op);

struct OperandOrder {
  bool in_place, reflected_first, reflected_last;

  bool has(After stage) const {
    return stage == After::Forward || (stage == After::InPlace && in_place) ||
           (stage == After::ReflectedFirst && reflected_first) || (stage == After::Reflected && reflected_last);
  }
};

OperandOrder binary_order(const OperatorMethods& methods, PyTypeObject* a, PyTypeObject* b);
OperandOrder comparison_order(PyTypeObject* a, PyTypeObject* b);

inline bool asks_right_operand(After stage) { return stage == After::ReflectedFirst || stage == After::Reflected; }

inline PyObject* object_of(const Ref& result) { return result.get(); }
inline PyObject* object_of(const Owned& result) { return result.ref.get(); }

// Calls ask(stage) for the methods that come after `from` until one gives something other than NotImplemented; that, or
// nothing where an error is set, or NotImplemented.
template <class Result, class Ask>
Result ask_operands(OperandOrder order, After from, Ask ask) {
  for (const After stage : {After::InPlace, After::ReflectedFirst, After::Forward, After::Reflected}) {
    if (stage <= from || !order.has(stage)) continue;
    Result result = ask(stage);
    if (!result || object_of(result) != Py_NotImplemented) return result;
  }
  return Result::borrow(Py_NotImplemented);
}

// TypeError: no method takes these operands.
void set_operand_error(const Insn& insn, PyObject* a, PyObject* b);
// What BinaryOp or CompareOp gives where the method of this stage gave NotImplemented. Empty: an error is set.
Ref rest_of_operator(const Insn& insn, After stage, PyObject* a, PyObject* b);

}  // namespace braze::capture
