#include "braze/rewrite/constants.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "braze/graph/arguments.h"
#include "braze/support/check.h"

namespace braze::rewrite {

using graph::Argument;
using graph::Node;
using graph::OpId;
using graph::Shape;
using graph::Value;
using Number = Constant::Number;

namespace {

bool is_integer_kind(DType dtype) { return is_integral(dtype, true); }

Number integer_number(int64_t value) { Number n; n.integer = value; return n; }
Number real_number(double value) { Number n; n.real = value; return n; }

double as_real(Number value, DType dtype) {
  return is_integer_kind(dtype) ? static_cast<double>(value.integer) : value.real;
}

// Numbers that every 16-bit float holds: small integers and infinities.
bool fits_every_float(double value) {
  return std::isinf(value) || (std::abs(value) <= 256 && value == std::floor(value));
}

}  // namespace

std::optional<Number> convert(Number value, DType from, DType to) {
  double real = as_real(value, from);
  switch (to) {
    case DType::Bool:
      return integer_number(is_integer_kind(from) ? value.integer != 0 : value.real != 0);
    case DType::I64:
    case DType::I32:
    case DType::I16:
    case DType::I8:
    case DType::U8: {
      // Out of range conversions of floats are undefined in C++ and differ between machines.
      if (!is_integer_kind(from) && !(std::abs(real) < 9.0e18)) return std::nullopt;
      int64_t integer = is_integer_kind(from) ? value.integer : static_cast<int64_t>(real);
      int64_t wrapped = to == DType::I64   ? integer
                        : to == DType::I32 ? static_cast<int32_t>(integer)
                        : to == DType::I16 ? static_cast<int16_t>(integer)
                        : to == DType::I8  ? static_cast<int8_t>(integer)
                                           : static_cast<uint8_t>(integer);
      if (!is_integer_kind(from) && wrapped != integer) return std::nullopt;
      return integer_number(wrapped);
    }
    case DType::F64:
      return real_number(real);
    case DType::F32:
      return real_number(static_cast<double>(is_integer_kind(from) ? static_cast<float>(value.integer)
                                                                   : static_cast<float>(real)));
    case DType::F16:
    case DType::BF16:
      if (from == to || fits_every_float(real)) return real_number(real);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<Number> number_of(const Argument& scalar, DType dtype) {
  if (scalar.is<double>()) return convert(real_number(scalar.as<double>()), DType::F64, dtype);
  if (auto value = graph::integer(scalar)) return convert(integer_number(*value), DType::I64, dtype);
  return std::nullopt;
}

bool Constant::is_uniform() const {
  return std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride == 0; });
}

Number Constant::at(const std::vector<int64_t>& index) const {
  int64_t place = offset;
  for (size_t i = 0; i < index.size(); ++i) place += index[i] * strides[i];
  return (*data)[static_cast<size_t>(place)];
}

Argument Constant::scalar() const {
  if (dtype == DType::Bool) return first().integer != 0;
  if (is_integer_kind(dtype)) return sym::Expr(first().integer);
  return first().real;
}

namespace {

Constant uniform(DType dtype, Shape sizes, Number value) {
  Constant out;
  out.dtype = dtype;
  out.strides.assign(sizes.size(), 0);
  out.sizes = std::move(sizes);
  out.data = std::make_shared<std::vector<Number>>(1, value);
  return out;
}

Constant uniform(const Value* value, Number number) { return uniform(value->type.dtype, value->type.sizes, number); }

// Calls f(index) for each index below `extents`, in row-major order; f returns false to stop.
template <class F>
bool for_each_index(const std::vector<int64_t>& extents, F&& f) {
  std::vector<int64_t> index(extents.size(), 0);
  for (int64_t extent : extents)
    if (extent == 0) return true;
  while (true) {
    if (!f(index)) return false;
    size_t d = extents.size();
    while (d > 0 && ++index[d - 1] == extents[d - 1]) index[--d] = 0;
    if (d == 0) return true;
  }
}

// Extents of the dimensions in which `varies` holds, 1 elsewhere; nullopt if one is symbolic or they are too many.
std::optional<std::vector<int64_t>> distinct_extents(const Shape& sizes, const std::vector<bool>& varies,
                                                     size_t limit) {
  std::vector<int64_t> out(sizes.size(), 1);
  size_t total = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!varies[i]) continue;
    auto size = sizes[i].maybe_constant();
    if (!size) return std::nullopt;
    out[i] = *size;
    total *= static_cast<size_t>(*size);
    if (total > limit) return std::nullopt;
  }
  return out;
}

