#include "braze/trace/value_checks.h"

#include <ATen/Dispatch.h>
#include <c10/core/Scalar.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "braze/trace/abort.h"
#include "braze/trace/torch_types.h"

namespace braze::trace {
namespace {

// Numbers that the kernel converts to the result's element type, which must hold them.
const std::unordered_map<std::string_view, std::vector<std::string_view>>& stored_numbers() {
  static const std::unordered_map<std::string_view, std::vector<std::string_view>> names = {
      {"aten.fill.Scalar", {"value"}},         {"aten.full", {"fill_value"}},
      {"aten.full_like", {"fill_value"}},      {"aten.masked_fill.Scalar", {"value"}},
      {"aten.index_fill.int_Scalar", {"value"}}, {"aten.scatter.value", {"value"}},
      {"aten.scatter.value_reduce", {"value"}}, {"aten.constant_pad_nd", {"value"}},
      {"aten.clamp", {"min", "max"}},          {"aten.clamp_min", {"min"}},
      {"aten.clamp_max", {"max"}},             {"aten.hardtanh", {"min_val", "max_val"}},
  };
  return names;
}

std::optional<c10::Scalar> number_of(const graph::Argument& argument) {
  if (argument.is<bool>()) return c10::Scalar(argument.as<bool>());
  if (argument.is<double>()) return c10::Scalar(argument.as<double>());
  if (!argument.is<graph::Expr>()) return std::nullopt;
  const auto value = argument.as<graph::Expr>().maybe_constant();
  return value ? std::optional<c10::Scalar>(*value) : std::nullopt;
}

void check_holds(c10::ScalarType type, const c10::Scalar& number) {
  const bool known = c10::isIntegralType(type, true) || c10::isComplexType(type) || type == c10::kDouble ||
                     type == c10::kFloat || type == c10::kHalf || type == c10::kBFloat16;
  if (!known || c10::isBarebonesUnsignedType(type) || type == c10::kComplexHalf) return;
  try {
    AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND3(c10::kHalf, c10::kBFloat16, c10::kBool, type, "number",
                                           [&] { (void)number.to<scalar_t>(); });
  } catch (const std::exception& error) {
    unsupported(error.what());
  }
}

bool is_empty(const graph::TensorType& type) {
  for (const graph::Expr& size : type.sizes)
    if (size == graph::Expr(0)) return true;
  return false;
}

// A maximum of nothing does not exist.
void check_extremum(const graph::Op& op, const std::vector<graph::Argument>& arguments) {
  if (arguments.empty() || !arguments[0].is<graph::Value*>()) return;
  const graph::TensorType& type = arguments[0].as<graph::Value*>()->type;
  if (op.name == "aten.max" || op.name == "aten.min") {
    if (is_empty(type)) unsupported(op.name + " of a tensor without elements");
  } else if (op.name == "aten.max.dim" || op.name == "aten.min.dim") {
    const auto dim = arguments[1].is<graph::Expr>() ? arguments[1].as<graph::Expr>().maybe_constant() : std::nullopt;
    const auto rank = static_cast<int64_t>(type.sizes.size());
    if (!dim || rank == 0 || *dim < -rank || *dim >= rank) return;
    if (type.sizes[static_cast<size_t>(*dim < 0 ? *dim + rank : *dim)] == graph::Expr(0))
      unsupported(op.name + " over a dimension without elements");
  }
}

// Also where nobody reads the result.
void check_dimension(const graph::Op& op, const std::vector<graph::Argument>& arguments) {
  const auto index = op.argument_index("dim");
  if (index <= 0 || op.argument_index("self") != 0 || op.name == "aten.unsqueeze") return;
  const graph::Argument& argument = arguments[static_cast<size_t>(index)];
  const auto dim = argument.is<graph::Expr>() ? argument.as<graph::Expr>().maybe_constant() : std::nullopt;
  if (!dim || !arguments[0].is<graph::Value*>()) return;
  const auto rank = std::max<int64_t>(1, static_cast<int64_t>(arguments[0].as<graph::Value*>()->type.sizes.size()));
  if (*dim < -rank || *dim >= rank) unsupported(op.name + " over a dimension that its operand does not have");
}

}  // namespace

void refuse_invalid_values(const graph::Op& op, const std::vector<graph::Argument>& arguments,
                           const std::vector<graph::TensorType>& results) {
  if (const auto found = stored_numbers().find(op.name); found != stored_numbers().end() && !results.empty()) {
    for (const std::string_view name : found->second) {
      const auto index = op.argument_index(name);
      if (index < 0 || static_cast<size_t>(index) >= arguments.size()) continue;
      if (const auto number = number_of(arguments[static_cast<size_t>(index)]))
        check_holds(to_torch(results[0].dtype), *number);
    }
  }
  check_extremum(op, arguments);
  check_dimension(op, arguments);
}

}  // namespace braze::trace
