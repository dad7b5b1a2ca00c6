#include "braze/loop/scalar.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "braze/loop/arithmetic.h"
#include "braze/support/check.h"
#include "braze/support/hash.h"

namespace braze::loop {
namespace {

struct OpRow {
  const char* text;
  int arity;
};
constexpr OpRow kOps[] = {
#define SCALAR_OP(name, text, arity) {text, arity},
#include "braze/loop/scalar_ops.def"
#undef SCALAR_OP
};

uint64_t hash_of(const Scalar& s) {
  uint64_t h = mix(static_cast<uint64_t>(s.op), static_cast<uint64_t>(s.dtype));
  for (const Scalar* operand : s.operands) h = mix(h, operand->id);
  h = mix(h, std::bit_cast<uint64_t>(s.real));
  h = mix(h, static_cast<uint64_t>(s.integer));
  h = mix(h, static_cast<uint64_t>(static_cast<int64_t>(s.buffer)));
  for (const Expr& e : s.indices) h = mix(h, e.hash());
  for (const Binding& b : s.bindings) h = mix(mix(h, b.symbol.hash()), b.value->id);
  return h;
}

bool same(const Scalar& a, const Scalar& b) {
  return a.op == b.op && a.dtype == b.dtype && a.operands == b.operands &&
         std::bit_cast<uint64_t>(a.real) == std::bit_cast<uint64_t>(b.real) && a.integer == b.integer &&
         a.buffer == b.buffer && a.indices == b.indices && a.bindings == b.bindings;
}

Number number_in(const Scalar& constant) { return {constant.real, constant.integer}; }

bool is_constant(const Scalar* s) { return s->op == ScalarOp::Constant; }

bool equals(const Scalar* s, double value) {
  return is_constant(s) && as_double(number_in(*s), s->dtype) == value;
}

// Ops whose result a kernel computes to the last bit as the host does.
bool is_exact(ScalarOp op) {
  switch (op) {
    case ScalarOp::Cast: case ScalarOp::Bitcast: case ScalarOp::Neg: case ScalarOp::Abs: case ScalarOp::Sign:
    case ScalarOp::Floor: case ScalarOp::Ceil: case ScalarOp::Trunc: case ScalarOp::Round: case ScalarOp::Sqrt:
    case ScalarOp::Reciprocal: case ScalarOp::IsNan: case ScalarOp::IsInf: case ScalarOp::SignBit:
    case ScalarOp::LogicalNot: case ScalarOp::BitNot: case ScalarOp::Add: case ScalarOp::Sub: case ScalarOp::Mul:
    case ScalarOp::Div: case ScalarOp::CopySign: case ScalarOp::Minimum: case ScalarOp::Maximum: case ScalarOp::Fmin:
    case ScalarOp::Fmax: case ScalarOp::Eq: case ScalarOp::Ne: case ScalarOp::Lt: case ScalarOp::Le:
    case ScalarOp::Gt: case ScalarOp::Ge: case ScalarOp::BitAnd: case ScalarOp::BitOr: case ScalarOp::BitXor:
    case ScalarOp::ShiftLeft: case ScalarOp::ShiftRight: case ScalarOp::Where: case ScalarOp::Fma:
      return true;
    default: return false;
  }
}

bool is_integer_division(ScalarOp op, DType dtype) {
  if (is_floating(dtype)) return false;
  return op == ScalarOp::FloorDiv || op == ScalarOp::TruncDiv || op == ScalarOp::Remainder || op == ScalarOp::Fmod;
}

bool is_negative_zero(const Scalar* s) {
  return is_constant(s) && is_floating(s->dtype) && s->real == 0 && std::signbit(s->real);
}

}  // namespace

const char* text_of(ScalarOp op) { return kOps[static_cast<size_t>(op)].text; }
int arity_of(ScalarOp op) { return kOps[static_cast<size_t>(op)].arity; }

struct ScalarBuilder::Impl {
  Arena arena;
  std::unordered_multimap<uint64_t, const Scalar*> known;
  std::unordered_multimap<uint64_t, Binding> bindings;
  uint32_t next_id = 0;

