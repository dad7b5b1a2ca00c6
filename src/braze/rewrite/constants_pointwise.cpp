// Elementwise operations on known arrays, each exactly as the CPU kernel has it.
#include <algorithm>
#include <cmath>

#include "braze/graph/arguments.h"
#include "braze/rewrite/constant_arrays.h"

namespace braze::rewrite {

using graph::Argument;
using graph::Node;
using graph::OpId;
using graph::Value;
using Number = Constant::Number;

namespace {

using Unary = std::optional<Number> (*)(Number a, DType dtype);
using Binary = std::optional<Number> (*)(Number a, Number b, DType dtype);

template <class F>
std::optional<Number> arithmetic(Number a, Number b, DType dtype, F&& f) {
  if (is_integer_kind(dtype)) {
    auto result = f(static_cast<uint64_t>(a.integer), static_cast<uint64_t>(b.integer));
    return convert(integer_number(static_cast<int64_t>(result)), DType::I64, dtype);
  }
  if (dtype == DType::F32)
    return real_number(static_cast<double>(f(static_cast<float>(a.real), static_cast<float>(b.real))));
  if (dtype == DType::F64) return real_number(f(a.real, b.real));
  return std::nullopt;
}

template <class F>
std::optional<Number> comparison(Number a, Number b, DType dtype, F&& f) {
  return integer_number(is_integer_kind(dtype) ? f(a.integer, b.integer) : f(a.real, b.real));
}

template <class F>
std::optional<Number> bitwise(Number a, Number b, DType dtype, F&& f) {
  if (!is_integer_kind(dtype)) return std::nullopt;
  return integer_number(f(a.integer, b.integer));
}

struct BinaryRow {
  OpId op;
  Binary run;
  bool compares;  // computed in the operands' common type; else in the result's
};

const BinaryRow kBinary[] = {
    {OpId::add_Tensor,
     [](Number a, Number b, DType t) { return arithmetic(a, b, t, [](auto x, auto y) { return x + y; }); }, false},
    {OpId::sub_Tensor,
     [](Number a, Number b, DType t) { return arithmetic(a, b, t, [](auto x, auto y) { return x - y; }); }, false},
    {OpId::mul_Tensor,
     [](Number a, Number b, DType t) { return arithmetic(a, b, t, [](auto x, auto y) { return x * y; }); }, false},
    {OpId::mul_Scalar,
     [](Number a, Number b, DType t) { return arithmetic(a, b, t, [](auto x, auto y) { return x * y; }); }, false},
    {OpId::minimum,
     [](Number a, Number b, DType t) -> std::optional<Number> {
       if (!is_integer_kind(t)) return std::nullopt;
       return integer_number(std::min(a.integer, b.integer));
     },
     false},
    {OpId::maximum,
     [](Number a, Number b, DType t) -> std::optional<Number> {
       if (!is_integer_kind(t)) return std::nullopt;
       return integer_number(std::max(a.integer, b.integer));
     },
     false},
    {OpId::bitwise_and_Tensor,
     [](Number a, Number b, DType t) { return bitwise(a, b, t, [](int64_t x, int64_t y) { return x & y; }); }, false},
    {OpId::bitwise_or_Tensor,
     [](Number a, Number b, DType t) { return bitwise(a, b, t, [](int64_t x, int64_t y) { return x | y; }); }, false},
    {OpId::bitwise_xor_Tensor,
     [](Number a, Number b, DType t) { return bitwise(a, b, t, [](int64_t x, int64_t y) { return x ^ y; }); }, false},
#define COMPARISON(name, op)                                                                                      \
  {OpId::name##_Tensor,                                                                                           \
   [](Number a, Number b, DType t) { return comparison(a, b, t, [](auto x, auto y) { return x op y; }); }, true}, \
      {OpId::name##_Scalar,                                                                                       \
       [](Number a, Number b, DType t) { return comparison(a, b, t, [](auto x, auto y) { return x op y; }); }, true},
    COMPARISON(eq, ==) COMPARISON(ne, !=) COMPARISON(lt, <) COMPARISON(le, <=) COMPARISON(gt, >) COMPARISON(ge, >=)
#undef COMPARISON
        {OpId::logical_and,
         [](Number a, Number b, DType t) {
           return comparison(a, b, t, [](auto x, auto y) { return x != 0 && y != 0; });
         },
         true},
    {OpId::logical_or,
     [](Number a, Number b, DType t) { return comparison(a, b, t, [](auto x, auto y) { return x != 0 || y != 0; }); },
     true},
};

const BinaryRow* find_binary(OpId id) {
  for (const BinaryRow& row : kBinary)
    if (row.op == id) return &row;
  return nullptr;
}

std::optional<Number> run_unary(OpId id, Number a, DType from, DType to) {
  bool integer = is_integer_kind(from);
  if (id == OpId::_to_copy || id == OpId::clone) return convert(a, from, to);
  if (id == OpId::neg)
    return integer ? convert(integer_number(static_cast<int64_t>(0 - static_cast<uint64_t>(a.integer))), DType::I64, to)
                   : real_number(-a.real);
  if (id == OpId::abs)
    return integer ? convert(integer_number(a.integer < 0 ? static_cast<int64_t>(0 - static_cast<uint64_t>(a.integer))
                                                          : a.integer),
                             DType::I64, to)
                   : real_number(std::abs(a.real));
  if (id == OpId::logical_not) return integer_number(integer ? a.integer == 0 : a.real == 0);
  if (id == OpId::bitwise_not && integer) {
    if (from == DType::Bool) return integer_number(a.integer == 0);
    return convert(integer_number(~a.integer), DType::I64, to);
  }
  return std::nullopt;
}

bool is_unary(OpId id) {
  return id == OpId::_to_copy || id == OpId::clone || id == OpId::neg || id == OpId::abs || id == OpId::logical_not ||
         id == OpId::bitwise_not;
}

// One operand of a pointwise node: an array, or a number that stands for all places.
struct Operand {
  const Constant* array = nullptr;
  const Argument* scalar = nullptr;
  DType dtype() const { return array->dtype; }
};

// The type in which two operands meet: numbers are weak against arrays of their kind.
std::optional<DType> common_type(const Operand& a, const Operand& b) {
  auto kind = [](const Argument& s) { return s.is<double>() ? 2 : s.is<bool>() ? 0 : 1; };
  if (a.array != nullptr && b.array != nullptr) {
    // A 0-dim array is weak as well; only equal types are sure.
    return a.dtype() == b.dtype() ? std::optional(a.dtype()) : std::nullopt;
  }
  const Operand& array = a.array != nullptr ? a : b;
  const Operand& scalar = a.array != nullptr ? b : a;
  if (array.array == nullptr || scalar.scalar == nullptr) return std::nullopt;
  int array_kind = is_floating(array.dtype()) ? 2 : array.dtype() == DType::Bool ? 0 : 1;
  if (kind(*scalar.scalar) <= array_kind) return array.dtype();
  return std::nullopt;
}

}  // namespace

std::optional<Constant> Constants::pointwise(const Node& node) {
  const Value* result = node.result();
  OpId id = node.op->id;
  DType to = result->type.dtype;
  if (id == OpId::fill_Scalar) {
    auto number = number_of(node.argument("value"), to);
    if (!number) return std::nullopt;
    return uniform(result, *number);
  }
  bool chooses = id == OpId::where_self || id == OpId::where_ScalarOther || id == OpId::where_ScalarSelf ||
                 id == OpId::where_Scalar || id == OpId::masked_fill_Scalar || id == OpId::masked_fill_Tensor;
  const BinaryRow* binary = find_binary(id);
  size_t n = chooses ? 3 : binary != nullptr ? 2 : is_unary(id) ? 1 : 0;
  if (n == 0 || node.arguments.size() < n) return std::nullopt;
  if ((id == OpId::add_Tensor || id == OpId::sub_Tensor) && graph::integer(node, "alpha") != 1) return std::nullopt;

  std::vector<Operand> operands(n);
  std::vector<bool> varies(result->type.sizes.size(), false);
  for (size_t i = 0; i < n; ++i) {
    if (node.arguments[i].is<Value*>()) {
      operands[i].array = argument(node, i);
      if (operands[i].array == nullptr) return std::nullopt;
      size_t skip = varies.size() - operands[i].array->strides.size();
      for (size_t d = 0; d < operands[i].array->strides.size(); ++d)
        if (operands[i].array->strides[d] != 0) varies[skip + d] = true;
    } else {
      operands[i].scalar = &node.arguments[i];
    }
  }
  auto extents = distinct_extents(result->type.sizes, varies, limit_);
  if (!extents) return std::nullopt;

  // The type that each operand is converted to first.
  std::vector<DType> types(n, to);
  if (binary != nullptr && binary->compares) {
    auto common = common_type(operands[0], operands[1]);
    if (!common) return std::nullopt;
    types.assign(n, *common);
  } else if (n == 1) {
    types[0] = operands[0].dtype();
  } else if (id == OpId::masked_fill_Scalar || id == OpId::masked_fill_Tensor) {
    std::swap(operands[0], operands[1]);  // mask, self, value
    std::swap(operands[1], operands[2]);  // mask, value, self
  }
  if (chooses) types[0] = DType::Bool;

  std::vector<Number> data;
  std::vector<Number> scalars(n);
  for (size_t i = 0; i < n; ++i) {
    if (operands[i].scalar == nullptr) continue;
    auto number = number_of(*operands[i].scalar, types[i]);
    if (!number) return std::nullopt;
    scalars[i] = *number;
  }
  // One row of the last dimension at a time: rows are what masks are long in.
  std::vector<int64_t> outer = *extents;
  int64_t row = 1;
  if (!outer.empty()) std::swap(row, outer.back());
  bool ok = for_each_index(outer, [&](const std::vector<int64_t>& index) {
    const Number* base[3] = {};
    int64_t step[3] = {};
    for (size_t i = 0; i < n; ++i) {
      const Constant* array = operands[i].array;
      if (array == nullptr) {
        base[i] = &scalars[i];
        continue;
      }
      int64_t place = array->offset;
      size_t skip = index.size() - array->strides.size();
      for (size_t d = 0; d < array->strides.size(); ++d) place += index[skip + d] * array->strides[d];
      base[i] = array->data->data() + place;
      if (!array->strides.empty()) step[i] = array->strides.back();
    }
    for (int64_t k = 0; k < row; ++k) {
      Number values[3];
      for (size_t i = 0; i < n; ++i) {
        values[i] = base[i][k * step[i]];
        if (operands[i].array == nullptr || operands[i].dtype() == types[i]) continue;
        auto number = convert(values[i], operands[i].dtype(), types[i]);
        if (!number) return false;
        values[i] = *number;
      }
      std::optional<Number> out;
      if (chooses)
        out = values[0].integer != 0 ? values[1] : values[2];
      else if (binary != nullptr)
        out = binary->run(values[0], values[1], types[0]);
      else
        out = run_unary(id, values[0], types[0], to);
      if (!out) return false;
      data.push_back(*out);
    }
    return true;
  });
  if (!ok || data.empty()) return std::nullopt;
  return dense(to, result->type.sizes, *extents, std::move(data));
}

}  // namespace braze::rewrite
