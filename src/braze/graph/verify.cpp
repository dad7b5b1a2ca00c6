#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "braze/graph/text.h"
#include "braze/graph/type_rules.h"

namespace braze::graph {
namespace {

// Whether an argument may stand where the schema says `base`. Numbers may stand for tensors: they are weak operands.
struct FitsType {
  std::string_view base;
  bool operator()(const None&) const { return true; }
  bool operator()(const Value*) const { return base == "Tensor"; }
  bool operator()(const Expr&) const {
    return base == "int" || base == "SymInt" || base == "Scalar" || base == "float" || base == "Tensor" ||
           base == "SymFloat";
  }
  bool operator()(double) const {
    return base == "float" || base == "Scalar" || base == "Tensor" || base == "SymFloat";
  }
  bool operator()(bool) const { return base == "bool" || base == "SymBool" || base == "Scalar" || base == "Tensor"; }
  bool operator()(const std::complex<double>&) const {
    return base == "Scalar" || base == "complex" || base == "Tensor";
  }
  bool operator()(const std::string&) const { return base == "str"; }
  bool operator()(DType) const { return base == "ScalarType" || base == "int"; }
  bool operator()(Device) const { return base == "Device"; }
  bool operator()(Layout) const { return base == "Layout" || base == "int"; }
  bool operator()(MemoryFormat) const { return base == "MemoryFormat" || base == "int"; }
  bool operator()(const Opaque&) const { return true; }
  bool operator()(const ArgumentList& list) const {
    return std::ranges::all_of(list, [&](const Argument& item) { return std::visit(*this, item.v); });
  }
};

const std::unordered_set<std::string_view> kCheckedTypes{
    "Tensor", "int", "SymInt", "Scalar", "float", "bool", "str", "ScalarType", "Device", "Layout", "MemoryFormat"};

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  std::string operator()() {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const Value* input = graph_.inputs[i];
      if (input->producer != nullptr || input->index != static_cast<int32_t>(i))
        problem("input " + std::to_string(i) + " has a producer or a wrong number");
      define(input);
      check_shape(input);
    }
    if (graph_.input_kinds.size() != graph_.inputs.size()) problem("each input needs a kind");
    for (const Node* node : graph_.nodes) check_node(*node);
    check_users();
    check_results();
    return std::move(problems_);
  }

 private:
  static std::string name(const Value* value) {
    return "%" + (value->name.empty() ? std::to_string(value->id) : value->name);
  }
  void problem(const std::string& text) { problems_ += text + "\n"; }

  void define(const Value* value) {
    if (!defined_.insert(value).second) problem(name(value) + " is defined twice");
    if (!names_.insert(name(value)).second) problem("the name " + name(value) + " is used twice");
  }
  void check_shape(const Value* value) {
    if (value->type.is_strided && value->type.defined && value->type.sizes.size() != value->type.strides.size())
      problem(name(value) + " has " + std::to_string(value->type.strides.size()) + " strides for " +
              std::to_string(value->type.sizes.size()) + " sizes");
  }