  const Scalar* intern(Scalar&& s) {
    const uint64_t h = hash_of(s);
    for (auto [it, end] = known.equal_range(h); it != end; ++it)
      if (same(*it->second, s)) return it->second;
    s.id = next_id++;
    const Scalar* made = arena.make<Scalar>(std::move(s));
    known.emplace(h, made);
    return made;
  }
};

ScalarBuilder::ScalarBuilder() : impl_(std::make_unique<Impl>()) {}
ScalarBuilder::~ScalarBuilder() = default;

const Scalar* ScalarBuilder::constant(DType dtype, double value) {
  const Number n = number_of(dtype, value);
  Scalar s{.op = ScalarOp::Constant, .dtype = dtype};
  s.real = n.real;
  s.integer = n.integer;
  return impl_->intern(std::move(s));
}

const Scalar* ScalarBuilder::constant_int(DType dtype, int64_t value) {
  const Number n = number_of_int(dtype, value);
  Scalar s{.op = ScalarOp::Constant, .dtype = dtype};
  s.real = n.real;
  s.integer = n.integer;
  return impl_->intern(std::move(s));
}

const Scalar* ScalarBuilder::index(Expr e) {
  if (const auto value = e.maybe_constant()) return constant_int(DType::I64, *value);
  Scalar s{.op = ScalarOp::Index, .dtype = DType::I64};
  s.indices = {e};
  return impl_->intern(std::move(s));
}

namespace {

// Keeps the bindings that an index really uses, also through the values of other bindings.
void drop_unused(std::vector<Binding>& bindings, const std::vector<Expr>& indices) {
  std::erase_if(bindings, [&](const Binding& binding) {
    return std::ranges::none_of(indices, [&](Expr e) { return sym::depends_on(e, binding.symbol); });
  });
}

}  // namespace

const Scalar* ScalarBuilder::load(int32_t buffer, DType dtype, std::vector<Expr> indices,
                                  std::vector<Binding> bindings) {
  drop_unused(bindings, indices);
  Scalar s{.op = ScalarOp::Load, .dtype = dtype};
  s.buffer = buffer;
  s.indices = std::move(indices);
  s.bindings = std::move(bindings);
  return impl_->intern(std::move(s));
}

const Scalar* ScalarBuilder::load_masked(int32_t buffer, DType dtype, std::vector<Expr> indices,
                                         std::vector<Binding> bindings, const Scalar* mask, const Scalar* otherwise) {
  CHECK(mask->dtype == DType::Bool);
  CHECK(otherwise->dtype == dtype);
  if (is_constant(mask)) {
    if (mask->integer == 0) return otherwise;
    return load(buffer, dtype, std::move(indices), std::move(bindings));
  }
  drop_unused(bindings, indices);
  Scalar s{.op = ScalarOp::Load, .dtype = dtype};
  s.operands = {mask, otherwise};
  s.buffer = buffer;
  s.indices = std::move(indices);
  s.bindings = std::move(bindings);
  return impl_->intern(std::move(s));
}

const Scalar* ScalarBuilder::apply(ScalarOp op, DType dtype, std::initializer_list<const Scalar*> operands) {
  return apply(op, dtype, std::span(operands.begin(), operands.size()));
}

namespace {

// A cheaper equal: exact identities only (x + 0.0 is none: it turns -0.0 into 0.0).
const Scalar* simplify(ScalarBuilder& builder, ScalarOp op, DType dtype, std::span<const Scalar* const> v) {
  const bool real = is_floating(dtype);
  switch (op) {
    case ScalarOp::Cast:
      if (v[0]->op == ScalarOp::Cast && represents_all(v[0]->dtype, v[0]->operands[0]->dtype))
        return builder.cast(v[0]->operands[0], dtype);
      break;
    case ScalarOp::Add:
      for (size_t k = 0; k < 2; ++k)
        if (real ? is_negative_zero(v[k]) : equals(v[k], 0)) return v[1 - k];
      break;
    case ScalarOp::Sub:
      if (equals(v[1], 0) && !is_negative_zero(v[1])) return v[0];
      break;
    case ScalarOp::Mul:
      for (size_t k = 0; k < 2; ++k)
        if (equals(v[k], 1)) return v[1 - k];
      if (!real)
        for (size_t k = 0; k < 2; ++k)
          if (equals(v[k], 0)) return v[k];
      break;
    case ScalarOp::Div: case ScalarOp::TruncDiv: case ScalarOp::FloorDiv:
      if (equals(v[1], 1) && (op == ScalarOp::Div || !real)) return v[0];
      break;
    case ScalarOp::Fma:
      if (equals(v[0], 1)) return builder.apply(ScalarOp::Add, dtype, {v[1], v[2]});
      if (equals(v[1], 1)) return builder.apply(ScalarOp::Add, dtype, {v[0], v[2]});
      break;
    case ScalarOp::Where:
      if (is_constant(v[0])) return v[0]->integer != 0 ? v[1] : v[2];
      if (v[1] == v[2]) return v[1];
      break;
    case ScalarOp::BitAnd: case ScalarOp::BitOr:
      if (v[0] == v[1]) return v[0];
      if (dtype == DType::Bool)
        for (size_t k = 0; k < 2; ++k)
          if (is_constant(v[k])) return (v[k]->integer != 0) == (op == ScalarOp::BitAnd) ? v[1 - k] : v[k];
      break;
    case ScalarOp::LogicalNot:
      if (v[0]->dtype == DType::Bool && v[0]->op == ScalarOp::LogicalNot && v[0]->operands[0]->dtype == DType::Bool)
        return v[0]->operands[0];
      break;
    default: break;
  }
  return nullptr;
}

}  // namespace

const Scalar* ScalarBuilder::apply(ScalarOp op, DType dtype, std::span<const Scalar* const> operands) {
  CHECK(static_cast<int>(operands.size()) == arity_of(op), text_of(op));
  if (const Scalar* simpler = simplify(*this, op, dtype, operands)) return simpler;
  const bool constant_operands = std::ranges::all_of(operands, is_constant);
  if (constant_operands && is_exact(op) && !operands.empty()) {
    std::vector<Number> values;
    for (const Scalar* operand : operands) values.push_back(number_in(*operand));
    const Number result = compute(op, dtype, operands.back()->dtype, values);
    Scalar s{.op = ScalarOp::Constant, .dtype = dtype};
    s.real = result.real;
    s.integer = result.integer;
    return impl_->intern(std::move(s));
  }
  if (constant_operands && is_integer_division(op, dtype) && operands[1]->integer != 0) {
    const Number values[] = {number_in(*operands[0]), number_in(*operands[1])};
    return constant_int(dtype, compute(op, dtype, dtype, values).integer);
  }
  Scalar s{.op = op, .dtype = dtype};
  s.operands.assign(operands.begin(), operands.end());
  return impl_->intern(std::move(s));
}

const Scalar* ScalarBuilder::cast(const Scalar* value, DType dtype) {
  return value->dtype == dtype ? value : apply(ScalarOp::Cast, dtype, {value});
}

Binding ScalarBuilder::bind(sym::Context& context, const Scalar* value, Expr extent) {
  CHECK(value->dtype == DType::I64);
  const uint64_t h = mix(mix(value->id, extent.hash()), std::bit_cast<uint64_t>(&context));
  for (auto [it, end] = impl_->bindings.equal_range(h); it != end; ++it) {
    const Binding& known = it->second;
    if (known.value == value && known.extent == extent && known.symbol.node()->context == &context) return known;
  }
  const Binding made{context.fresh_index("t", extent), value, extent};
  impl_->bindings.emplace(h, made);
  return made;
}

namespace {

sym::Context* context_of(std::span<const std::pair<Expr, Expr>> symbols, Expr otherwise) {
  for (const auto& [from, to] : symbols)
    if (to.node() != nullptr) return to.node()->context;
  return otherwise.node()->context;
}

struct Rewriter {
  ScalarBuilder& builder;
  std::span<const std::pair<Expr, Expr>> symbols;
  const ScalarBuilder::ReplaceLoad& replace_load;
  std::unordered_map<const Scalar*, const Scalar*> done = {};

