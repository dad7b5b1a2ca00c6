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

const graph::TensorType* type_of(const graph::Op& op, const std::vector<graph::Argument>& arguments, std::string_view name) {
  const auto index = op.argument_index(name);
  if (index < 0 || !arguments[static_cast<size_t>(index)].is<graph::Value*>()) return nullptr;
  const graph::Value* value = arguments[static_cast<size_t>(index)].as<graph::Value*>();
  return value == nullptr ? nullptr : &value->type;
}

// Kernels of these trust the sizes of their operands, and write or read beyond them where they don't fit.
class OperandCheck {
 public:
  OperandCheck(const graph::Op& op, const std::vector<graph::Argument>& arguments, sym::ShapeEnv& env)
      : op_(op), arguments_(arguments), env_(env), self_(type("self")), rank_(self_ == nullptr ? 0 : static_cast<int64_t>(self_->sizes.size())) {}

  void run() {
    if (op_.name == "aten.convolution") return bias();
    if (self_ == nullptr) return;
    if (op_.name.starts_with("aten.scatter")) scatter();
    else if (op_.name == "aten.index_add") index_add();
    else if (op_.name == "aten.slice_scatter") slice_scatter();
    else if (op_.name == "aten.select_scatter") select_scatter();
    else if (op_.name == "aten.diagonal_scatter") diagonal_scatter();
    else if (op_.name.starts_with("aten.nll_loss")) class_weights();
    else if (op_.name == "aten.as_strided" || op_.name == "aten.as_strided_scatter") strides();
  }

 private:
  const graph::TensorType* type(std::string_view name) const { return type_of(op_, arguments_, name); }
  std::optional<int64_t> integer(std::string_view name) const {
    const auto index = op_.argument_index(name);
    if (index < 0 || !arguments_[static_cast<size_t>(index)].is<graph::Expr>()) return std::nullopt;
    return arguments_[static_cast<size_t>(index)].as<graph::Expr>().maybe_constant();
  }
  std::optional<size_t> dimension(std::string_view name = "dim") const {
    const auto dim = integer(name);
    if (!dim || rank_ == 0 || *dim < -rank_ || *dim >= rank_) return std::nullopt;
    return static_cast<size_t>(*dim < 0 ? *dim + rank_ : *dim);
  }
  void need(graph::Expr predicate) {
    if (!env_.guard(predicate, {"sizes of the operands of an operator"})) unsupported(op_.name + " with operands whose sizes don't fit");
  }
  void need_equal(const graph::TensorType& type, const graph::Shape& sizes) {
    if (type.sizes.size() != sizes.size()) unsupported(op_.name + " with operands whose sizes don't fit");
    for (size_t d = 0; d < sizes.size(); ++d) need(sym::eq(type.sizes[d], sizes[d]));
  }

