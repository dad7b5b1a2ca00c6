// Terms that rules are made of: numbers, operands, loads, computed indices.
#include <algorithm>

#include "braze/loop/arithmetic.h"
#include "braze/loop/lowering.h"
#include "braze/support/check.h"
#include "braze/sym/range.h"

namespace braze::loop {

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

// Bounds of an integer that is made of indices.
sym::Range range_of(const Scalar* s) {
  const auto operand = [&](size_t i) { return range_of(s->operands[i]); };
  if (is_floating(s->dtype)) return {};
  switch (s->op) {
    case ScalarOp::Constant: return {s->integer, s->integer};
    case ScalarOp::Index: return s->indices[0].range();
    case ScalarOp::Cast: return is_floating(s->operands[0]->dtype) || size_of(s->dtype) < 8 ? sym::Range() : operand(0);
    case ScalarOp::Add: return sym::add(operand(0), operand(1));
    case ScalarOp::Sub: return sym::add(operand(0), sym::scale(operand(1), -1));
    case ScalarOp::Mul: return sym::multiply(operand(0), operand(1));
    case ScalarOp::Remainder: return sym::mod(operand(0), operand(1));
    case ScalarOp::Minimum: return sym::min(operand(0), operand(1));
    case ScalarOp::Maximum: return sym::max(operand(0), operand(1));
    case ScalarOp::Where: {
      const sym::Range a = operand(1), b = operand(2);
      return {std::min(a.low, b.low), std::max(a.high, b.high)};
    }
    default: return {};
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
  // A computed index that no place depends on, in a dimension of one element or one that is expanded, is dropped; one
  // that is not known to be in range must still be checked, which ATen does.
  std::erase_if(bindings, [&](const Binding& binding) {
    if (std::ranges::any_of(indices, [&](Expr e) { return sym::depends_on(e, binding.symbol); })) return false;
    const sym::Range range = range_of(binding.value);
    const bool in_range = range.low >= 0 && range.high != sym::kInf &&
                          env().known(sym::lt(range.high, binding.extent)).value_or(false);
    if (!in_range) throw NotLowered{{"an index into a dimension of one element", ""}};
    return true;
  });
  if (bindings.empty() && source.kind == BufferKind::Pointwise && is_generated(source.body)) {
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

Term Lowering::load_masked(const Located& located, const Indices& at, Term mask, Term otherwise) {
  return finish_load(located, at, {}, &mask, &otherwise);
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
    if (is_one(value->type.sizes[k])) own[k] = 0;
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

}  // namespace braze::loop