  void check_node(const Node& node) {
    const std::string where = node.results.empty() ? node.op->name : name(node.results[0]) + " = " + node.op->name;
    if (node.owner != &graph_) problem(where + ": belongs to another graph");
    if (node.arguments.size() != node.op->arguments.size()) {
      problem(where + ": has " + std::to_string(node.arguments.size()) + " arguments, the schema " +
              std::to_string(node.op->arguments.size()));
      return;
    }
    const size_t problems_before = problems_.size();
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      const OpArgument& declared = node.op->arguments[i];
      for_each_value(node.arguments[i], [&](const Value* value) {
        ++uses_[value][&node];
        if (!defined_.contains(value)) problem(where + ": uses " + name(value) + " before its definition");
      });
      if (kCheckedTypes.contains(declared.base_type()) &&
          !std::visit(FitsType{declared.base_type()}, node.arguments[i].v))
        problem(where + ": argument " + declared.name + " does not fit " + declared.type);
      if (node.arguments[i].is_none() && !declared.is_optional() && declared.base_type() != "Generator")
        problem(where + ": argument " + declared.name + " is missing");
    }
    if (node.order_after != nullptr && !seen_.contains(node.order_after))
      problem(where + ": is ordered after a node that does not come before it");
    seen_.insert(&node);
    for (size_t i = 0; i < node.results.size(); ++i) {
      const Value* result = node.results[i];
      if (result->producer != &node || result->index != static_cast<int32_t>(i))
        problem(where + ": result " + std::to_string(i) + " names another producer");
      define(result);
      check_shape(result);
    }
    // A rule may rely on arguments that fit.
    if (problems_.size() == problems_before) check_types(node, where);
  }

  void check_types(const Node& node, const std::string& where) {
    if (!has_type_rule(node.op)) return;
    const size_t guards = graph_.env->guards().size();
    Result<std::vector<TensorType>> types = Unsupported{};
    try {
      types = infer_types(node.op, node.arguments, {graph_.env.get(), DType::F32});
    } catch (const std::exception& e) {
      problem(where + ": " + e.what());
      return;
    }
    // A rule may not need decisions that the trace did not need.
    if (graph_.env->guards().size() != guards) problem(where + ": its type rule added a guard");
    if (!types.ok()) return;
    if (types->size() != node.results.size()) {
      problem(where + ": has " + std::to_string(node.results.size()) + " results, its type rule " +
              std::to_string(types->size()));
      return;
    }
    for (size_t i = 0; i < types->size(); ++i) {
      TensorType expected = (*types)[i], actual = node.results[i]->type;
      // These come from autograd and from the trace, not from the rule.
      expected.requires_grad = actual.requires_grad = false;
      expected.wrapped_number = actual.wrapped_number = false;
      if (expected.device.kind == actual.device.kind) expected.device = actual.device;
      if (!same(expected, actual))
        problem(where + ": result " + std::to_string(i) + " is " + print(actual) + ", its type rule gives " +
                print(expected));
    }
  }
  bool same(const TensorType& a, const TensorType& b) const {
    if (a.defined != b.defined) return false;
    if (!a.defined) return true;
    return a.dtype == b.dtype && a.device == b.device && a.is_strided == b.is_strided && same(a.sizes, b.sizes) &&
           same(a.strides, b.strides) && graph_.env->simplify(a.offset) == graph_.env->simplify(b.offset);
  }
  bool same(const Shape& a, const Shape& b) const {
    return std::ranges::equal(a, b, [&](Expr x, Expr y) { return graph_.env->simplify(x) == graph_.env->simplify(y); });
  }

  void check_users() {
    for (const Value* value : defined_) {
      std::unordered_map<const Node*, int> listed;
      for (const Node* user : value->users) ++listed[user];
      if (listed != uses_[value]) problem(name(value) + ": its user list is wrong");
    }
  }

  void check_results() {
    const auto n_outputs = static_cast<int32_t>(graph_.outputs.size());
    const auto n_inputs = static_cast<int32_t>(graph_.inputs.size());
    for (const Value* output : graph_.outputs)
      if (output != nullptr && !defined_.contains(output)) problem("output " + name(output) + " is not defined");
    for (const Mutation& mutation : graph_.mutations) {
      if (mutation.input < 0 || mutation.input >= n_inputs) problem("a mutation names no input");
      if (!defined_.contains(mutation.value)) problem("a mutation's value is not defined");
    }
    for (const OutputAlias& alias : graph_.aliases) {
      if (alias.output < 0 || alias.output >= n_outputs) problem("an alias names no output");
      if ((alias.input >= 0) == (alias.base_output >= 0)) problem("an alias needs an input or an output as its base");
      if (alias.input >= n_inputs || alias.base_output >= n_outputs) problem("an alias names no base");
    }
  }

  const Graph& graph_;
  std::string problems_;
  std::unordered_set<const Value*> defined_;
  std::unordered_set<std::string> names_;
  std::unordered_set<const Node*> seen_;
  std::unordered_map<const Value*, std::unordered_map<const Node*, int>> uses_;
};

}  // namespace

std::string verify(const Graph& graph) { return Verifier(graph)(); }

}  // namespace braze::graph