  void bias() {
    const graph::TensorType *weight = type("weight"), *bias = type("bias");
    const auto index = op_.argument_index("transposed");
    const graph::Argument& transposed = arguments_[static_cast<size_t>(index)];
    if (weight == nullptr || bias == nullptr || bias->sizes.size() != 1 || !transposed.is<bool>() || transposed.as<bool>()) return;
    need(sym::eq(bias->sizes[0], weight->sizes[0]));
  }
  void class_weights() {
    const graph::TensorType* weight = type("weight");
    if (weight == nullptr || weight->sizes.size() != 1 || self_->sizes.empty()) return;
    need(sym::eq(weight->sizes[0], self_->sizes[self_->sizes.size() == 1 ? 0 : 1]));
  }
  void scatter() {
    const graph::TensorType *index = type("index"), *src = type("src");
    const auto dim = dimension();
    if (index == nullptr || !dim || is_empty(*index)) return;
    if (index->sizes.size() != self_->sizes.size()) return;
    for (size_t d = 0; d < index->sizes.size(); ++d) {
      if (d != *dim) need(sym::le(index->sizes[d], self_->sizes[d]));
      if (src != nullptr && src->sizes.size() == index->sizes.size()) need(sym::le(index->sizes[d], src->sizes[d]));
    }
  }
  void index_add() {
    const graph::TensorType *index = type("index"), *source = type("source");
    const auto dim = dimension();
    if (index == nullptr || source == nullptr || !dim) return;
    if (source->dtype != self_->dtype) unsupported("index_add of a source of another type");
    if (source->sizes.size() != self_->sizes.size() || index->sizes.size() > 1) return;
    graph::Shape sizes = self_->sizes;
    sizes[*dim] = index->sizes.empty() ? graph::Expr(1) : index->sizes[0];
    need_equal(*source, sizes);
  }
  void slice_scatter() {
    const graph::TensorType* src = type("src");
    const auto dim = dimension();
    const auto step = integer("step");
    if (src == nullptr || !dim || !step) return;
    // start and end may be symbolic or missing: the size along dim is checked where they are numbers.
    graph::Shape sizes = self_->sizes;
    const auto size = sizes[*dim].maybe_constant();
    const auto bound = [&](std::string_view name, int64_t missing) -> std::optional<int64_t> {
      const graph::Argument& argument = arguments_[static_cast<size_t>(op_.argument_index(name))];
      if (argument.is_none()) return missing;
      const auto value = integer(name);
      return value && size ? std::optional(std::clamp<int64_t>(*value < 0 ? *value + *size : *value, 0, *size)) : std::nullopt;
    };
    const auto start = size ? bound("start", 0) : std::nullopt, end = size ? bound("end", *size) : std::nullopt;
    sizes[*dim] = start && end ? graph::Expr((std::max(*end - *start, int64_t{0}) + *step - 1) / *step) : src->sizes.size() == sizes.size() ? src->sizes[*dim] : sizes[*dim];
    need_equal(*src, sizes);
  }
  void select_scatter() {
    const graph::TensorType* src = type("src");
    const auto dim = dimension();
    if (src == nullptr || !dim) return;
    if (const auto index = integer("index")) need(sym::lt(graph::Expr(*index < 0 ? -*index - 1 : *index), self_->sizes[*dim]));
    graph::Shape sizes = self_->sizes;
    sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(*dim));
    need_equal(*src, sizes);
  }
  void diagonal_scatter() {
    const graph::TensorType* src = type("src");
    const auto offset = integer("offset");
    const auto dim1 = dimension("dim1"), dim2 = dimension("dim2");
    if (src == nullptr || !offset || !dim1 || !dim2) return;
    const auto a = self_->sizes[*dim1].maybe_constant(), b = self_->sizes[*dim2].maybe_constant();
    if (!a || !b || src->sizes.empty()) return;
    const int64_t length = std::max<int64_t>(0, *offset >= 0 ? std::min(*a, *b - *offset) : std::min(*a + *offset, *b));
    need(sym::eq(src->sizes.back(), graph::Expr(length)));
  }
  void strides() {
    const auto index = op_.argument_index("stride");
    const graph::Argument& argument = arguments_[static_cast<size_t>(index)];
    if (!argument.is<graph::ArgumentList>()) return;
    for (const graph::Argument& stride : argument.as<graph::ArgumentList>()) {
      const auto value = stride.is<graph::Expr>() ? stride.as<graph::Expr>().maybe_constant() : std::nullopt;
      if (value && *value < 0) unsupported("a negative stride");
    }
  }

  const graph::Op& op_;
  const std::vector<graph::Argument>& arguments_;
  sym::ShapeEnv& env_;
  const graph::TensorType* self_;
  int64_t rank_;
};

}  // namespace

void refuse_invalid_values(const graph::Op& op, const std::vector<graph::Argument>& arguments,
                           const std::vector<graph::TensorType>& results, sym::ShapeEnv& env) {
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
  OperandCheck(op, arguments, env).run();
}

}  // namespace braze::trace
