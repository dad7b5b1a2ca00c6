#include "braze/rewrite/constants.h"

#include <algorithm>
#include <cmath>

#include "braze/graph/arguments.h"
#include "braze/rewrite/constant_arrays.h"

namespace braze::rewrite {

using graph::Argument;
using graph::Node;
using graph::OpId;
using graph::Shape;
using graph::Value;
using Number = Constant::Number;

namespace {

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
      return real_number(
          static_cast<double>(is_integer_kind(from) ? static_cast<float>(value.integer) : static_cast<float>(real)));
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

Constant uniform(const Value* value, Number number) {
  Constant out;
  out.dtype = value->type.dtype;
  out.sizes = value->type.sizes;
  out.strides.assign(out.sizes.size(), 0);
  out.data = std::make_shared<std::vector<Number>>(1, number);
  return out;
}

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
    case OpId::index_Tensor:
      return gather(node);
    case OpId::cumsum:
      return cumulative_sum(node);
    case OpId::cat:
      return concatenation(node);
    default:
      return factory(node);
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
    case OpId::new_full:
      return filled(node.argument("fill_value"));
    case OpId::scalar_tensor:
      return filled(node.argument("s"));
    case OpId::zeros:
    case OpId::zeros_like:
    case OpId::new_zeros:
      return filled(sym::Expr(0));
    case OpId::ones:
    case OpId::ones_like:
    case OpId::new_ones:
      return filled(sym::Expr(1));
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
    default:
      return std::nullopt;
  }
}

namespace {

// The value that a chain of views and additions of 0 shows.
const Value* seen_through_views(const Value* value) {
  while (value->producer != nullptr && value->producer->op->has(graph::kView) && value->producer->results.size() == 1)
    value = value->producer->arguments[0].as<Value*>();
  return value;
}

// 0, 1, ... size - 1 in some order and shape, for a symbolic size.
bool is_range_of(const Value* index, sym::Expr size) {
  const Value* base = seen_through_views(index);
  return base->producer != nullptr && base->producer->op->id == OpId::arange && base->type.sizes[0] == size &&
         (base->type.dtype == DType::I64 || base->type.dtype == DType::I32);
}

}  // namespace

// index.Tensor with an integer array for each dimension. Along a dimension in which nothing varies the index itself
// does not matter, if it is known to be in range: an index that is not is an error to raise.
std::optional<Constant> Constants::gather(const Node& node) {
  const Value* result = node.result();
  const Constant* x = argument(node, 0);
  if (x == nullptr || !node.arguments[1].is<graph::ArgumentList>()) return std::nullopt;
  const auto& list = node.arguments[1].as<graph::ArgumentList>();
  if (list.size() != x->sizes.size()) return std::nullopt;

  struct Index {
    const Constant* values;  // nullptr: any place will do
    int64_t size;
  };
  std::vector<Index> indices;
  std::vector<bool> varies(result->type.sizes.size(), false);
  for (size_t k = 0; k < list.size(); ++k) {
    if (!list[k].is<Value*>() || list[k].as<Value*>() == nullptr) return std::nullopt;
    const Value* index = list[k].as<Value*>();
    if (x->strides[k] == 0 && is_range_of(index, x->sizes[k])) {
      indices.push_back({nullptr, 1});
      continue;
    }
    const Constant* values = value(index);
    if (values == nullptr || (values->dtype != DType::I64 && values->dtype != DType::I32) || !x->sizes[k].is_constant())
      return std::nullopt;
    indices.push_back({values, x->sizes[k].constant()});
    for (size_t d = 0; d < values->strides.size(); ++d)
      if (values->strides[d] != 0) varies[varies.size() - values->strides.size() + d] = true;
  }
  auto extents = distinct_extents(result->type.sizes, varies, limit_);
  if (!extents) return std::nullopt;
  std::vector<Number> data;
  bool ok = for_each_index(*extents, [&](const std::vector<int64_t>& place) {
    std::vector<int64_t> at;
    for (const Index& index : indices) {
      int64_t i = 0;
      if (index.values != nullptr) {
        std::vector<int64_t> own(place.end() - static_cast<int64_t>(index.values->strides.size()), place.end());
        i = index.values->at(own).integer;
      }
      if (i < -index.size || i >= index.size) return false;
      at.push_back(i < 0 ? i + index.size : i);
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
  int64_t inner = 1;  // elements between neighbours along the axis
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
