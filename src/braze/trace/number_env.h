// The numbers of one trace: size symbols, Python numbers that change between calls, and what the program reads out of
// tensors. An int is a symbol within bounds that keep int64 arithmetic exact; a float is a node of a small program over
// doubles. Three kinds of floats:
//   of Python numbers             the host computes them as CPython would; they can be fixed under guards
//   of elements of CPU tensors    likewise, read from the caller's tensors before the call; fixing them would fix what
//                                 changes with each call: the trace ends there instead
//   of values of the graph        computed there in double precision; nobody answers questions about them
// Questions are answered by the example values, under guards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "braze/sym/shape_env.h"

namespace braze::trace {

enum class FloatOp : uint8_t {
  Constant, Input, Element, InGraph, Integer,
  Add, Subtract, Multiply, Divide, Power, Negate,
  Maximum, Minimum,                              // of values of the graph: Python's, which keeps the first operand
  Single,                                        // rounded to single precision
  Exact,                                         // an integer that doubles hold; larger ones are not computed
  SquareRoot, Exponential, Logarithm, Sine, Cosine   // of Python's module math
};
using FloatId = int32_t;   // a node of NumberEnv::floats(); operands stand before their users

struct FloatNode {
  FloatOp op = FloatOp::Constant;
  FloatId a = -1, b = -1;  // Input, Element: the number of the input; InGraph: of the value, in the recorder's list
  sym::Expr integer = 0;   // Integer
  double value = 0;        // the example value; of a Constant the value
};

// Of the operators on one or two operands.
double apply(FloatOp op, double a, double b);
// False for a value that CPython refuses to compute: a power that overflows, the logarithm of 0.
bool is_computed(const FloatNode& node, double a, double b, double value);

enum class Comparison : uint8_t { Equal, NotEqual, Less, LessEqual, SameBits };
bool compare(Comparison how, double a, double b);

struct FloatGuard {
  Comparison how;
  FloatId a, b;
  bool holds;
};

class NumberEnv final : public sym::ShapeEnv {
 public:
  // An int: anything of at most this magnitude.
  static constexpr int64_t kMostInteger = int64_t{1} << 31;
  sym::Expr new_integer(int64_t hint, std::string name);
  const std::vector<sym::Expr>& integers() const { return integers_; }
  // The expression; where its value might leave int64, the numbers in it are fixed first.
  sym::Expr within_int64(sym::Expr e);
  // A size that depends on such ints: at least 2, as symbolic sizes are, or fixed.
  sym::Expr as_size(sym::Expr e);

  FloatId new_float(double hint, std::string name);
  // The element of the caller's CPU tensor that has this path.
  FloatId new_element(double hint, std::string name);
  FloatId in_graph(int32_t value);
  FloatId constant(double value) { return add({FloatOp::Constant, -1, -1, 0, value}); }
  FloatId integer(sym::Expr e);               // fixed if a double does not hold it exactly
  FloatId apply(FloatOp op, FloatId a, FloatId b = -1);
  bool is_constant(FloatId id) const { return floats_[static_cast<size_t>(id)].op == FloatOp::Constant; }
  double hint_of(FloatId id) const { return floats_[static_cast<size_t>(id)].value; }
  // The value, under guards that the inputs keep theirs. Throws Abort for one that comes of a tensor.
  double fix(FloatId id);
  // Whether the value is known to the graph alone.
  bool is_in_graph(FloatId id) const { return in_graph_[static_cast<size_t>(id)]; }
  bool ask(Comparison how, FloatId a, FloatId b);
  // Others are refused by many kernels, and have to stay what they are.
  bool is_in_f32(FloatId id);
  const std::vector<FloatNode>& floats() const { return floats_; }
  const std::vector<FloatGuard>& float_guards() const { return float_guards_; }
  std::string describe(const FloatGuard& guard) const;
  std::string describe(FloatId id) const;

 private:
  FloatId add(const FloatNode& node);
  FloatId new_input(FloatOp op, double hint, std::string name);
  bool has_integers(sym::Expr e) const;
  bool is_nonzero(FloatId id) const;          // in every call
  double magnitude(sym::Expr e) const;        // an upper bound

  std::vector<sym::Expr> integers_;
  std::vector<FloatNode> floats_;
  std::vector<std::string> float_names_;      // of the inputs, in order
  std::vector<FloatGuard> float_guards_;
  std::vector<bool> fixed_, of_tensor_, in_graph_;   // by node
};

using EnvPtr = std::shared_ptr<NumberEnv>;

}  // namespace braze::trace
