#include "braze/graph/graph.h"

#include <algorithm>
#include <cctype>
#include <unordered_map>

#include "braze/graph/type_rules.h"
#include "braze/support/check.h"

namespace braze::graph {
namespace {

// A name as the text form can hold it.
std::string printable_name(std::string_view name) {
  std::string out;
  for (const char c : name)
    out += std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '$' ? c : '_';
  if (!out.empty() && std::isdigit(static_cast<unsigned char>(out[0]))) out.insert(0, "_");
  return out;
}

void replace_in(Argument& argument, Value* from, Value* to) {
  if (auto* value = std::get_if<Value*>(&argument.v)) {
    if (*value == from) *value = to;
  } else if (auto* list = std::get_if<ArgumentList>(&argument.v)) {
    for (Argument& item : *list) replace_in(item, from, to);
  }
}

Argument mapped(const Argument& argument, const std::unordered_map<const Value*, Value*>& map) {
  if (const auto* value = std::get_if<Value*>(&argument.v)) return *value == nullptr ? nullptr : map.at(*value);
  if (const auto* list = std::get_if<ArgumentList>(&argument.v)) {
    ArgumentList out;
    out.reserve(list->size());
    for (const Argument& item : *list) out.push_back(mapped(item, map));
    return out;
  }
  return argument;
}

}  // namespace

Shape contiguous_strides(const Shape& sizes) {
  Shape strides(sizes.size());
  Expr stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    // A size of 0 counts as 1.
    if (sizes[i].range().low >= 1)
      stride = stride * sizes[i];
    else if (!sizes[i].is_constant())
      stride = stride * sym::max(sizes[i], 1);
  }
  return strides;
}

bool is_contiguous(const TensorType& type) {
  Expr expected = 1;
  for (const Expr& size : type.sizes)
    if (size == Expr(0)) return true;
  for (size_t i = type.sizes.size(); i-- > 0;) {
    if (type.sizes[i] == Expr(1)) continue;
    if (type.strides[i] != expected) return false;
    expected = expected * type.sizes[i];
  }
  return true;
}

Expr numel(const Shape& sizes) { return sym::product(sizes); }

const Argument& Node::argument(std::string_view name) const {
  const int i = op->argument_index(name);
  CHECK(i >= 0, op->name << " has no argument " << name);
  return arguments[static_cast<size_t>(i)];
}

Graph::Graph(std::shared_ptr<sym::ShapeEnv> shape_env, std::string graph_name)
    : name(std::move(graph_name)), env(std::move(shape_env)) {
  CHECK(env != nullptr);
}

Value* Graph::add_input(TensorType type, InputKind kind, std::string input_name) {
  std::string unique = printable_name(input_name);
  const auto taken = [&] {
    return std::ranges::any_of(inputs, [&](const Value* input) { return input->name == unique; });
  };
  for (int n = 1; !unique.empty() && taken(); ++n) unique = printable_name(input_name) + "_" + std::to_string(n);
  Value* value = arena_.make<Value>();
  value->index = static_cast<int32_t>(inputs.size());
  value->id = next_id_++;
  value->name = std::move(unique);
  value->type = std::move(type);
  inputs.push_back(value);
  input_kinds.push_back(kind);
  return value;
}

Node* Graph::add_node(const Op* node_op, std::vector<Argument> arguments, std::vector<TensorType> types, Node* before) {
  CHECK(node_op != nullptr);
  CHECK(arguments.size() <= node_op->arguments.size(), "arguments of " << node_op->name);
  while (arguments.size() < node_op->arguments.size()) {
    std::optional<Argument> value = default_of(node_op->arguments[arguments.size()]);
    CHECK(value.has_value(), node_op->name << " needs argument " << node_op->arguments[arguments.size()].name);
    arguments.push_back(std::move(*value));
  }
  Node* node = arena_.make<Node>();
  node->op = node_op;
  node->owner = this;
  node->arguments = std::move(arguments);
  node->place = nodes.insert(before == nullptr ? nodes.end() : before->place, node);
  for (const Argument& argument : node->arguments) add_users(node, argument);
  for (TensorType& type : types) {
    Value* value = arena_.make<Value>();
    value->producer = node;
    value->index = static_cast<int32_t>(node->results.size());
    value->id = next_id_++;
    value->type = std::move(type);
    node->results.push_back(value);
  }
  return node;
}

