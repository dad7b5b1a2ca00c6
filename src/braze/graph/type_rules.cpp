#include "braze/graph/type_rules.h"

#include <array>

#include "braze/graph/type_rules/promotion.h"
#include "braze/graph/type_rules/rules.h"
#include "braze/support/check.h"

namespace braze::graph {
namespace {

constexpr auto kRules = std::to_array<rules::Rule>({
    nullptr,
#define OP(id, schema, rule, flags) rules::rule,
#include "braze/graph/ops.def"
#undef OP
});

rules::Rule rule_of(const Op* op) { return kRules[static_cast<size_t>(op->id)]; }

// Tensors that no rule describes: sparse, quantized and the like.
bool is_foreign(const Argument& argument) {
  if (const auto* value = std::get_if<Value*>(&argument.v))
    return *value != nullptr && (!(*value)->type.is_strided || kind_of((*value)->type.dtype) == DTypeKind::Opaque);
  if (const auto* list = std::get_if<ArgumentList>(&argument.v))
    for (const Argument& item : *list)
      if (is_foreign(item)) return true;
  return false;
}

// Pointwise ops whose operands may all be numbers, as promotion has it.
bool takes_numbers(const Op& op) {
  switch (op.id) {
    case OpId::clone:
    case OpId::_to_copy:
    case OpId::copy:
    case OpId::_prelu_kernel:
    case OpId::_prelu_kernel_backward:
      return false;
    default:
      return op.has(kPointwise);
  }
}

}  // namespace

KernelFacts& kernel_facts() {
  static KernelFacts facts;
  return facts;
}

bool has_type_rule(const Op* op) { return rule_of(op) != nullptr; }

Result<std::vector<TensorType>> infer_types(const Op* op, const std::vector<Argument>& arguments,
                                            const TypeContext& context) {
  const rules::Rule rule = rule_of(op);
  if (rule == nullptr) return Unsupported{op->name + ": no native type rule", ""};
  CHECK(context.env != nullptr);
  CHECK(arguments.size() == op->arguments.size(), op->name);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_foreign(arguments[i])) return Unsupported{op->name + ": operand is not a plain strided tensor", ""};
    // A number may stand for a tensor only where pointwise promotion takes it.
    if (op->arguments[i].is_tensor && !op->arguments[i].is_optional() && Call::tensor_of(arguments[i]) == nullptr &&
        !(takes_numbers(*op) && number_type(arguments[i]) != nullptr))
      return Unsupported{op->name + ": argument " + op->arguments[i].name + " is no tensor", ""};
  }
  Types types = rule(Call(*op, arguments, context));
  if (!types.ok()) return types;
  for (const TensorType& type : *types)
    if (type.defined && type.dtype == DType::Other) return Unsupported{op->name + ": no common element type", ""};
  return types;
}

}  // namespace braze::graph
