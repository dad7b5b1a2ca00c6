// Reading a node's arguments by schema name, as rules and passes do. A wrong kind is an internal error; what may be
// missing or symbolic is an optional.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "braze/graph/graph.h"

namespace braze::graph {

// The tensor; nullptr for None or an undefined tensor.
Value* tensor(const Node& node, std::string_view name);
std::vector<Value*> tensors(const Node& node, std::string_view name);
bool is_none(const Node& node, std::string_view name);
bool boolean(const Node& node, std::string_view name);
// A constant integer; nullopt for None and for symbolic sizes.
std::optional<int64_t> integer(const Node& node, std::string_view name);
std::optional<int64_t> integer(const Argument& argument);
// Constant integers; nullopt for None or if one is symbolic. A single integer counts as a list of one.
std::optional<std::vector<int64_t>> integers(const Node& node, std::string_view name);
// Sizes, symbolic or not. None gives an empty list.
Shape expressions(const Node& node, std::string_view name);
// The value of a real number argument (integers and bools too); nullopt for None, complex, tensors, symbols.
std::optional<double> number(const Argument& argument);
std::optional<double> number(const Node& node, std::string_view name);
// Given, but no number yet: what an operator does without that argument is not what it does with it.
bool is_unknown_number(const Node& node, std::string_view name);
std::optional<DType> dtype(const Node& node, std::string_view name);

// dim counted from the end if negative; a 0-dim tensor counts as having one dimension.
int64_t wrap_dim(int64_t dim, int64_t rank);
// Reduction dimensions, wrapped and sorted; an empty or missing list means all.
std::vector<int64_t> wrap_dims(const std::vector<int64_t>& dims, int64_t rank);

Argument shape_argument(const Shape& sizes);
Argument ints_argument(const std::vector<int64_t>& values);
Argument tensors_argument(const std::vector<Value*>& values);
inline Argument int_argument(int64_t value) { return Expr(value); }

}  // namespace braze::graph
