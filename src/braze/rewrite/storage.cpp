#include "braze/rewrite/storage.h"

#include <algorithm>

namespace braze::rewrite {

using graph::Node;
using graph::Value;

namespace {

bool is_view(const Node& node) { return node.op->has(graph::kView) || node.op->has(graph::kMayAlias); }

void replace_in(graph::Argument& argument, Value* from, Value* to) {
  if (auto* value = std::get_if<Value*>(&argument.v)) {
    if (*value == from) *value = to;
  } else if (auto* list = std::get_if<graph::ArgumentList>(&argument.v)) {
    for (graph::Argument& item : *list) replace_in(item, from, to);
  }
}

// The operand whose memory a view shows: the first tensor among the arguments.
Value* viewed(const Node& node) {
  Value* first = nullptr;
  for (const graph::Argument& argument : node.arguments) {
    graph::for_each_value(argument, [&](Value* value) { first = first == nullptr ? value : first; });
    if (first != nullptr) break;
  }
  return first;
}

}  // namespace

Value* root(Value* value) {
  while (value->producer != nullptr && is_view(*value->producer)) {
    Value* next = viewed(*value->producer);
    if (next == nullptr) break;
    value = next;
  }
  return value;
}

Storages::Storages(const graph::Graph& graph) {
  for (Value* value : graph.outputs)
    if (value != nullptr) outputs_.insert(value);
  for (const graph::Mutation& mutation : graph.mutations)
    if (mutation.value != nullptr) outputs_.insert(mutation.value);
  for (const Value* value : outputs_) escaping_.insert(root(const_cast<Value*>(value)));
}

bool Storages::escapes(const Value* value) const {
  if (outputs_.contains(value)) return true;
  for (const Node* user : value->users)
    if (is_view(*user) && viewed(*user) == value)
      for (const Value* result : user->results)
        if (escapes(result)) return true;
  return false;
}

bool Storages::may_merge(Value* from, Value* to) const {
  if (is_output(from) && (is_output(to) || to->producer == nullptr)) return false;
  if (!escapes(from)) return true;
  Value* from_root = root(from);
  Value* to_root = root(to);
  if (from_root == to_root) return true;
  return to_root->producer != nullptr && !escaping_.contains(to_root);
}

void Storages::merged(Value* from, Value* to) {
  if (outputs_.erase(from) > 0) outputs_.insert(to);
  if (escapes(to)) escaping_.insert(root(to));
}

namespace {

// A view that addresses the whole storage, not its operand's elements.
bool is_absolute(const Node& node) {
  return node.op->id == graph::OpId::as_strided || node.op->id == graph::OpId::as_strided_scatter;
}

// Ops whose result has its first operand's offset: views, and writes, which keep the whole layout.
bool keeps_offset(const Node& node, const Value* value) {
  if (is_view(node)) return viewed(node) == value;
  switch (node.op->id) {
    case graph::OpId::copy:
    case graph::OpId::slice_scatter:
    case graph::OpId::select_scatter:
    case graph::OpId::diagonal_scatter:
      return viewed(node) == value;
    default:
      return false;
  }
}

void move_offsets(Value* value, sym::Expr delta);

void move_results(const Node& node, sym::Expr delta) {
  for (Value* result : node.results) {
    if (result->type.defined) result->type.offset = result->type.offset + delta;
    move_offsets(result, delta);
  }
}

// Moves the recorded offsets of what is made from `value` by `delta`.
void move_offsets(Value* value, sym::Expr delta) {
  for (Node* user : value->users)
    if (keeps_offset(*user, value)) move_results(*user, delta);
}

bool reaches_absolute(const Value* value) {
  for (const Node* user : value->users) {
    if (is_absolute(*user)) return true;
    if (!keeps_offset(*user, value)) continue;
    for (const Value* result : user->results)
      if (reaches_absolute(result)) return true;
  }
  return false;
}

}  // namespace

bool forward(graph::Graph& graph, Storages& storages, Value* from, Value* to) {
  sym::Expr delta = to->type.offset - from->type.offset;
  bool moves = !(delta == sym::Expr(0));
  if (moves && (reaches_absolute(from) || storages.escapes(from))) return false;
  if (storages.may_merge(from, to)) {
    if (!graph.has_uses(from)) return false;
    if (moves) move_offsets(from, delta);
    graph.replace_uses(from, to);
    storages.merged(from, to);
    return true;
  }
  bool changed = false;
  std::vector<Node*> users = from->users;
  for (Node* user : users) {
    bool escapes = false;
    if (is_view(*user) && viewed(*user) == from)
      for (const Value* result : user->results) escapes = escapes || storages.escapes(result);
    // A user may stand in the list twice; the first time replaces both.
    if (escapes || std::find(from->users.begin(), from->users.end(), user) == from->users.end()) continue;
    for (size_t i = 0; i < user->arguments.size(); ++i) {
      bool uses = false;
      graph::for_each_value(user->arguments[i], [&](const Value* value) { uses = uses || value == from; });
      if (!uses) continue;
      graph::Argument argument = user->arguments[i];
      replace_in(argument, from, to);
      graph.set_argument(user, i, std::move(argument));
    }
    if (moves && keeps_offset(*user, to)) move_results(*user, delta);
    changed = true;
  }
  return changed;
}

bool same_layout(const graph::TensorType& a, const graph::TensorType& b) {
  return a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides && a.device == b.device &&
         a.defined == b.defined && a.wrapped_number == b.wrapped_number && a.is_strided && b.is_strided;
}

}  // namespace braze::rewrite