// An array over `extents` whose dimensions of extent 1 are broadcast to `sizes`.
Constant dense(DType dtype, Shape sizes, const std::vector<int64_t>& extents, std::vector<Number> data) {
  Constant out;
  out.dtype = dtype;
  out.strides.assign(sizes.size(), 0);
  int64_t stride = 1;
  for (size_t i = extents.size(); i-- > 0;) {
    if (extents[i] != 1) out.strides[i] = stride;
    stride *= extents[i];
  }
  out.sizes = std::move(sizes);
  if (data.size() > 1 && is_integer_kind(dtype) &&
      std::all_of(data.begin(), data.end(), [&](Number n) { return n.integer == data[0].integer; })) {
    data.resize(1);
    std::fill(out.strides.begin(), out.strides.end(), 0);
  }
  out.data = std::make_shared<std::vector<Number>>(std::move(data));
  return out;
}

// -- Pointwise operations on numbers of one type

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
  bool compares;   // computed in the operands' common type; else in the result's
};

const BinaryRow kBinary[] = {
    {OpId::add_Tensor, [](Number a, Number b, DType t) { return arithmetic(a, b, t, [](auto x, auto y) { return x + y; }); }, false},
    {OpId::sub_Tensor, [](Number a, Number b, DType t) { return arithmetic(a, b, t, [](auto x, auto y) { return x - y; }); }, false},
    {OpId::mul_Tensor, [](Number a, Number b, DType t) { return arithmetic(a, b, t, [](auto x, auto y) { return x * y; }); }, false},
    {OpId::mul_Scalar, [](Number a, Number b, DType t) { return arithmetic(a, b, t, [](auto x, auto y) { return x * y; }); }, false},
    {OpId::minimum, [](Number a, Number b, DType t) -> std::optional<Number> {
       if (!is_integer_kind(t)) return std::nullopt;
       return integer_number(std::min(a.integer, b.integer)); }, false},
    {OpId::maximum, [](Number a, Number b, DType t) -> std::optional<Number> {
       if (!is_integer_kind(t)) return std::nullopt;
       return integer_number(std::max(a.integer, b.integer)); }, false},
    {OpId::bitwise_and_Tensor, [](Number a, Number b, DType t) { return bitwise(a, b, t, [](int64_t x, int64_t y) { return x & y; }); }, false},
    {OpId::bitwise_or_Tensor, [](Number a, Number b, DType t) { return bitwise(a, b, t, [](int64_t x, int64_t y) { return x | y; }); }, false},
    {OpId::bitwise_xor_Tensor, [](Number a, Number b, DType t) { return bitwise(a, b, t, [](int64_t x, int64_t y) { return x ^ y; }); }, false},
#define COMPARISON(name, op)                                                                                         \
  {OpId::name##_Tensor, [](Number a, Number b, DType t) { return comparison(a, b, t, [](auto x, auto y) { return x op y; }); }, true}, \
  {OpId::name##_Scalar, [](Number a, Number b, DType t) { return comparison(a, b, t, [](auto x, auto y) { return x op y; }); }, true},
    COMPARISON(eq, ==) COMPARISON(ne, !=) COMPARISON(lt, <) COMPARISON(le, <=) COMPARISON(gt, >) COMPARISON(ge, >=)
#undef COMPARISON
    {OpId::logical_and, [](Number a, Number b, DType t) { return comparison(a, b, t, [](auto x, auto y) { return x != 0 && y != 0; }); }, true},
    {OpId::logical_or, [](Number a, Number b, DType t) { return comparison(a, b, t, [](auto x, auto y) { return x != 0 || y != 0; }); }, true},
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
                                                         : a.integer), DType::I64, to)
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

const Constant* Constants::value(const Value* value) {
  if (value->producer == nullptr || value->producer->results.size() != 1) return nullptr;
  auto it = known_.find(value);
  if (it == known_.end()) {
    std::optional<Constant> computed = compute(*value->producer);
    it = known_.emplace(value, std::move(computed)).first;
  }
  return it->second ? &*it->second : nullptr;
}

const Constant* Constants::argument(const Node& node, size_t i) {
  if (!node.arguments[i].is<Value*>() || node.arguments[i].as<Value*>() == nullptr) return nullptr;
  return value(node.arguments[i].as<Value*>());
}

std::optional<Constant> Constants::compute(const Node& node) {
  if (node.op->has(graph::kRandom) || node.op->has(graph::kSideEffect)) return std::nullopt;
  if (node.op->has(graph::kFactory)) return factory(node);
  if (node.op->has(graph::kPointwise)) return pointwise(node);
  if (node.op->has(graph::kView)) return view(node);
  switch (node.op->id) {
    case OpId::index_Tensor: return gather(node);
    case OpId::cumsum: return cumulative_sum(node);
    case OpId::cat: return concatenation(node);
    default: return factory(node);
  }
}

std::optional<Constant> Constants::factory(const Node& node) {
  const Value* result = node.result();
  DType dtype = result->type.dtype;
  auto filled = [&](const Argument& scalar) -> std::optional<Constant> {
    auto number = number_of(scalar, dtype);
    if (!number) return std::nullopt;
    return uniform(result, *number);
  };
  switch (node.op->id) {
    case OpId::full:
    case OpId::full_like:
    case OpId::new_full: return filled(node.argument("fill_value"));
    case OpId::scalar_tensor: return filled(node.argument("s"));
    case OpId::zeros:
    case OpId::zeros_like:
    case OpId::new_zeros: return filled(sym::Expr(0));
    case OpId::ones:
    case OpId::ones_like:
    case OpId::new_ones: return filled(sym::Expr(1));
    case OpId::arange:
    case OpId::arange_start:
    case OpId::arange_start_step: {
      if (dtype != DType::I64 && dtype != DType::I32) return std::nullopt;
      int64_t start = 0, step = 1;
      if (node.op->id != OpId::arange) {
        auto given = graph::integer(node, "start");
        if (!given) return std::nullopt;
        start = *given;
      }
      if (node.op->id == OpId::arange_start_step) {
        auto given = graph::integer(node, "step");
        if (!given) return std::nullopt;
        step = *given;
      }
      auto extents = distinct_extents(result->type.sizes, {true}, limit_);
      if (!extents) return std::nullopt;
      std::vector<Number> data;
      for (int64_t i = 0; i < (*extents)[0]; ++i) data.push_back(integer_number(start + i * step));
      return dense(dtype, result->type.sizes, *extents, std::move(data));
    }
    default: return std::nullopt;
  }
}

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
    std::swap(operands[0], operands[1]);   // mask, self, value
    std::swap(operands[1], operands[2]);   // mask, value, self
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
  bool ok = for_each_index(*extents, [&](const std::vector<int64_t>& index) {
    Number values[3];
    for (size_t i = 0; i < n; ++i) {
      const Constant* array = operands[i].array;
      if (array == nullptr) {
        values[i] = scalars[i];
        continue;
      }
      int64_t place = array->offset;
      size_t skip = index.size() - array->strides.size();
      for (size_t d = 0; d < array->strides.size(); ++d) place += index[skip + d] * array->strides[d];
      auto number = convert((*array->data)[static_cast<size_t>(place)], array->dtype, types[i]);
      if (!number) return false;
      values[i] = *number;
    }
    std::optional<Number> out;
    if (chooses) out = values[0].integer != 0 ? values[1] : values[2];
    else if (binary != nullptr) out = binary->run(values[0], values[1], types[0]);
    else out = run_unary(id, values[0], types[0], to);
    if (!out) return false;
    data.push_back(*out);
    return true;
  });
  if (!ok || data.empty()) return std::nullopt;
  return dense(to, result->type.sizes, *extents, std::move(data));
}

