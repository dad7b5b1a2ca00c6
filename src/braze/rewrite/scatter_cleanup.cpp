// Functionalization turns a write through a view into a scatter into the base, and a later read into a view of the
// result. Here writes of everything become the written value, reads see through the writes, and dead writes go.
#include "braze/graph/builder.h"
#include "braze/graph/type_rules.h"
#include "braze/rewrite/pass_manager.h"
#include "braze/rewrite/storage.h"

namespace braze::rewrite {

using graph::Argument;
using graph::Builder;
using graph::Node;
using graph::OpId;
using graph::Value;

namespace {

// The part of one dimension that a slice or select, or the scatter of one, addresses.
struct Region {
  int64_t dim = 0, start = 0, end = 0, step = 1;
  bool operator==(const Region&) const = default;
  bool covers(int64_t size) const { return start == 0 && end == size && step == 1; }
  bool disjoint(const Region& other) const { return dim == other.dim && (end <= other.start || other.end <= start); }
};

// nullopt unless constant. `x` is the tensor that the region is part of.
std::optional<Region> region_of(const Node& node, const Value* x) {
  int64_t rank = x->type.dim();
  auto dim = graph::integer(node, "dim");
  if (!dim || rank == 0) return std::nullopt;
  Region region{.dim = graph::wrap_dim(*dim, rank)};
  auto size = x->type.sizes[static_cast<size_t>(region.dim)].maybe_constant();
  if (!size) return std::nullopt;
  if (node.op->id == OpId::select_int || node.op->id == OpId::select_scatter) {
    auto index = graph::integer(node, "index");
    if (!index) return std::nullopt;
    region.start = *index < 0 ? *index + *size : *index;
    region.end = region.start + 1;
    return region;
  }
  auto bound = [&](const char* name, int64_t missing) -> std::optional<int64_t> {
    if (graph::is_none(node, name)) return missing;
    auto value = graph::integer(node, name);
    if (!value) return std::nullopt;
    int64_t wrapped = *value < 0 ? *value + *size : *value;
    return std::min(std::max<int64_t>(wrapped, 0), *size);
  };
  auto start = bound("start", 0), end = bound("end", *size), step = graph::integer(node, "step");
  if (!start || !end || !step) return std::nullopt;
  region.start = *start;
  region.end = std::max(*start, *end);
  region.step = *step;
  return region;
}

bool is_scatter(const Node* node) {
  return node != nullptr && (node->op->id == OpId::slice_scatter || node->op->id == OpId::select_scatter);
}
bool is_part(const Node* node) {
  return node != nullptr && (node->op->id == OpId::slice_Tensor || node->op->id == OpId::select_int);
}
// Both address parts in the same way.
bool same_kind(const Node& scatter, const Node& part) {
  return (scatter.op->id == OpId::slice_scatter) == (part.op->id == OpId::slice_Tensor);
}

Value* first(const Node& node) { return node.arguments[0].as<Value*>(); }
Value* second(const Node& node) { return node.arguments[1].as<Value*>(); }

// src with the result's layout, as a new value if it has another.
Value* laid_out(Builder& b, Value* src, const graph::TensorType& type) {
  if (src->type.dtype != type.dtype) src = b.cast(src, type.dtype);
  if (!(src->type.sizes == type.sizes)) src = b.expand(src, type.sizes);
  return b.with_layout(src, type);
}

// What a write gives if nothing of the old contents is left, or if nothing changes.
Value* whole_write(Builder& b, const Node& node) {
  const graph::TensorType& type = node.result()->type;
  if (node.op->id == OpId::copy) return laid_out(b, second(node), type);
  if (!is_scatter(&node)) return nullptr;
  auto region = region_of(node, first(node));
  if (!region) return nullptr;
  Value* src = second(node);
  auto size = type.sizes[static_cast<size_t>(region->dim)].maybe_constant();
  if (size && region->covers(*size)) {
    if (node.op->id == OpId::select_scatter) src = b.unsqueeze(src, region->dim);
    return laid_out(b, src, type);
  }
  // Writing back what stands there.
  Node* part = src->producer;
  if (is_part(part) && same_kind(node, *part) && first(*part) == first(node) && region_of(*part, first(node)) == region)
    return first(node);
  return nullptr;
}

// The older write of the same region is dead: scatter(scatter(x, a), b) is scatter(x, b).
bool drop_dead_write(graph::Graph& graph, Node* node) {
  if (!is_scatter(node)) return false;
  Node* older = first(*node)->producer;
  if (!is_scatter(older) || older->op != node->op) return false;
  auto region = region_of(*node, first(*node));
  if (!region || region_of(*older, first(*older)) != region) return false;
  if (!same_layout(first(*older)->type, first(*node)->type)) return false;
  graph.set_argument(node, 0, first(*older));
  return true;
}

// Every user computes with values, not addresses, and gives the same types with the other operand.
bool users_take(graph::Graph& graph, const Value* from, Value* to) {
  for (const Node* user : from->users) {
    if (user->op->has(graph::kView) || !graph::has_type_rule(user->op)) return false;
    std::vector<Argument> arguments = user->arguments;
    for (Argument& argument : arguments)
      if (argument.is<Value*>() && argument.as<Value*>() == from) argument = to;
    for (const Argument& argument : arguments) {
      bool uses = false;
      graph::for_each_value(argument, [&](const Value* value) { uses = uses || value == from; });
      if (uses) return false;
    }
    auto types = graph::infer_types(user->op, arguments, {graph.env.get(), DType::F32});
    if (!types.ok() || types->size() != user->results.size()) return false;
    for (size_t i = 0; i < types->size(); ++i)
      if (!same_layout((*types)[i], user->result(i)->type)) return false;
  }
  return true;
}

// A read of what a scatter wrote, or of what it left alone.
bool read_through(graph::Graph& graph, Storages& storages, Node* node) {
  if (!is_part(node)) return false;
  Node* scatter = first(*node)->producer;
  if (!is_scatter(scatter)) return false;
  auto read = region_of(*node, first(*node)), written = region_of(*scatter, first(*scatter));
  if (!read || !written) return false;
  if (*read == *written && same_kind(*scatter, *node)) {
    Value* src = second(*scatter);
    if (src->type.dtype != node->result()->type.dtype || !(src->type.sizes == node->result()->type.sizes)) return false;
    if (same_layout(src->type, node->result()->type)) return forward(graph, storages, node->result(), src);
    if (storages.escapes(node->result()) || !users_take(graph, node->result(), src)) return false;
    graph.replace_uses(node->result(), src);
    return true;
  }
  if (!read->disjoint(*written) || !same_layout(first(*scatter)->type, first(*node)->type)) return false;
  if (storages.escapes(node->result())) return false;
  Builder b(graph, node);
  std::vector<Argument> arguments = node->arguments;
  arguments[0] = first(*scatter);
  Value* older = b(node->op->id, std::move(arguments));
  if (same_layout(older->type, node->result()->type) && forward(graph, storages, node->result(), older)) return true;
  graph.erase(older->producer);
  return false;
}

}  // namespace

bool scatter_cleanup(graph::Graph& graph) {
  Storages storages(graph);
  bool changed = false;
  for (auto it = graph.nodes.begin(); it != graph.nodes.end();) {
    Node* node = *it++;
    if (node->results.size() != 1) continue;
    if (drop_dead_write(graph, node)) changed = true;
    bool replaced = read_through(graph, storages, node);
    if (!replaced) {
      Builder b(graph, node);
      Value* value = whole_write(b, *node);
      replaced = value != nullptr && same_layout(value->type, node->result()->type) &&
                 forward(graph, storages, node->result(), value);
      for (auto made = b.made().rbegin(); made != b.made().rend(); ++made)
        if (!graph.has_uses((*made)->result())) graph.erase(*made);
    }
    changed |= replaced;
    if (replaced && !graph.has_uses(node->result())) graph.erase(node);
  }
  return changed;
}

}  // namespace braze::rewrite
