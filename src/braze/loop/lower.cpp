// The graph, node by node: inputs, rules, calls, outputs, mutations.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "braze/loop/arithmetic.h"
#include "braze/loop/lower.h"
#include "braze/loop/lowering.h"
#include "braze/support/check.h"
#include "braze/support/hash.h"
#include "braze/support/log.h"

namespace braze::loop {
namespace {

struct RuleRow {
  std::string_view name;
  Rule rule;
  ScalarOp op;
  bool is_view;
};

constexpr RuleRow kRules[] = {
#define LOWERING(name, rule, op) {name, rule, ScalarOp::op, false},
#define VIEW_LOWERING(name, rule) {name, rule, ScalarOp::Constant, true},
#include "braze/loop/lowerings.def"
#undef LOWERING
#undef VIEW_LOWERING
};

const RuleRow* rule_of(const graph::Op* op) {
  static const auto* table = [] {
    auto* rows = new std::unordered_map<std::string_view, const RuleRow*>;
    for (const RuleRow& row : kRules) CHECK(rows->emplace(row.name, &row).second, row.name << " stands twice");
    return rows;
  }();
  const auto it = table->find(op->name);
  return it == table->end() ? nullptr : it->second;
}

std::string label(const Value& value) {
  return "%" + (value.name.empty() ? std::to_string(value.id) : value.name);
}

bool is_target(const Device& device) {
  return device.kind == Device::Kind::Cpu || device.kind == Device::Kind::Cuda;
}

bool is_kernel_type(const TensorType& type) {
  return type.defined && type.is_strided && is_kernel_dtype(type.dtype) && is_target(type.device);
}

// Written element by element without two indices meeting in one place.
bool is_writable(const TensorType& type) {
  for (size_t k = 0; k < type.sizes.size(); ++k)
    if (type.strides[k] == Expr(0) && type.sizes[k] != Expr(1) && type.sizes[k] != Expr(0)) return false;
  return true;
}

bool is_empty(const Shape& sizes) {
  return std::ranges::any_of(sizes, [](Expr e) { return e == Expr(0); });
}

}  // namespace

std::string origin_of(const Node& node) {
  std::string out;
  for (const Value* result : node.results) out += (out.empty() ? "" : ", ") + label(*result);
  return out + (out.empty() ? "" : " = ") + node.op->name;
}

bool has_lowering(const graph::Op* op) { return rule_of(op) != nullptr; }

Lowering::Lowering(const graph::Graph& graph, const std::unordered_set<const Node*>& opaque)
    : graph_(graph), opaque_(opaque) {
  program_.env = graph.env;
  program_.scalars = std::make_unique<ScalarBuilder>();
  program_.graph = &graph;
}

LoopProgram Lowering::run() {
  lower_inputs();
  for (const Node* node : graph_.nodes) lower_node(*node);
  lower_outputs();
  lower_mutations();
  return std::move(program_);
}

// ---- Views

const Located& Lowering::located(const Value* value) const {
  const auto it = located_.find(value);
  CHECK(it != located_.end(), "no buffer for " << label(*value));
  return it->second;
}

void Lowering::view(const Node& node, const Value* operand, const std::function<Indices(const Indices&)>& map,
                    size_t result) {
  const Value* value = node.result(result);
  const Located& base = located(operand);
  const Indices to = map(formals(value->type.sizes));
  CHECK(to.size() == base.sizes.size());
  const Indices from = formals(base.sizes);
  Substitution substitution;
  for (size_t k = 0; k < to.size(); ++k)
    if (from[k].is_symbol() && from[k] != to[k]) substitution.emplace_back(from[k], to[k]);
  Located made{base.buffer, value->type.sizes, {}};
  for (const Expr& e : base.at) made.at.push_back(substitution.empty() ? e : sym::substitute(e, substitution));
  located_[value] = std::move(made);
}

void Lowering::alias(const Node& node, Located located, size_t result) {
  located_[node.result(result)] = std::move(located);
}

std::optional<View> Lowering::linear_view(const Located& at) {
  const Buffer& base = buffer(at.buffer);
  const std::vector<Axis> own_axes = axes(at.sizes);
  View out{at.buffer, at.sizes, {}, 0};
  if (is_empty(at.sizes)) {
    out.strides = graph::contiguous_strides(at.sizes);
    return out;
  }
  if (!split_linear(address(at.at, base.strides), own_axes, out.strides, out.offset)) return std::nullopt;
  return out;
}

std::optional<View> Lowering::exact_view(const Value* value) {
  const TensorType& type = value->type;
  std::optional<View> out = linear_view(located(value));
  if (!out) return std::nullopt;
  for (size_t k = 0; k < type.sizes.size() && !is_empty(type.sizes); ++k) {
    if (type.sizes[k] == Expr(1) || out->strides[k] == type.strides[k]) continue;
    if (!env().known(sym::eq(out->strides[k], type.strides[k])).value_or(false)) return std::nullopt;
  }
  out->strides = type.strides;
  return out;
}

View Lowering::materialized(const Located& source, const TensorType& type, std::string origin) {
  if (!is_kernel_dtype(type.dtype) || !is_writable(type)) {
    if (auto view = linear_view(source)) {
      pin(source.buffer);
      return *view;
    }
    throw NotLowered{{"a copy of a " + std::string(text_of(type.dtype)) + " tensor is needed", ""}};
  }
  const std::vector<Axis> own_axes = axes(type.sizes);
  const Scalar* body = load(source, indices_of(own_axes)).scalar();
  const int32_t id = new_buffer(BufferKind::Pointwise, type, "");
  Buffer& made = program_.buffers[static_cast<size_t>(id)];
  made.axes = own_axes;
  made.body = body;
  made.flexible = false;
  made.origins = {std::move(origin)};
  return {id, type.sizes, type.strides, 0};
}

// ---- The graph

void Lowering::lower_inputs() {
  for (size_t k = 0; k < graph_.inputs.size(); ++k) {
    const Value* value = graph_.inputs[k];
    std::string name = value->name.empty() ? "arg" + std::to_string(k) : value->name;
    if (name.starts_with("buf")) name = "in_" + name;   // names of other buffers
    const int32_t id = new_buffer(BufferKind::Input, value->type, std::move(name));
    Buffer& made = program_.buffers[static_cast<size_t>(id)];
    made.offset = value->type.offset;
    made.input = static_cast<int32_t>(k);
    made.flexible = false;
    located_[value] = Located{id, value->type.sizes, formals(value->type.sizes)};
  }
}

namespace {

// An argument of a kind that the rule does not expect (a symbolic number, an object) makes the node a call.
bool apply_rule(Lowering& l, Rule rule, const Node& node, ScalarOp op) {
  try {
    return rule(l, node, op);
  } catch (const NotLowered&) {
    return false;
  } catch (const std::bad_optional_access&) {
    return false;
  } catch (const std::bad_variant_access&) {
    return false;
  } catch (const InternalError& error) {
    throw RuleFailed{&node, error.what()};
  }
}

}  // namespace

bool Lowering::lower_by_rule(const Node& node) {
  const RuleRow* row = rule_of(node.op);
  if (row == nullptr) return false;
  bool usable = true;
  std::optional<Device> device;
  const auto check = [&](const Value* value) {
    const TensorType& type = value->type;
    usable = usable && type.defined && type.is_strided && (row->is_view || is_kernel_type(type));
    if (device && !(type.device == *device)) usable = false;
    device = type.device;
  };
  for (const Argument& argument : node.arguments) graph::for_each_value(argument, check);
  for (const Value* result : node.results) {
    if (!is_used(result)) continue;
    check(result);
    usable = usable && (row->is_view || is_writable(result->type));
  }
  if (!usable || !apply_rule(*this, row->rule, node, row->op)) return false;
  if (!row->is_view) return true;
  // A view that is a copy in eager needs a kernel later on; types without kernels copy now, by ATen.
  for (const Value* result : node.results)
    if (!is_kernel_dtype(result->type.dtype) && is_used(result) && !exact_view(result)) return false;
  return true;
}

void Lowering::lower_node(const Node& node) {
  const bool must_run = node.op->has(graph::kSideEffect) || node.op->has(graph::kRandom) ||
                        (node.results.empty() || rule_of(node.op) == nullptr);
  if (!must_run && std::ranges::none_of(node.results, [&](const Value* v) { return is_used(v); })) return;
  if (opaque_.contains(&node) || !lower_by_rule(node)) lower_extern(node);
}

void Lowering::lower_extern(const Node& node) {
  ExternCall call;
  call.node = &node;
  for (const Argument& argument : node.arguments) {
    graph::for_each_value(argument, [&](const Value* value) {
      if (value->type.defined) call.operands.push_back(operand_view(value, node));
    });
  }
  for (const Node* before = node.order_after; before != nullptr; before = before->order_after) {
    if (const auto it = call_of_.find(before); it != call_of_.end()) {
      call.order_after.push_back(it->second);
      break;
    }
  }
  const auto number = static_cast<int32_t>(program_.calls.size());
  for (const Value* result : node.results) {
    if (!result->type.defined || !is_used(result)) {
      call.results.push_back(-1);
      continue;
    }
    const int32_t id = new_buffer(BufferKind::Extern, result->type, "");
    Buffer& made = program_.buffers[static_cast<size_t>(id)];
    made.flexible = false;
    made.call = number;
    made.offset = result->type.offset;
    made.origins = {origin_of(node)};
    call.results.push_back(id);
    located_[result] = Located{id, result->type.sizes, formals(result->type.sizes)};
  }
  call_of_[&node] = number;
  program_.calls.push_back(std::move(call));
}

View Lowering::operand_view(const Value* value, const Node& user) {
  if (!value->type.is_strided) return {located(value).buffer, value->type.sizes, {}, 0};
  if (auto view = exact_view(value)) {
    pin(view->buffer);
    return *view;
  }
  const View made = materialized(located(value), value->type, "copy for " + origin_of(user));
  if (made.buffer != located(value).buffer)
    located_[value] = Located{made.buffer, value->type.sizes, formals(value->type.sizes)};
  return made;
}

bool Lowering::own_storage(const Value* value, const Node& user) {
  if (!value->type.is_strided) return false;
  const std::optional<View> view = exact_view(value);
  if (view && view->offset + buffer(view->buffer).offset == value->type.offset) return true;
  if (!is_kernel_dtype(value->type.dtype)) return false;
  const View made = materialized(located(value), value->type, "storage of " + origin_of(user));
  located_[value] = Located{made.buffer, value->type.sizes, formals(value->type.sizes)};
  return true;
}

// Memory of its own: not an input's, and not an earlier output's (`taken` buffers).
View Lowering::output_view(const Value* value, std::vector<bool>& taken) {
  const int32_t base = located(value).buffer;
  if (!value->type.is_strided) return {base, value->type.sizes, {}, 0};
  const auto slot = static_cast<size_t>(base);
  if (taken.size() <= slot) taken.resize(slot + 1);
  const std::optional<View> view = exact_view(value);
  if (!view || taken[slot] || buffer(base).kind == BufferKind::Input)
    return materialized(located(value), value->type, "copy of " + label(*value) + " to return");
  pin(base);
  taken[slot] = true;
  return *view;
}

void Lowering::lower_outputs() {
  std::vector<bool> is_alias(graph_.outputs.size());
  for (const graph::OutputAlias& alias : graph_.aliases) is_alias[static_cast<size_t>(alias.output)] = true;
  std::vector<bool> taken;
  for (size_t k = 0; k < graph_.outputs.size(); ++k) {
    const Value* value = graph_.outputs[k];
    OutputRef out;
    if (value != nullptr && value->type.defined && !is_alias[k]) out.view = output_view(value, taken);
    program_.outputs.push_back(std::move(out));
  }
}

void Lowering::lower_mutations() {
  for (const graph::Mutation& mutation : graph_.mutations) {
    const int32_t target = located(graph_.inputs[static_cast<size_t>(mutation.input)]).buffer;
    const Located& source = located(mutation.value);
    std::optional<View> view = linear_view(source);
    // What is written early must not be read late: contents of inputs are copied first.
    if (!view || buffer(source.buffer).kind == BufferKind::Input) {
      TensorType type = mutation.value->type;
      type.strides = graph::contiguous_strides(type.sizes);
      view = materialized(source, type, "copy of " + label(*mutation.value) + " to write back");
    }
    pin(view->buffer);
    program_.mutations.push_back({target, *view});
  }
}

Result<LoopProgram> lower(const graph::Graph& graph, std::unordered_set<const Node*> opaque) {
  for (;;) {
    try {
      return Lowering(graph, opaque).run();
    } catch (const NotLowered& failure) {
      return failure.why;
    } catch (const RuleFailed& failure) {
      warn_once("no kernel can be made for " + failure.node->op->name + ": " + failure.why);
      opaque.insert(failure.node);
    }
  }
}

Result<LoopProgram> lower(const graph::Graph& graph) { return lower(graph, {}); }

}  // namespace braze::loop
