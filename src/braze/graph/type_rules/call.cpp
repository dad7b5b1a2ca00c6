#include "braze/graph/type_rules/call.h"

#include "braze/support/check.h"

namespace braze::graph {

bool Call::boolean(size_t i, bool if_none) const {
  const Argument& argument = arguments_[i];
  if (argument.is_none()) return if_none;
  if (const bool* value = std::get_if<bool>(&argument.v)) return *value;
  return integer(i) != 0;
}

Expr Call::expr(size_t i) const {
  const Argument& argument = arguments_[i];
  if (const Expr* e = std::get_if<Expr>(&argument.v)) return *e;
  CHECK(argument.is<bool>(), op.name << ": argument " << i << " is no integer");
  return argument.as<bool>() ? 1 : 0;
}

int64_t Call::integer(size_t i) const { return specialize(expr(i)); }

Shape Call::exprs(size_t i) const {
  const Argument& argument = arguments_[i];
  Shape out;
  if (argument.is_none()) return out;
  if (const Expr* e = std::get_if<Expr>(&argument.v)) {
    out.push_back(*e);
    return out;
  }
  const ArgumentList& list = argument.as<ArgumentList>();
  out.reserve(list.size());
  for (const Argument& item : list) out.push_back(item.as<Expr>());
  return out;
}

Dims Call::integers(size_t i) const {
  Dims out;
  for (const Expr& e : exprs(i)) out.push_back(specialize(e));
  return out;
}

std::optional<DType> Call::dtype(size_t i) const {
  const DType* value = std::get_if<DType>(&arguments_[i].v);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<int> Call::memory_format(size_t i) const {
  const MemoryFormat* value = std::get_if<MemoryFormat>(&arguments_[i].v);
  return value == nullptr ? std::nullopt : std::optional<int>(value->value);
}

Device Call::device(size_t i, Device if_none) const {
  const Device* value = std::get_if<Device>(&arguments_[i].v);
  return value == nullptr ? if_none : *value;
}

bool Call::same(const Shape& a, const Shape& b) const {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!same(a[i], b[i])) return false;
  return true;
}

std::optional<size_t> wrap_dim(int64_t dim, size_t rank) {
  const int64_t n = rank == 0 ? 1 : static_cast<int64_t>(rank);
  if (dim < -n || dim >= n) return std::nullopt;
  return static_cast<size_t>(dim < 0 ? dim + n : dim);
}

std::optional<std::vector<bool>> reduced_dims(const Dims& dims, size_t rank) {
  std::vector<bool> out(std::max<size_t>(rank, 1), dims.empty());
  for (const int64_t dim : dims) {
    const std::optional<size_t> d = wrap_dim(dim, rank);
    if (!d || out[*d]) return std::nullopt;
    out[*d] = true;
  }
  out.resize(rank);
  return out;
}

}  // namespace braze::graph