std::optional<Constant> Constants::view(const Node& node) {
  const Value* result = node.result();
  const Constant* x = argument(node, 0);
  if (x == nullptr || x->dtype != result->type.dtype) return std::nullopt;
  Constant out = *x;
  out.sizes = result->type.sizes;
  auto rank = static_cast<int64_t>(x->sizes.size());
  auto at = [](int64_t i) { return static_cast<size_t>(i); };
  switch (node.op->id) {
    case OpId::alias:
    case OpId::detach:
    case OpId::lift:
    case OpId::lift_fresh: return out;
    case OpId::view:
    case OpId::_unsafe_view:
    case OpId::reshape: {
      if (x->is_uniform()) {
        out.strides.assign(out.sizes.size(), 0);
        return out;
      }
      std::vector<int64_t> extents, new_extents;
      size_t total = 1;
      for (sym::Expr size : x->sizes) {
        if (!size.is_constant()) return std::nullopt;
        extents.push_back(size.constant());
        total *= static_cast<size_t>(size.constant());
        if (total > limit_) return std::nullopt;
      }
      for (sym::Expr size : out.sizes) new_extents.push_back(size.constant());
      std::vector<Number> data;
      for_each_index(extents, [&](const std::vector<int64_t>& index) {
        data.push_back(x->at(index));
        return true;
      });
      return dense(x->dtype, out.sizes, new_extents, std::move(data));
    }
    case OpId::t:
      if (rank == 2) std::swap(out.strides[0], out.strides[1]);
      return out;
    case OpId::transpose_int: {
      auto a = graph::integer(node, "dim0"), b = graph::integer(node, "dim1");
      if (!a || !b) return std::nullopt;
      if (rank > 0) std::swap(out.strides[at(graph::wrap_dim(*a, rank))], out.strides[at(graph::wrap_dim(*b, rank))]);
      return out;
    }
    case OpId::permute: {
      auto dims = graph::integers(node, "dims");
      if (!dims) return std::nullopt;
      for (size_t i = 0; i < dims->size(); ++i) out.strides[i] = x->strides[at(graph::wrap_dim((*dims)[i], rank))];
      return out;
    }
    case OpId::unsqueeze: {
      auto dim = graph::integer(node, "dim");
      if (!dim) return std::nullopt;
      out.strides.insert(out.strides.begin() + graph::wrap_dim(*dim, rank + 1), 0);
      return out;
    }
    case OpId::squeeze:
    case OpId::squeeze_dim:
    case OpId::squeeze_dims: {
      // What is left are the other dimensions, in order: dropped ones have size 1.
      std::vector<bool> drop(at(rank), node.op->id == OpId::squeeze);
      if (node.op->id != OpId::squeeze) {
        auto dims = graph::integers(node, "dim");
        if (!dims) return std::nullopt;
        for (int64_t dim : *dims)
          if (rank > 0) drop[at(graph::wrap_dim(dim, rank))] = true;
      }
      out.strides.clear();
      for (int64_t i = 0; i < rank; ++i)
        if (!(drop[at(i)] && x->sizes[at(i)] == sym::Expr(1))) out.strides.push_back(x->strides[at(i)]);
      if (out.strides.size() != out.sizes.size()) return std::nullopt;
      return out;
    }
    case OpId::expand: {
      out.strides.assign(out.sizes.size(), 0);
      size_t skip = out.sizes.size() - x->sizes.size();
      for (size_t i = 0; i < x->sizes.size(); ++i) out.strides[skip + i] = x->strides[i];
      return out;
    }
    case OpId::slice_Tensor: {
      auto dim = graph::integer(node, "dim");
      if (!dim) return std::nullopt;
      size_t d = at(graph::wrap_dim(*dim, rank));
      if (x->strides[d] == 0) return out;
      int64_t size = x->sizes[d].constant();
      auto step = graph::integer(node, "step");
      int64_t start = graph::is_none(node, "start") ? 0 : graph::integer(node, "start").value_or(-size - 1);
      if (!step || start < -size) return std::nullopt;
      if (start < 0) start += size;
      start = std::min(start, size);
      out.offset += start * out.strides[d];
      out.strides[d] *= *step;
      return out;
    }
    case OpId::select_int: {
      auto dim = graph::integer(node, "dim"), index = graph::integer(node, "index");
      if (!dim || rank == 0) return std::nullopt;
      size_t d = at(graph::wrap_dim(*dim, rank));
      if (x->strides[d] != 0) {
        if (!index) return std::nullopt;
        out.offset += (*index < 0 ? *index + x->sizes[d].constant() : *index) * x->strides[d];
      }
      out.strides.erase(out.strides.begin() + static_cast<int64_t>(d));
      return out;
    }
    default: return std::nullopt;
  }
}

