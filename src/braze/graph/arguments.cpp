#include "braze/graph/arguments.h"

#include <algorithm>
#include <numeric>

#include "braze/support/check.h"

namespace braze::graph {

Value* tensor(const Node& node, std::string_view name) {
  const Argument& argument = node.argument(name);
  if (argument.is_none()) return nullptr;
  CHECK(argument.is<Value*>(), node.op->name << ": " << name << " is no tensor");
  return argument.as<Value*>();
}

std::vector<Value*> tensors(const Node& node, std::string_view name) {
  std::vector<Value*> out;
  for_each_value(node.argument(name), [&](Value* value) { out.push_back(value); });
  return out;
}

bool is_none(const Node& node, std::string_view name) {
  const Argument& argument = node.argument(name);
  return argument.is_none() || (argument.is<Value*>() && argument.as<Value*>() == nullptr);
}

bool boolean(const Node& node, std::string_view name) {
  const Argument& argument = node.argument(name);
  if (argument.is<bool>()) return argument.as<bool>();
  std::optional<int64_t> value = integer(argument);
  CHECK(value.has_value(), node.op->name << ": " << name << " is no bool");
  return *value != 0;
}

std::optional<int64_t> integer(const Argument& argument) {
  if (argument.is<Expr>()) return argument.as<Expr>().maybe_constant();
  if (argument.is<bool>()) return argument.as<bool>() ? 1 : 0;
  return std::nullopt;
}

std::optional<int64_t> integer(const Node& node, std::string_view name) { return integer(node.argument(name)); }

std::optional<std::vector<int64_t>> integers(const Node& node, std::string_view name) {
  const Argument& argument = node.argument(name);
  if (auto single = integer(argument)) return std::vector<int64_t>{*single};
  if (!argument.is<ArgumentList>()) return std::nullopt;
  std::vector<int64_t> out;
  for (const Argument& item : argument.as<ArgumentList>()) {
    auto value = integer(item);
    if (!value) return std::nullopt;
    out.push_back(*value);
  }
  return out;
}

Shape expressions(const Node& node, std::string_view name) {
  const Argument& argument = node.argument(name);
  if (argument.is_none()) return {};
  if (argument.is<Expr>()) return {argument.as<Expr>()};
  CHECK(argument.is<ArgumentList>(), node.op->name << ": " << name << " is no list");
  Shape out;
  for (const Argument& item : argument.as<ArgumentList>()) out.push_back(item.as<Expr>());
  return out;
}

std::optional<double> number(const Argument& argument) {
  if (argument.is<double>()) return argument.as<double>();
  if (auto value = integer(argument)) return static_cast<double>(*value);
  return std::nullopt;
}

std::optional<double> number(const Node& node, std::string_view name) { return number(node.argument(name)); }

bool is_unknown_number(const Node& node, std::string_view name) {
  const Argument& argument = node.argument(name);
  return !argument.is_none() && !number(argument);
}

std::optional<DType> dtype(const Node& node, std::string_view name) {
  const Argument& argument = node.argument(name);
  if (!argument.is<DType>()) return std::nullopt;
  return argument.as<DType>();
}

int64_t wrap_dim(int64_t dim, int64_t rank) {
  int64_t wrapped = dim < 0 ? dim + std::max<int64_t>(rank, 1) : dim;
  CHECK(wrapped >= 0 && wrapped < std::max<int64_t>(rank, 1), "dimension " << dim << " of rank " << rank);
  return wrapped;
}

std::vector<int64_t> wrap_dims(const std::vector<int64_t>& dims, int64_t rank) {
  std::vector<int64_t> out;
  if (dims.empty()) {
    out.resize(static_cast<size_t>(rank));
    std::iota(out.begin(), out.end(), 0);
    return out;
  }
  for (int64_t dim : dims) out.push_back(wrap_dim(dim, rank));
  std::sort(out.begin(), out.end());
  return out;
}

Argument shape_argument(const Shape& sizes) {
  ArgumentList list;
  for (Expr size : sizes) list.emplace_back(size);
  return list;
}

Argument ints_argument(const std::vector<int64_t>& values) {
  ArgumentList list;
  for (int64_t value : values) list.emplace_back(Expr(value));
  return list;
}

Argument tensors_argument(const std::vector<Value*>& values) {
  ArgumentList list;
  for (Value* value : values) list.emplace_back(value);
  return list;
}

}  // namespace braze::graph