  // Rewrites bindings and returns the substitution for the indices below them: a binding whose value changed gets a
  // symbol of its own, so that one symbol never means two values.
  std::vector<std::pair<Expr, Expr>> rewrite_bindings(std::vector<Binding>& bindings) {
    std::vector<std::pair<Expr, Expr>> all(symbols.begin(), symbols.end());
    for (Binding& b : bindings) {
      const Scalar* value = rewrite(b.value);
      const Expr extent = sym::substitute(b.extent, symbols);
      const auto given = std::ranges::find_if(symbols, [&](const auto& pair) { return pair.first == b.symbol; });
      if (given != symbols.end()) {
        b = {given->second, value, extent};
      } else if (value != b.value || extent != b.extent) {
        const Binding fresh = builder.bind(*context_of(symbols, b.symbol), value, extent);
        all.emplace_back(b.symbol, fresh.symbol);
        b = fresh;
      }
    }
    return all;
  }

  const Scalar* rewrite_load(const Scalar& s) {
    std::vector<Binding> bindings = s.bindings;
    const auto all = rewrite_bindings(bindings);
    std::vector<Expr> indices;
    for (const Expr& e : s.indices) indices.push_back(sym::substitute(e, all));
    const Scalar* replaced = replace_load ? replace_load(s, indices, bindings) : nullptr;
    if (s.operands.empty())
      return replaced != nullptr ? replaced : builder.load(s.buffer, s.dtype, std::move(indices), std::move(bindings));
    const Scalar* mask = rewrite(s.operands[0]);
    const Scalar* otherwise = rewrite(s.operands[1]);
    if (replaced == nullptr)
      return builder.load_masked(s.buffer, s.dtype, std::move(indices), std::move(bindings), mask, otherwise);
    return builder.apply(ScalarOp::Where, s.dtype, {mask, mask_loads(replaced, mask), otherwise});
  }