// index.Tensor with an integer array for each of the first dimensions.
std::optional<Constant> Constants::gather(const Node& node) {
  const Value* result = node.result();
  const Constant* x = argument(node, 0);
  if (x == nullptr || !node.arguments[1].is<graph::ArgumentList>()) return std::nullopt;
  if (x->is_uniform()) {
    // Whatever the indices are; wrong ones are eager's error to raise, and still are while the node is used.
    Constant out = *x;
    out.sizes = result->type.sizes;
    out.strides.assign(out.sizes.size(), 0);
    for (const Argument& item : node.arguments[1].as<graph::ArgumentList>())
      if (item.is<Value*>() && item.as<Value*>() != nullptr && value(item.as<Value*>()) == nullptr) return std::nullopt;
    return out;
  }
  std::vector<const Constant*> indices;
  for (const Argument& item : node.arguments[1].as<graph::ArgumentList>()) {
    const Constant* index = item.is<Value*>() && item.as<Value*>() != nullptr ? value(item.as<Value*>()) : nullptr;
    if (index == nullptr || (index->dtype != DType::I64 && index->dtype != DType::I32)) return std::nullopt;
    indices.push_back(index);
  }
  if (indices.size() != x->sizes.size()) return std::nullopt;
  for (sym::Expr size : x->sizes)
    if (!size.is_constant()) return std::nullopt;
  std::vector<bool> varies(result->type.sizes.size(), false);
  for (const Constant* index : indices)
    for (size_t d = 0; d < index->strides.size(); ++d)
      if (index->strides[d] != 0) varies[varies.size() - index->strides.size() + d] = true;
  auto extents = distinct_extents(result->type.sizes, varies, limit_);
  if (!extents) return std::nullopt;
  std::vector<Number> data;
  bool ok = for_each_index(*extents, [&](const std::vector<int64_t>& place) {
    std::vector<int64_t> at;
    for (size_t k = 0; k < indices.size(); ++k) {
      const Constant& index = *indices[k];
      std::vector<int64_t> own(place.end() - static_cast<int64_t>(index.strides.size()), place.end());
      int64_t i = index.at(own).integer, size = x->sizes[k].constant();
      if (i < -size || i >= size) return false;
      at.push_back(i < 0 ? i + size : i);
    }
    data.push_back(x->at(at));
    return true;
  });
  if (!ok || data.empty()) return std::nullopt;
  return dense(x->dtype, result->type.sizes, *extents, std::move(data));
}

