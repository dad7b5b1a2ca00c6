// Recipes: how the exit of a segment rebuilds the objects that its Python code made: return values, and later live
// frames and side effects. Flat instructions over slots; each instruction defines one slot.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braze/capture/ref.h"

namespace braze::capture {

enum class RecipeOp : uint8_t {
  Fetched,     // a: index among the guards' fetched values
  Output,      // a: index of the graph's output
  Number,      // a: index among the numbers that the call computes for the program
  Constant,    // object: an immutable object
  NewList, NewTuple, NewDict, NewSet,   // operands: the elements; dict: key, value pairs
  // object: the type; made by the tp_new of its nearest native base, without __init__ or a Python __new__. operands:
  // the elements of a tuple, named tuple, struct sequence or frozenset; else tp_new's arguments (usually none).
  NewInstance,
  NewCell,     // operands: the contents, or none for an empty cell
  NewFunction, // object: code; operands (-1: absent): globals, closure, defaults, kwdefaults, annotations, qualname
  NewSlice,    // operands: start, stop, step
  NewGenerator,   // object: code; operands: the function. To be filled by SetGenerator
  NewMethod,   // operands: function, self
  NewTraceback,   // object: (code, name of the module, instruction, line); operands: the next row, or -1
  GetAttr,     // object: the name, operands: the owner
  // Fills, for cycles and instances; a: the slot of the target.
  SetItem,     // operands: key, value
  SetAttr,     // object: the name, operands: the value; written past any Python __setattr__. A cell: its contents
  Append,      // operands: the values
  SetGenerator,   // object: (position, kind) as GeneratorState; operands (-1: nothing): the handled exception, the slots
  Call,        // operands: a callable and its arguments; object: keyword names or nullptr. Side effects
  DictUpdate,  // operands: key, value pairs written to the dict storage, in order
};

struct RecipeInsn {
  RecipeOp op;
  int32_t a = 0;                  // Fetched, Output: index; fills: the target's slot
  int32_t first = 0, count = 0;   // in operands
  Ref object;
};

class Recipe {
 public:
  int32_t add(RecipeOp op, int32_t a = 0, std::span<const int32_t> operands = {}, PyObject* object = nullptr);
  void set_result(int32_t slot) { result_ = slot; }
  // Values that leave besides the result; -1: none.
  void add_root(int32_t slot) { roots_.push_back(slot); }
  size_t n_roots() const { return roots_.size(); }
  // New reference to the result; nullptr with an error set. outputs: borrowed. roots: receives new references to
  // n_roots() values, nullptr for none, if there is no error.
  PyObject* run(PyObject* const* fetched, PyObject* const* outputs, PyObject** roots = nullptr,
                PyObject* const* numbers = nullptr) const;
  // The index of the one output that is the result as it is, or -1: the call's fast path.
  int32_t single_output() const;
  std::string describe() const;

 private:
  std::vector<RecipeInsn> code_;
  std::vector<int32_t> operands_;
  int32_t result_ = -1;
  std::vector<int32_t> roots_;
};

}  // namespace braze::capture
