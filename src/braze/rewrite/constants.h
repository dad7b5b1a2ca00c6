// Values that are known while compiling: factories of constants and the arithmetic, comparisons, views and indexing on
// them, as attention masks and positions are made of. A Constant is a strided array, so that expanding and broadcasting
// cost nothing; a uniform one has all strides 0 and may have symbolic sizes.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "braze/graph/graph.h"

namespace braze::rewrite {

struct Constant {
  union Number {
    int64_t integer;  // bool and integer types
    double real;      // floating types, already rounded to the dtype
  };

  DType dtype = DType::F32;
  graph::Shape sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  std::shared_ptr<const std::vector<Number>> data;

  bool is_uniform() const;
  Number first() const { return (*data)[static_cast<size_t>(offset)]; }
  Number at(const std::vector<int64_t>& index) const;
  // The uniform value as an argument of a node: bool, Expr or double.
  graph::Argument scalar() const;
};

// Rounds or wraps as a tensor of this dtype would; nullopt for types that are not modelled and values that a 16-bit
// float cannot hold exactly.
std::optional<Constant::Number> convert(Constant::Number value, DType from, DType to);
std::optional<Constant::Number> number_of(const graph::Argument& scalar, DType dtype);

class Constants {
 public:
  // Arrays of more than `limit` distinct elements are not computed.
  explicit Constants(size_t limit) : limit_(limit) {}
  const Constant* value(const graph::Value* value);  // nullptr: not known

 private:
  std::optional<Constant> compute(const graph::Node& node);
  std::optional<Constant> pointwise(const graph::Node& node);
  std::optional<Constant> view(const graph::Node& node);
  std::optional<Constant> factory(const graph::Node& node);
  std::optional<Constant> gather(const graph::Node& node);
  std::optional<Constant> cumulative_sum(const graph::Node& node);
  std::optional<Constant> concatenation(const graph::Node& node);
  const Constant* argument(const graph::Node& node, size_t i);

  size_t limit_;
  std::unordered_map<const graph::Value*, std::optional<Constant>> known_;
};

}  // namespace braze::rewrite
