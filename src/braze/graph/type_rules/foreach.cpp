// Ops over lists of tensors.
#include "braze/graph/foreach.h"

#include "braze/graph/type_rules/rules.h"

namespace braze::graph::rules {

// Each tensor's type by the rule of the op on one tensor.
Types foreach(const Call& call) {
  const std::optional<size_t> count = each_count(call.arguments());
  if (!count || *count == 0) return unsupported(call, "lists of different lengths");
  const Op* each = each_op(&call.op);
  std::vector<TensorType> out;
  out.reserve(*count);
  for (size_t i = 0; i < *count; ++i) {
    Types one = infer_types(each, each_arguments(&call.op, call.arguments(), i), call.context());
    if (!one.ok()) return one;
    out.push_back(std::move((*one)[0]));
  }
  return out;
}

// The lists that the step changes, as copies: those that the op returns are its first arguments.
Types fused_optimizer(const Call& call) {
  std::vector<TensorType> out;
  for (size_t i = 0; i < call.op.returns.size(); ++i) {
    const auto* list = std::get_if<ArgumentList>(&call[i].v);
    if (list == nullptr) return unsupported(call, "no list");
    for (const Argument& item : *list) {
      if (Call::tensor_of(item) == nullptr) return unsupported(call, "undefined tensor");
      Types copy = infer_types(op(OpId::clone), {item, None{}}, call.context());
      if (!copy.ok()) return copy;
      out.push_back(std::move((*copy)[0]));
    }
  }
  return out;
}

}  // namespace braze::graph::rules
