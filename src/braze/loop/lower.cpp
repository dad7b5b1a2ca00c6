#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "braze/loop/arithmetic.h"
#include "braze/loop/lowering.h"
#include "braze/support/check.h"
#include "braze/support/hash.h"

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

struct NotLowered {
  Unsupported why;
};

std::string label(const Value& value) {
  return "%" + (value.name.empty() ? std::to_string(value.id) : value.name);
}

std::string origin_of(const Node& node) {
  std::string out;
  for (const Value* result : node.results) out += (out.empty() ? "" : ", ") + label(*result);
  return out + (out.empty() ? "" : " = ") + node.op->name;
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

bool has_lowering(const graph::Op* op) { return rule_of(op) != nullptr; }

size_t Lowering::AxisKeyHash::operator()(const AxisKey& key) const {
  return mix(mix(hash_bytes(key.prefix), key.position), key.extent.hash());
}

Lowering::Lowering(const graph::Graph& graph) : graph_(graph) {
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

// ---- Terms and loads

Term Lowering::number(const Argument& argument, DType dtype) {
  if (argument.is<Expr>()) {
    const Expr e = argument.as<Expr>();
    if (const auto value = e.maybe_constant()) return constant_int(dtype, *value);
    return index(e).cast(dtype);
  }
  if (argument.is<bool>()) return constant_int(dtype, argument.as<bool>() ? 1 : 0);
  if (argument.is<double>()) return constant(dtype, argument.as<double>());
  throw NotLowered{{"a number was expected", ""}};
}

Expr Lowering::from_front(Expr e, Expr size) {
  const auto holds = [&](Expr predicate) { return env().known(predicate).value_or(false); };
  if (holds(sym::ge(e, 0))) return e;
  const Expr counted = holds(sym::lt(e, 0)) ? e + size : e + size * sym::lt(e, 0);
  return holds(sym::ge(counted, 0)) ? counted : sym::max(counted, 0);
}

Term Lowering::compare(ScalarOp op, Expr predicate, Expr a, Expr b) {
  if (const auto known = env().known(predicate)) return constant_int(DType::Bool, *known ? 1 : 0);
  return index(a).test(op, index(b));
}

namespace {

// Cheap and made of indices and constants alone (arange, full, eye, a causal mask): computed again in each user, which
// then sees what it is.
bool is_generated(const Scalar* body) {
  int nodes = 0;
  bool cheap = true;
  visit(body, [&](const Scalar& s) {
    ++nodes;
    switch (s.op) {
      case ScalarOp::Constant: case ScalarOp::Index: case ScalarOp::Cast: case ScalarOp::Neg: case ScalarOp::Add:
      case ScalarOp::Sub: case ScalarOp::Mul: case ScalarOp::Eq: case ScalarOp::Ne: case ScalarOp::Lt:
      case ScalarOp::Le: case ScalarOp::Gt: case ScalarOp::Ge: case ScalarOp::Where: case ScalarOp::BitAnd:
      case ScalarOp::BitOr: case ScalarOp::LogicalNot:
        break;
      default: cheap = false;
    }
  });
  return cheap && nodes <= 8;
}

// The expression that an integer value is, if it comes from indices alone. Factors are bounded, so that int64
// arithmetic does not wrap where expressions do not.
std::optional<Expr> as_index(const Scalar* s) {
  constexpr int64_t kBound = int64_t{1} << 20;
  switch (s->op) {
    case ScalarOp::Constant:
      if (is_floating(s->dtype) || s->integer > kBound || s->integer < -kBound) return std::nullopt;
      return Expr(s->integer);
    case ScalarOp::Index: return s->indices[0];
    case ScalarOp::Add: case ScalarOp::Sub: case ScalarOp::Mul: {
      if (s->dtype != DType::I64) return std::nullopt;
      const auto a = as_index(s->operands[0]), b = as_index(s->operands[1]);
      if (!a || !b) return std::nullopt;
      if (s->op == ScalarOp::Add) return *a + *b;
      if (s->op == ScalarOp::Sub) return *a - *b;
      return a->is_constant() || b->is_constant() ? std::optional(*a * *b) : std::nullopt;
    }
    default: return std::nullopt;
  }
}

}  // namespace

Term Lowering::finish_load(const Located& located, const Indices& at, std::vector<Binding> bindings, const Term* mask,
                           const Term* otherwise) {
  CHECK(at.size() == located.sizes.size());
  const Indices symbols = formals(located.sizes);
  Substitution substitution;
  for (size_t k = 0; k < at.size(); ++k)
    if (symbols[k].is_symbol() && symbols[k] != at[k]) substitution.emplace_back(symbols[k], at[k]);
  Indices indices;
  for (const Expr& e : located.at) indices.push_back(substitution.empty() ? e : sym::substitute(e, substitution));
  const Buffer& source = buffer(located.buffer);
  if (source.kind == BufferKind::Pointwise && is_generated(source.body)) {
    const Term value = generated(source, indices);
    return mask == nullptr ? value : where(*mask, value, *otherwise);
  }
  if (mask == nullptr)
    return term(scalars().load(located.buffer, source.dtype, std::move(indices), std::move(bindings)));
  return term(scalars().load_masked(located.buffer, source.dtype, std::move(indices), std::move(bindings),
                                    mask->scalar(), otherwise->scalar()));
}

Term Lowering::generated(const Buffer& source, const Indices& at) {
  Substitution substitution;
  for (size_t k = 0; k < at.size(); ++k) substitution.emplace_back(source.axes[k].symbol, at[k]);
  return term(scalars().rewrite(source.body, substitution));
}

Term Lowering::load(const Located& located, const Indices& at, std::vector<Binding> bindings) {
  return finish_load(located, at, std::move(bindings), nullptr, nullptr);
}

Term Lowering::load(const Value* value, const Indices& at, std::vector<Binding> bindings) {
  return finish_load(located(value), at, std::move(bindings), nullptr, nullptr);
}

Term Lowering::load_masked(const Value* value, const Indices& at, Term mask, Term otherwise,
                           std::vector<Binding> bindings) {
  return finish_load(located(value), at, std::move(bindings), &mask, &otherwise);
}

Term Lowering::operand(const Argument& argument, const Indices& at) {
  if (!argument.is<Value*>()) {
    if (argument.is<bool>()) return number(argument, DType::Bool);
    return number(argument, argument.is<double>() ? DType::F64 : DType::I64);
  }
  const Value* value = argument.as<Value*>();
  const size_t rank = value->type.sizes.size();
  CHECK(rank <= at.size());
  Indices own(at.end() - static_cast<ptrdiff_t>(rank), at.end());
  for (size_t k = 0; k < rank; ++k)
    if (value->type.sizes[k] == Expr(1)) own[k] = 0;
  return load(value, own);
}

Term Lowering::operand(const Argument& argument, const Indices& at, DType dtype) {
  return argument.is<Value*>() ? operand(argument, at).cast(dtype) : number(argument, dtype);
}

DType Lowering::common_dtype(std::initializer_list<const Argument*> arguments) const {
  std::optional<DType> dimensioned, zero_dim, wrapped;
  const auto join = [](std::optional<DType>& into, DType dtype) { into = into ? promote(*into, dtype) : dtype; };
  for (const Argument* argument : arguments) {
    if (argument->is<Value*>()) {
      const TensorType& type = argument->as<Value*>()->type;
      if (type.wrapped_number) {
        join(wrapped, is_floating(type.dtype) ? DType::F32 : type.dtype);
      } else {
        join(type.dim() > 0 ? dimensioned : zero_dim, type.dtype);
      }
    } else if (argument->is<Expr>()) {
      join(wrapped, DType::I64);
    } else if (argument->is<bool>()) {
      join(wrapped, DType::Bool);
    } else {
      join(wrapped, DType::F32);
    }
  }
  const auto combine = [](std::optional<DType> higher, std::optional<DType> lower) {
    if (!higher) return lower;
    if (!lower || is_floating(*higher)) return higher;
    if (*higher == DType::Bool || is_floating(*lower)) return std::optional(promote(*higher, *lower));
    return higher;
  };
  return combine(dimensioned, combine(zero_dim, wrapped)).value();
}

Expr Lowering::computed_index(Term value, Expr extent, bool wraps, std::vector<Binding>& bindings) {
  Term at = value.cast(DType::I64);
  if (auto e = as_index(at.scalar())) {
    const auto holds = [&](Expr predicate) { return env().known(predicate).value_or(false); };
    if (wraps && holds(sym::lt(*e, 0))) e = *e + extent;
    if (holds(sym::ge(*e, 0)) && holds(sym::lt(*e, extent))) return *e;
  }
  if (wraps) at = where(at < 0.0, at + index(extent), at);
  const Binding binding = scalars().bind(context(), at.scalar(), extent);
  if (std::ranges::find(bindings, binding) == bindings.end()) bindings.push_back(binding);
  return binding.symbol;
}

// ---- Buffers

std::vector<Axis> Lowering::axes(const Shape& sizes, std::string_view prefix) {
  std::vector<Axis> out;
  for (size_t k = 0; k < sizes.size(); ++k) {
    const auto [it, is_new] = axis_symbols_.try_emplace({std::string(prefix), k, sizes[k]});
    if (is_new) it->second = context().fresh_index(prefix, sizes[k] == Expr(0) ? Expr(1) : sizes[k]);
    out.push_back({it->second, sizes[k]});
  }
  return out;
}

Indices Lowering::indices_of(std::span<const Axis> axes) const {
  Indices out;
  for (const Axis& axis : axes) out.push_back(axis.extent == Expr(1) ? Expr(0) : axis.symbol);
  return out;
}

int32_t Lowering::new_buffer(BufferKind kind, const TensorType& type, std::string name) {
  const auto id = static_cast<int32_t>(program_.buffers.size());
  Buffer buffer;
  buffer.id = id;
  buffer.name = name.empty() ? "buf" + std::to_string(id) : std::move(name);
  buffer.kind = kind;
  buffer.dtype = type.dtype;
  buffer.device = type.device;
  buffer.sizes = type.sizes;
  buffer.strides = type.strides;
  program_.buffers.push_back(std::move(buffer));
  return id;
}

namespace {

Located whole(int32_t buffer, const Shape& sizes, Indices at) { return {buffer, sizes, std::move(at)}; }

TensorType contiguous_type(const Node& node, DType dtype, const Shape& sizes) {
  TensorType type;
  type.dtype = dtype;
  type.sizes = sizes;
  type.strides = graph::contiguous_strides(sizes);
  type.device = node.results.at(0)->type.device;
  return type;
}

}  // namespace

void Lowering::define(const Node& node, const std::function<void(Buffer&, const Indices&)>& fill, size_t result) {
  const Value* value = node.result(result);
  if (!is_used(value)) return;
  Buffer made;
  made.axes = axes(value->type.sizes);
  const Indices at = indices_of(made.axes);
  fill(made, at);   // may make buffers of its own
  located_[value] = add_buffer(std::move(made), value->type, node, at);
}

Located Lowering::add_buffer(Buffer&& made, const TensorType& type, const Node& node, const Indices& at) {
  const int32_t id = new_buffer(made.kind, type, "");
  Buffer& buffer = program_.buffers[static_cast<size_t>(id)];
  made.id = id;
  made.name = buffer.name;
  made.dtype = buffer.dtype;
  made.device = buffer.device;
  made.sizes = buffer.sizes;
  made.strides = buffer.strides;
  made.origins = {origin_of(node)};
  buffer = std::move(made);
  return whole(id, type.sizes, at);
}

void Lowering::pointwise(const Node& node, const Body& body, size_t result) {
  const DType dtype = node.result(result)->type.dtype;
  define(node, [&](Buffer& buffer, const Indices& at) { buffer.body = body(at).cast(dtype).scalar(); }, result);
}

Located Lowering::intermediate_buffer(const Node& node, DType dtype, const Shape& sizes,
                                      const std::function<void(Buffer&, const Indices&)>& fill) {
  Buffer made;
  made.axes = axes(sizes);
  const Indices at = indices_of(made.axes);
  fill(made, at);
  return add_buffer(std::move(made), contiguous_type(node, dtype, sizes), node, at);
}

Located Lowering::intermediate(const Node& node, DType dtype, const Shape& sizes, const Body& body) {
  return intermediate_buffer(node, dtype, sizes, [&](Buffer& buffer, const Indices& at) {
    buffer.body = body(at).cast(dtype).scalar();
  });
}

namespace {

// A reduction over extents of 1 is its body.
Term reduced_alone(Lowering& l, ReduceOp op, Term body) {
  switch (op) {
    case ReduceOp::Sum: return is_floating(body.dtype()) ? body + 0.0 : body;
    case ReduceOp::ArgMax: case ReduceOp::ArgMin: return l.constant_int(DType::I64, 0);
    case ReduceOp::Prod: case ReduceOp::Max: case ReduceOp::Min: case ReduceOp::Any: case ReduceOp::All:
    case ReduceOp::Xor:
      return body;
  }
  return body;
}

}  // namespace

Located Lowering::reduced(const Node& node, const ReductionSpec& spec, bool keepdim, const Body& body) {
  const auto is_reduced = [&](size_t k) { return std::ranges::find(spec.dims, static_cast<int64_t>(k)) != spec.dims.end(); };
  Shape kept, gone;
  for (size_t k = 0; k < spec.sizes.size(); ++k) {
    if (is_reduced(k)) gone.push_back(spec.sizes[k]);
    if (!is_reduced(k) || keepdim) kept.push_back(is_reduced(k) ? Expr(1) : spec.sizes[k]);
  }
  const std::vector<Axis> own_axes = axes(kept), reduce_axes = axes(gone, "r");
  const Indices at = indices_of(own_axes), along = indices_of(reduce_axes);
  Indices operand_at;
  size_t next_kept = 0, next_gone = 0;
  for (size_t k = 0; k < spec.sizes.size(); ++k) {
    if (is_reduced(k)) {
      operand_at.push_back(along[next_gone++]);
      if (keepdim) ++next_kept;
    } else {
      operand_at.push_back(at[next_kept++]);
    }
  }
  const Term value = body(operand_at).cast(spec.accumulate);
  const bool degenerate = std::ranges::all_of(gone, [](Expr e) { return e == Expr(1); });
  const int32_t id = new_buffer(degenerate ? BufferKind::Pointwise : BufferKind::Reduction,
                                contiguous_type(node, spec.dtype, kept), "");
  Buffer& made = program_.buffers[static_cast<size_t>(id)];
  made.axes = own_axes;
  made.origins = {origin_of(node)};
  if (degenerate) {
    made.body = reduced_alone(*this, spec.op, value).cast(spec.dtype).scalar();
  } else {
    made.reduce_axes = reduce_axes;
    made.body = value.scalar();
    made.reduce = spec.op;
    made.accumulate = spec.accumulate;
  }
  return whole(id, kept, at);
}

void Lowering::reduction(const Node& node, const ReductionSpec& spec, const Body& body, size_t result) {
  const Value* value = node.result(result);
  if (!is_used(value)) return;
  const bool keepdim = value->type.sizes.size() == spec.sizes.size() && !spec.dims.empty();
  Located made = reduced(node, spec, keepdim, body);
  Buffer& target = program_.buffers[static_cast<size_t>(made.buffer)];
  CHECK(target.dtype == value->type.dtype);
  CHECK(target.sizes.size() == value->type.sizes.size());
  target.strides = value->type.strides;
  located_[value] = std::move(made);
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
    located_[value] = whole(id, value->type.sizes, formals(value->type.sizes));
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
  if (!lower_by_rule(node)) lower_extern(node);
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
    located_[result] = whole(id, result->type.sizes, formals(result->type.sizes));
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
    located_[value] = whole(made.buffer, value->type.sizes, formals(value->type.sizes));
  return made;
}

bool Lowering::own_storage(const Value* value, const Node& user) {
  if (!value->type.is_strided) return false;
  const std::optional<View> view = exact_view(value);
  if (view && view->offset + buffer(view->buffer).offset == value->type.offset) return true;
  if (!is_kernel_dtype(value->type.dtype)) return false;
  const View made = materialized(located(value), value->type, "storage of " + origin_of(user));
  located_[value] = whole(made.buffer, value->type.sizes, formals(value->type.sizes));
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

Result<LoopProgram> lower(const graph::Graph& graph) {
  try {
    return Lowering(graph).run();
  } catch (const NotLowered& failure) {
    return failure.why;
  }
}

}  // namespace braze::loop
