#include "braze/graph/restrict.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "braze/graph/arguments.h"
#include "braze/graph/builder.h"

namespace braze::graph {
namespace {

struct ZeroRule {
  bool any = false;                          // one of the operands is enough
  std::vector<std::string_view> operands;    // empty: no rule
};

bool takes_one_gradient(const Op& op) {
  const auto is_gradient = [](const OpArgument& a) { return a.is_tensor && a.name.starts_with("grad"); };
  return op.name.find("_backward") != std::string::npos && !op.arguments.empty() && is_gradient(op.arguments[0]) &&
         std::ranges::count_if(op.arguments, is_gradient) == 1;
}

ZeroRule rule_of(const Op& op) {
  static const std::unordered_map<OpId, ZeroRule> rules = {
#define ZERO_IF_ANY(op, ...) {OpId::op, {true, {__VA_ARGS__}}},
#define ZERO_IF_ALL(op, ...) {OpId::op, {false, {__VA_ARGS__}}},
#include "braze/graph/zero_operands.def"
#undef ZERO_IF_ALL
#undef ZERO_IF_ANY
  };
  if (const auto found = rules.find(op.id); op.id != OpId::Unknown && found != rules.end()) return found->second;
  if ((op.has(kView) || takes_one_gradient(op)) && !op.arguments.empty()) return {true, {op.arguments[0].name}};
  return {};
}

bool makes_zeros(const Node& node) {
  switch (node.op->id) {
    case OpId::zeros: case OpId::zeros_like: case OpId::new_zeros: return true;
    case OpId::full: case OpId::full_like: case OpId::new_full: return number(node, "fill_value") == 0.0;
    case OpId::scalar_tensor: return number(node, "s") == 0.0;
    default: return false;
  }
}

class Restriction {
 public:
  explicit Restriction(const Graph& graph) : graph_(clone(graph)) {
    graph_->mutations.clear();
    graph_->aliases.clear();
  }

  Restricted operator()(const std::vector<bool>& zero_inputs, const std::vector<bool>& wanted, bool keep_random) {
    for (size_t i = 0; i < zero_inputs.size(); ++i)
      if (zero_inputs[i]) nothing_.insert(graph_->inputs[i]);
    for (Node* node : graph_->nodes) visit(node);   // what is added stands before the node
    for (size_t i = 0; i < wanted.size(); ++i) {
      Value*& output = graph_->outputs[i];
      if (!wanted[i]) output = nullptr;
      else if (nothing_.contains(output)) output = zeros(output, nullptr);
    }
    drop_unused_nodes(keep_random);
    Restricted out;
    out.inputs = drop_unused_inputs();
    out.graph = std::move(graph_);
    return out;
  }

 private:
  void visit(Node* node) {
    if (makes_zeros(*node)) zeros_.insert(node->results.begin(), node->results.end());
    if (std::ranges::none_of(node->arguments, [&](const Argument& a) { return reads_nothing(a); })) {
      if (is_zero(*node)) zeros_.insert(node->results.begin(), node->results.end());   // views of zeros
    } else if (is_zero(*node)) {
      nothing_.insert(node->results.begin(), node->results.end());
    } else if (Value* rest = other_term(node); rest != nullptr) {
      graph_->replace_uses(node->result(), rest);
    } else {
      for (size_t i = 0; i < node->arguments.size(); ++i)
        if (reads_nothing(node->arguments[i])) graph_->set_argument(node, i, filled(node->arguments[i], node));
    }
  }

  bool reads_nothing(const Argument& argument) const {
    bool found = false;
    for_each_value(argument, [&](const Value* v) { found = found || nothing_.contains(v); });
    return found;
  }

  bool is_zero(const Argument& argument) const {
    if (const auto* value = std::get_if<Value*>(&argument.v)) return nothing_.contains(*value) || zeros_.contains(*value);
    if (const auto* list = std::get_if<ArgumentList>(&argument.v))
      return std::ranges::all_of(*list, [&](const Argument& item) { return is_zero(item); });
    return number(argument) == 0.0;
  }

  bool is_zero(const Node& node) const {
    const ZeroRule rule = rule_of(*node.op);
    const auto zero = [&](std::string_view operand) { return is_zero(node.argument(operand)); };
    if (rule.operands.empty()) return false;
    return rule.any ? std::ranges::any_of(rule.operands, zero) : std::ranges::all_of(rule.operands, zero);
  }

  // What is left of a sum of two tensors; nullptr for other operators.
  Value* other_term(Node* node) {
    const OpId id = node->op->id;
    if (id != OpId::add_Tensor && id != OpId::sub_Tensor) return nullptr;
    const Argument &first = node->argument("self"), &second = node->argument("other");
    const bool is_first = reads_nothing(second);
    const Argument& rest = is_first ? first : second;
    if (!rest.is<Value*>()) return nullptr;
    Builder b(*graph_, node);
    const TensorType& type = node->result()->type;
    Value* out = b.expand(b.cast(rest.as<Value*>(), type.dtype), type.sizes);
    const Argument& alpha = node->argument("alpha");
    if (!is_first && number(alpha) != 1.0) out = b.mul(out, alpha);
    if (!is_first && id == OpId::sub_Tensor) out = b(OpId::neg, {out});
    if (out->type.dtype != type.dtype) return nullptr;   // alpha of a higher type
    Value* laid_out = b.with_layout(out, type);
    return laid_out == nullptr ? out : laid_out;
  }

  Argument filled(const Argument& argument, Node* before) {
    if (const auto* value = std::get_if<Value*>(&argument.v))
      return nothing_.contains(*value) ? Argument(zeros(*value, before)) : argument;
    const auto* list = std::get_if<ArgumentList>(&argument.v);
    if (list == nullptr) return argument;
    ArgumentList out;
    for (const Argument& item : *list) out.push_back(filled(item, before));
    return out;
  }

  Value* zeros(const Value* value, Node* before) {
    Value*& made = filled_[value];
    if (made != nullptr) return made;
    Builder b(*graph_, before);
    Value* dense = b.full(value->type.sizes, Expr(0), value->type.dtype, value->type.device);
    made = b.with_layout(dense, value->type);
    if (made == nullptr) made = dense;
    return made;
  }

  void drop_unused_nodes(bool keep_random) {
    for (auto it = graph_->nodes.end(); it != graph_->nodes.begin();) {
      Node* node = *--it;
      if (keep_random && node->op->has(kRandom)) continue;
      if (std::ranges::any_of(node->results, [&](const Value* v) { return graph_->has_uses(v); })) continue;
      ++it;
      graph_->erase(node);
    }
  }

  std::vector<size_t> drop_unused_inputs() {
    std::vector<size_t> kept;
    for (size_t i = 0; i < graph_->inputs.size(); ++i) {
      Value* input = graph_->inputs[i];
      if (!graph_->has_uses(input)) continue;
      input->index = static_cast<int32_t>(kept.size());
      graph_->inputs[kept.size()] = input;
      graph_->input_kinds[kept.size()] = graph_->input_kinds[i];
      kept.push_back(i);
    }
    graph_->inputs.resize(kept.size());
    graph_->input_kinds.resize(kept.size());
    return kept;
  }

  std::unique_ptr<Graph> graph_;
  std::unordered_set<const Value*> nothing_, zeros_;   // nothing flows there; zeros that the graph makes
  std::unordered_map<const Value*, Value*> filled_;
};

}  // namespace

Restricted restrict(const Graph& graph, const std::vector<bool>& zero_inputs, const std::vector<bool>& wanted,
                    bool keep_random) {
  return Restriction(graph)(zero_inputs, wanted, keep_random);
}

}  // namespace braze::graph