Node* Graph::add_typed(const Op* node_op, std::vector<Argument> arguments, Node* before) {
  while (arguments.size() < node_op->arguments.size()) {
    std::optional<Argument> value = default_of(node_op->arguments[arguments.size()]);
    CHECK(value.has_value(), node_op->name << " needs argument " << node_op->arguments[arguments.size()].name);
    arguments.push_back(std::move(*value));
  }
  Result<std::vector<TensorType>> types = infer_types(node_op, arguments, {env.get(), DType::F32});
  CHECK(types.ok(), node_op->name << ": " << types.why().reason);
  return add_node(node_op, std::move(arguments), std::move(types).value(), before);
}

void Graph::add_users(Node* node, const Argument& argument) {
  for_each_value(argument, [&](Value* value) { value->users.push_back(node); });
}

void Graph::remove_users(Node* node, const Argument& argument) {
  for_each_value(argument, [&](Value* value) {
    const auto it = std::ranges::find(value->users, node);
    CHECK(it != value->users.end());
    value->users.erase(it);
  });
}

void Graph::replace_uses(Value* from, Value* to) {
  if (from == to) return;
  CHECK(from->type.dtype == to->type.dtype);
  CHECK(from->type.sizes.size() == to->type.sizes.size());
  for (size_t i = 0; i < from->type.sizes.size(); ++i)
    CHECK(env->known(sym::eq(from->type.sizes[i], to->type.sizes[i])).value_or(false),
          from->type.sizes[i] << " is not known to equal " << to->type.sizes[i]);
  for (Node* user : from->users)
    for (Argument& argument : user->arguments) replace_in(argument, from, to);
  to->users.insert(to->users.end(), from->users.begin(), from->users.end());
  from->users.clear();
  std::ranges::replace(outputs, from, to);
  for (Mutation& mutation : mutations)
    if (mutation.value == from) mutation.value = to;
}

void Graph::set_argument(Node* node, size_t i, Argument argument) {
  remove_users(node, node->arguments[i]);
  node->arguments[i] = std::move(argument);
  add_users(node, node->arguments[i]);
}

void Graph::erase(Node* node) {
  for (const Value* result : node->results) CHECK(!has_uses(result), "%" << result->id << " is used");
  for (const Argument& argument : node->arguments) remove_users(node, argument);
  const bool is_ordered = node->order_after != nullptr || node->op->has(kRandom) || node->op->has(kSideEffect);
  for (auto it = std::next(node->place); is_ordered && it != nodes.end(); ++it)
    if ((*it)->order_after == node) {
      (*it)->order_after = node->order_after;
      break;
    }
  nodes.erase(node->place);
}

bool Graph::has_uses(const Value* value) const {
  return !value->users.empty() || std::ranges::find(outputs, value) != outputs.end() ||
         std::ranges::any_of(mutations, [&](const Mutation& m) { return m.value == value; });
}

void Graph::set_id(Value* value, int32_t id) {
  value->id = id;
  next_id_ = std::max(next_id_, id + 1);
}

std::unique_ptr<Graph> clone(const Graph& graph) {
  auto out = std::make_unique<Graph>(graph.env, graph.name);
  std::unordered_map<const Value*, Value*> map;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    Value* copy = out->add_input(graph.inputs[i]->type, graph.input_kinds[i], graph.inputs[i]->name);
    out->set_id(copy, graph.inputs[i]->id);
    map.emplace(graph.inputs[i], copy);
  }
  out->size_inputs = graph.size_inputs;
  std::unordered_map<const Node*, Node*> node_map;
  for (const Node* node : graph.nodes) {
    std::vector<Argument> arguments;
    for (const Argument& argument : node->arguments) arguments.push_back(mapped(argument, map));
    std::vector<TensorType> types;
    for (const Value* result : node->results) types.push_back(result->type);
    Node* copy = out->add_node(node->op, std::move(arguments), std::move(types));
    copy->origin = node->origin;
    copy->tags = node->tags;
    if (const auto it = node_map.find(node->order_after); it != node_map.end()) copy->order_after = it->second;
    node_map.emplace(node, copy);
    for (size_t i = 0; i < node->results.size(); ++i) {
      out->set_id(copy->results[i], node->results[i]->id);
      copy->results[i]->name = node->results[i]->name;
      map.emplace(node->results[i], copy->results[i]);
    }
  }
  for (const Value* output : graph.outputs) out->outputs.push_back(output == nullptr ? nullptr : map.at(output));
  for (const Mutation& mutation : graph.mutations)
    out->mutations.push_back({mutation.input, map.at(mutation.value), mutation.under_no_grad});
  out->aliases = graph.aliases;
  return out;
}

}  // namespace braze::graph