  // The value that took a masked load's place must not read memory where the mask is false either.
  const Scalar* mask_loads(const Scalar* value, const Scalar* mask) {
    std::unordered_map<const Scalar*, const Scalar*> masked;
    const auto walk = [&](auto&& self, const Scalar* s) -> const Scalar* {
      if (const auto it = masked.find(s); it != masked.end()) return it->second;
      std::vector<const Scalar*> operands;
      for (const Scalar* operand : s->operands) operands.push_back(self(self, operand));
      const Scalar* out = s;
      if (s->op == ScalarOp::Load) {
        std::vector<Binding> bindings = s->bindings;
        std::vector<Expr> indices = s->indices;
        for (Binding& b : bindings) {
          const Scalar* inner = self(self, b.value);
          if (inner == b.value) continue;
          const Binding fresh = builder.bind(*b.symbol.node()->context, inner, b.extent);
          const std::pair<Expr, Expr> step[] = {{b.symbol, fresh.symbol}};
          for (Expr& e : indices) e = sym::substitute(e, step);
          b = fresh;
        }
        const Scalar* both =
            operands.empty() ? mask : builder.apply(ScalarOp::BitAnd, DType::Bool, {mask, operands[0]});
        const Scalar* otherwise = operands.empty() ? builder.constant_int(s->dtype, 0) : operands[1];
        out = builder.load_masked(s->buffer, s->dtype, std::move(indices), std::move(bindings), both, otherwise);
      } else if (!s->operands.empty()) {
        out = builder.apply(s->op, s->dtype, operands);
      }
      masked.emplace(s, out);
      return out;
    };
    return walk(walk, value);
  }

  const Scalar* rewrite(const Scalar* s) {
    if (const auto it = done.find(s); it != done.end()) return it->second;
    const Scalar* out = s;
    if (s->op == ScalarOp::Load) {
      out = rewrite_load(*s);
    } else if (s->op == ScalarOp::Index) {
      out = builder.index(sym::substitute(s->indices[0], symbols));
    } else if (s->op == ScalarOp::Constant) {
      out = builder.constant_like(*s);
    } else if (!s->operands.empty()) {
      std::vector<const Scalar*> operands;
      for (const Scalar* operand : s->operands) operands.push_back(rewrite(operand));
      out = builder.apply(s->op, s->dtype, operands);
    } else {
      out = builder.reduced(s->dtype, s->integer);
    }
    done.emplace(s, out);
    return out;
  }
};

}  // namespace

const Scalar* ScalarBuilder::constant_like(const Scalar& constant) {
  Scalar s{.op = ScalarOp::Constant, .dtype = constant.dtype};
  s.real = constant.real;
  s.integer = constant.integer;
  return impl_->intern(std::move(s));
}

const Scalar* ScalarBuilder::reduced(DType dtype, int64_t number) {
  Scalar s{.op = ScalarOp::Reduced, .dtype = dtype};
  s.integer = number;
  return impl_->intern(std::move(s));
}

const Scalar* ScalarBuilder::rewrite(const Scalar* value, std::span<const std::pair<Expr, Expr>> symbols,
                                     const ReplaceLoad& replace_load) {
  return Rewriter{*this, symbols, replace_load}.rewrite(value);
}

void visit(const Scalar* value, const std::function<void(const Scalar&)>& f) {
  std::unordered_set<const Scalar*> seen;
  const auto walk = [&](auto&& self, const Scalar* s) -> void {
    if (!seen.insert(s).second) return;
    for (const Scalar* operand : s->operands) self(self, operand);
    for (const Binding& binding : s->bindings) self(self, binding.value);
    f(*s);
  };
  walk(walk, value);
}

}  // namespace braze::loop