std::optional<Constant> Constants::cumulative_sum(const Node& node) {
  const Value* result = node.result();
  const Constant* x = argument(node, 0);
  auto dim = graph::integer(node, "dim");
  if (x == nullptr || !dim || result->type.dtype != DType::I64 || !is_integer_kind(x->dtype)) return std::nullopt;
  auto rank = static_cast<int64_t>(x->sizes.size());
  if (rank == 0) return std::nullopt;
  auto axis = static_cast<size_t>(graph::wrap_dim(*dim, rank));
  if (x->is_uniform() && x->first().integer == 0) return uniform(result, integer_number(0));
  std::vector<bool> varies(x->sizes.size());
  for (size_t d = 0; d < varies.size(); ++d) varies[d] = d == axis || x->strides[d] != 0;
  auto extents = distinct_extents(x->sizes, varies, limit_);
  if (!extents) return std::nullopt;
  std::vector<Number> data;
  int64_t inner = 1;   // elements between neighbours along the axis
  for (size_t d = axis + 1; d < extents->size(); ++d) inner *= (*extents)[d];
  for_each_index(*extents, [&](const std::vector<int64_t>& index) {
    int64_t sum = x->at(index).integer;
    if (index[axis] > 0) sum += data[data.size() - static_cast<size_t>(inner)].integer;
    data.push_back(integer_number(sum));
    return true;
  });
  if (data.empty()) return std::nullopt;
  return dense(DType::I64, result->type.sizes, *extents, std::move(data));
}

std::optional<Constant> Constants::concatenation(const Node& node) {
  const Value* result = node.result();
  auto dim = graph::integer(node, "dim");
  if (!dim) return std::nullopt;
  auto rank = static_cast<int64_t>(result->type.sizes.size());
  auto axis = static_cast<size_t>(graph::wrap_dim(*dim, rank));
  std::vector<const Constant*> parts;
  for (const Value* part : graph::tensors(node, "tensors")) {
    const Constant* constant = value(part);
    if (constant == nullptr || constant->dtype != result->type.dtype ||
        static_cast<int64_t>(constant->sizes.size()) != rank || !constant->sizes[axis].is_constant())
      return std::nullopt;
    parts.push_back(constant);
  }
  std::vector<bool> varies(static_cast<size_t>(rank), false);
  varies[axis] = true;
  for (const Constant* part : parts)
    for (size_t d = 0; d < varies.size(); ++d) varies[d] = varies[d] || part->strides[d] != 0;
  auto extents = distinct_extents(result->type.sizes, varies, limit_);
  if (!extents) return std::nullopt;
  std::vector<Number> data;
  for_each_index(*extents, [&](std::vector<int64_t> index) {
    size_t k = 0;
    while (index[axis] >= parts[k]->sizes[axis].constant()) index[axis] -= parts[k++]->sizes[axis].constant();
    data.push_back(parts[k]->at(index));
    return true;
  });
  if (data.empty()) return std::nullopt;
  return dense(result->type.dtype, result->type.sizes, *extents, std::move(data));
}

}  // namespace braze::rewrite
