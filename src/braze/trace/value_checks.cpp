#include "braze/trace/value_checks.h"

#include <ATen/Dispatch.h>
#include <c10/core/Scalar.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "braze/graph/type_rules.h"
#include "braze/trace/abort.h"
#include "braze/trace/torch_types.h"

namespace braze::trace {
namespace {

using Names = std::vector<std::string_view>;
using NamesOf = std::unordered_map<std::string_view, Names>;

// Numbers that the kernel converts to the result's element type, which must hold them.
const NamesOf kStored = {
    {"aten.fill.Scalar", {"value"}},           {"aten.full", {"fill_value"}},
    {"aten.full_like", {"fill_value"}},        {"aten.new_full", {"fill_value"}},
    {"aten.masked_fill.Scalar", {"value"}},    {"aten.index_fill.int_Scalar", {"value"}},
    {"aten.scatter.value", {"value"}},         {"aten.scatter.value_reduce", {"value"}},
    {"aten.constant_pad_nd", {"value"}},       {"aten.clamp", {"min", "max"}},
    {"aten.clamp_min", {"min"}},               {"aten.clamp_max", {"max"}},
    {"aten.hardtanh", {"min_val", "max_val"}}, {"aten.threshold", {"value"}},
    {"aten.hardshrink", {"lambd"}},            {"aten.logit", {"eps"}},
    {"aten.add.Tensor", {"alpha"}},            {"aten.sub.Tensor", {"alpha"}},
    {"aten.rsub.Tensor", {"alpha"}},           {"aten.add.Scalar", {"alpha"}},
    {"aten.sub.Scalar", {"alpha"}},            {"aten.rsub.Scalar", {"alpha"}},
    {"aten.index_add", {"alpha"}},             {"aten.addr", {"alpha", "beta"}},
    {"aten.addmv", {"alpha", "beta"}},         {"aten.uniform", {"from", "to"}},
};
// To the type that it computes in: single precision for 16-bit elements.
const NamesOf kComputed = {
    {"aten.lerp.Scalar", {"weight"}},          {"aten.threshold", {"threshold"}},
    {"aten.addcmul", {"value"}},               {"aten.addcdiv", {"value"}},
    {"aten.elu", {"alpha", "scale", "input_scale"}}, {"aten.leaky_relu", {"negative_slope"}},
    {"aten.softplus", {"beta", "threshold"}},  {"aten.addmm", {"alpha", "beta"}},
    {"aten.baddbmm", {"alpha", "beta"}},
};
// To the result's type, which need not hold them if it has 16 bits.
const NamesOf kSelected = {
    {"aten.scalar_tensor", {"s"}},   // where() makes one of a number
};

struct LowerBound {
  std::string_view argument;
  bool zero;    // is allowed; what is below is not
};
const std::unordered_map<std::string_view, LowerBound> kLowerBounds = {
    {"aten.huber_loss", {"delta", false}},
    {"aten.smooth_l1_loss", {"beta", true}},
    {"aten.softshrink", {"lambd", true}},
};

// Lists of dimensions in which none may stand twice. Those of reductions are checked by their type rules.
const NamesOf kDistinct = {{"aten.flip", {"dims"}}, {"aten.squeeze.dims", {"dim"}}};

// Element types for which there is no kernel, though the type rule gives one.
enum class Elements : uint8_t { Bool, Integer, Floating };
const std::unordered_map<std::string_view, Elements> kMissingKernels = {
    {"aten.floor", Elements::Bool},       {"aten.ceil", Elements::Bool},
    {"aten.trunc", Elements::Bool},       {"aten.round", Elements::Bool},
    {"aten.abs", Elements::Bool},         {"aten.threshold", Elements::Bool},
    {"aten.pow.Tensor_Tensor", Elements::Bool}, {"aten.threshold_backward", Elements::Bool}, {"aten.mish_backward", Elements::Integer}, {"aten.argmax", Elements::Bool},
    {"aten.argmin", Elements::Bool},      {"aten.trace", Elements::Bool},
    {"aten.frac", Elements::Integer},     {"aten.hardshrink", Elements::Integer},
    {"aten.bitwise_and.Tensor", Elements::Floating}, {"aten.bitwise_and.Scalar", Elements::Floating},
    {"aten.bitwise_or.Tensor", Elements::Floating},  {"aten.bitwise_or.Scalar", Elements::Floating},
    {"aten.bitwise_xor.Tensor", Elements::Floating}, {"aten.bitwise_xor.Scalar", Elements::Floating},
    {"aten.bitwise_not", Elements::Floating},
};

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

const graph::Argument* argument_of(const graph::Op& op, const std::vector<graph::Argument>& arguments, std::string_view name) {
  const auto index = op.argument_index(name);
  return index < 0 || static_cast<size_t>(index) >= arguments.size() ? nullptr : &arguments[static_cast<size_t>(index)];
}

// The rows of the tables above for one operator, looked up once.
struct Rows {
  const Names *stored, *computed, *selected, *distinct;
  const LowerBound* bound;
  const Elements* missing;
};

template <class Table>
auto row_of(const Table& table, const graph::Op& op) {
  const auto found = table.find(op.name);
  return found == table.end() ? nullptr : &found->second;
}

const Rows& rows_of(const graph::Op& op) {
  thread_local std::unordered_map<const graph::Op*, Rows> known;
  const auto found = known.find(&op);
  if (found != known.end()) return found->second;
  const Rows rows{row_of(kStored, op), row_of(kComputed, op), row_of(kSelected, op),
                  row_of(kDistinct, op), row_of(kLowerBounds, op), row_of(kMissingKernels, op)};
  return known.emplace(&op, rows).first->second;
}

void check_numbers(const Names* names, const graph::Op& op, const std::vector<graph::Argument>& arguments, c10::ScalarType type) {
  if (names == nullptr) return;
  for (const std::string_view name : *names)
    if (const graph::Argument* argument = argument_of(op, arguments, name))
      if (const auto number = number_of(*argument)) check_holds(type, *number);
}

void check_lower_bound(const LowerBound& bound, const graph::Op& op, const std::vector<graph::Argument>& arguments) {
  const graph::Argument* argument = argument_of(op, arguments, bound.argument);
  const auto number = argument == nullptr ? std::nullopt : number_of(*argument);
  if (!number) return;
  const double value = number->toDouble();
  if (value < 0 || (value == 0 && !bound.zero))
    unsupported(op.name + " with a " + std::string(bound.argument) + " that is too small");
}

void check_kernel(Elements without, const graph::Op& op, const std::vector<graph::Argument>& arguments, c10::ScalarType result) {
  const graph::Value* self = arguments[0].is<graph::Value*>() ? arguments[0].as<graph::Value*>() : nullptr;
  c10::ScalarType type = result;
  if (without != Elements::Floating && self != nullptr && !op.name.starts_with("aten.pow.")) type = to_torch(self->type.dtype);
  bool missing = false;
  switch (without) {
    case Elements::Bool: missing = type == c10::kBool; break;
    case Elements::Integer: missing = c10::isIntegralType(type, true); break;
    case Elements::Floating: missing = !c10::isIntegralType(type, true); break;
  }
  if (missing) unsupported(op.name + " has no kernel for elements of type " + c10::toString(type));
}

// Sums and differences: bools are not subtracted, and alpha is of the result's kind.
void check_sum(const graph::Op& op, const std::vector<graph::Argument>& arguments, c10::ScalarType result) {
  const bool subtracts = op.name.starts_with("aten.sub.") || op.name.starts_with("aten.rsub.");
  if (!subtracts && !op.name.starts_with("aten.add.")) return;
  for (const std::string_view name : {"self", "other"}) {
    const graph::Argument* argument = argument_of(op, arguments, name);
    if (!subtracts || argument == nullptr) continue;
    const graph::Value* value = argument->is<graph::Value*>() ? argument->as<graph::Value*>() : nullptr;
    if (argument->is<bool>() || (value != nullptr && value->type.dtype == DType::Bool)) unsupported("a difference of bools");
  }
  const graph::Argument* alpha = argument_of(op, arguments, "alpha");
  if (alpha == nullptr) return;
  if (alpha->is<bool>() && result != c10::kBool) unsupported("alpha is a bool, the result is none");
  if (alpha->is<double>() && c10::isIntegralType(result, true)) unsupported("alpha is a float, the result is an integer");
}

void check_divisor(const graph::Op& op, const std::vector<graph::Argument>& arguments, c10::ScalarType result) {
  const bool divides = op.name.starts_with("aten.floor_divide") || op.name.starts_with("aten.remainder.") ||
                       op.name.starts_with("aten.fmod.") || op.name.ends_with("_mode");
  if (!divides || !c10::isIntegralType(result, true)) return;
  const graph::Argument* divisor = argument_of(op, arguments, "other");
  const auto number = divisor == nullptr ? std::nullopt : number_of(*divisor);
  if (number && number->toDouble() == 0) unsupported("an integer is divided by zero");
}

void check_approximation(const std::vector<graph::Argument>& arguments) {
  const graph::Argument& how = arguments.back();
  if (how.is<std::string>() && how.as<std::string>() != "none" && how.as<std::string>() != "tanh")
    unsupported("gelu with an unknown approximation");
}

void check_distinct(const Names& names, const graph::Op& op, const std::vector<graph::Argument>& arguments) {
  if (!arguments[0].is<graph::Value*>()) return;
  const graph::Argument* list = argument_of(op, arguments, names[0]);
  const auto rank = static_cast<int64_t>(arguments[0].as<graph::Value*>()->type.sizes.size());
  if (list == nullptr || !list->is<graph::ArgumentList>()) return;
  std::vector<int64_t> seen;
  for (const graph::Argument& item : list->as<graph::ArgumentList>()) {
    const auto dim = item.is<graph::Expr>() ? item.as<graph::Expr>().maybe_constant() : std::nullopt;
    if (!dim) continue;
    const int64_t wrapped = *dim < 0 ? *dim + rank : *dim;
    if (std::ranges::find(seen, wrapped) != seen.end()) unsupported(op.name + " of the same dimension twice");
    seen.push_back(wrapped);
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
    else if (op_.name == "aten.index_put") index_put();
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
  // The values must have the type of what they are put into, and broadcast to what is read at these indices.
  void index_put() {
    const graph::TensorType* values = type("values");
    if (values == nullptr) return;
    if (values->dtype != self_->dtype) unsupported("index_put of values of another type");
    const auto places = graph::infer_types(graph::op(graph::OpId::index_Tensor), {arguments_[0], arguments_[1]}, {&env_, DType::F32});
    if (!places.ok()) return;   // how many places masks name is in the data
    const graph::Shape& sizes = (*places)[0].sizes;
    if (values->sizes.size() > sizes.size()) unsupported("index_put of values whose sizes don't fit");
    const size_t skipped = sizes.size() - values->sizes.size();
    for (size_t d = 0; d < values->sizes.size(); ++d)
      if (values->sizes[d] != graph::Expr(1)) need(sym::eq(values->sizes[d], sizes[d + skipped]));
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
  const Rows& rows = rows_of(op);
  if (!results.empty() && results[0].defined) {
    const c10::ScalarType type = to_torch(results[0].dtype);
    const bool is_short = type == c10::kHalf || type == c10::kBFloat16;
    check_numbers(rows.stored, op, arguments, type);
    check_numbers(rows.computed, op, arguments, is_short ? c10::kFloat : type);
    if (!is_short) check_numbers(rows.selected, op, arguments, type);
    if (rows.missing != nullptr) check_kernel(*rows.missing, op, arguments, type);
    check_sum(op, arguments, type);
    check_divisor(op, arguments, type);
  }
  if (rows.bound != nullptr) check_lower_bound(*rows.bound, op, arguments);
  if (rows.distinct != nullptr) check_distinct(*rows.distinct, op, arguments);
  if (op.name == "aten.gelu") check_approximation(arguments);
  check_extremum(op, arguments);
  check_dimension(op, arguments);
  OperandCheck(op, arguments, env).run();
}

}  // namespace braze::trace
