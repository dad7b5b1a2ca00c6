#include "braze/schedule/tidy.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace braze::schedule {
namespace {

bool is_comparison(ScalarOp op) {
  return op == ScalarOp::Lt || op == ScalarOp::Le || op == ScalarOp::Gt || op == ScalarOp::Ge || op == ScalarOp::Eq ||
         op == ScalarOp::Ne;
}

bool needs_tidying(const Scalar* body) {
  bool found = false;
  visit(body, [&](const Scalar& s) {
    found |= s.op == ScalarOp::Load && (!s.bindings.empty() || !s.operands.empty());
    found |= is_comparison(s.op) && s.operands[0]->dtype == DType::I64;
  });
  return found;
}

// The value as an expression over axes and sizes, if it is one.
std::optional<Expr> as_expression(const Scalar* s) {
  if (s->dtype != DType::I64 && s->dtype != DType::Bool) return std::nullopt;
  const auto operand = [&](size_t k) { return as_expression(s->operands[k]); };
  switch (s->op) {
    case ScalarOp::Index: return s->indices[0];
    case ScalarOp::Constant: return Expr(s->integer);
    case ScalarOp::Cast: return s->dtype == DType::I64 ? operand(0) : std::nullopt;
    case ScalarOp::Add: case ScalarOp::Sub: case ScalarOp::Mul: {
      const auto a = operand(0), b = operand(1);
      if (!a || !b || s->dtype != DType::I64) return std::nullopt;
      return s->op == ScalarOp::Add ? *a + *b : s->op == ScalarOp::Sub ? *a - *b : *a * *b;
    }
    case ScalarOp::Lt: case ScalarOp::Le: case ScalarOp::Gt: case ScalarOp::Ge: case ScalarOp::Eq: case ScalarOp::Ne: {
      const auto p = index_predicate(*s);
      const auto known = p ? sym::try_decide(*p) : std::nullopt;
      return known ? std::optional(Expr(*known ? 1 : 0)) : std::nullopt;
    }
    case ScalarOp::Where: {
      const auto condition = operand(0);
      if (!condition || !condition->is_constant()) return std::nullopt;
      return operand(condition->constant() != 0 ? 1 : 2);
    }
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<Expr> index_predicate(const Scalar& s) {
  if (!is_comparison(s.op) || s.operands[0]->dtype != DType::I64) return std::nullopt;
  const auto a = as_expression(s.operands[0]), b = as_expression(s.operands[1]);
  if (!a || !b) return std::nullopt;
  switch (s.op) {
    case ScalarOp::Lt: return sym::lt(*a, *b);
    case ScalarOp::Le: return sym::le(*a, *b);
    case ScalarOp::Gt: return sym::gt(*a, *b);
    case ScalarOp::Ge: return sym::ge(*a, *b);
    case ScalarOp::Eq: return sym::eq(*a, *b);
    default: return sym::ne(*a, *b);
  }
}

namespace {

bool surely_below(Expr e, Expr extent) {
  return sym::try_decide(sym::le(0, e)).value_or(false) && sym::try_decide(sym::lt(e, extent)).value_or(false);
}

class Tidier {
 public:
  // `addresses`: loads have one index, an address; nothing is known of their bounds.
  Tidier(Work& work, bool addresses) : work_(work), make_(work.scalars), addresses_(addresses) {}

  // `masks`: conditions that hold wherever the value counts.
  const Scalar* run(const Scalar* s, std::vector<const Scalar*>& masks) {
    auto& known = known_[masks];
    if (const auto it = known.find(s); it != known.end()) return it->second;
    const Scalar* out = s;
    if (s->op == ScalarOp::Load) {
      out = load(s, masks);
    } else if (s->op == ScalarOp::Where) {
      const Scalar* condition = run(s->operands[0], masks);
      const size_t before = masks.size();
      add_conjuncts(s->operands[0], masks);
      if (condition != s->operands[0]) add_conjuncts(condition, masks);
      const Scalar* yes = run(s->operands[1], masks);
      masks.resize(before);
      const Scalar* no = run(s->operands[2], masks);
      out = make_.apply(ScalarOp::Where, s->dtype, {condition, yes, no});
    } else if (const auto p = index_predicate(*s); p && sym::try_decide(*p)) {
      out = make_.constant_int(DType::Bool, *sym::try_decide(*p) ? 1 : 0);
    } else if (!s->operands.empty()) {
      std::vector<const Scalar*> operands;
      for (const Scalar* operand : s->operands) operands.push_back(run(operand, masks));
      for (size_t k = 0; k < 2 && operands.size() == 2; ++k)
        if (is_neutral(s->op, *operands[k])) return known_[masks].emplace(s, operands[1 - k]).first->second;
      if (!std::ranges::equal(operands, s->operands)) out = make_.apply(s->op, s->dtype, operands);
    }
    known_[masks].emplace(s, out);
    return out;
  }

 private:
  static void add_conjuncts(const Scalar* condition, std::vector<const Scalar*>& masks) {
    if (condition->op == ScalarOp::BitAnd && condition->dtype == DType::Bool)
      for (const Scalar* operand : condition->operands) add_conjuncts(operand, masks);
    if (std::ranges::find(masks, condition) == masks.end()) masks.push_back(condition);
  }

  // Padding that never wins.
  static bool is_neutral(ScalarOp op, const Scalar& s) {
    if (s.op != ScalarOp::Constant || !is_floating(s.dtype) || !std::isinf(s.real)) return false;
    return op == ScalarOp::Maximum ? s.real < 0 : op == ScalarOp::Minimum && s.real > 0;
  }

  static bool holds(const Scalar* condition, const std::vector<const Scalar*>& masks) {
    if (std::ranges::find(masks, condition) != masks.end()) return true;
    return condition->op == ScalarOp::BitAnd && condition->dtype == DType::Bool &&
           std::ranges::all_of(condition->operands, [&](const Scalar* part) { return holds(part, masks); });
  }

  bool in_bounds(const Scalar& s) const {
    if (addresses_ || !s.bindings.empty()) return false;
    const Buffer& b = work_.buffer(s.buffer);
    for (size_t k = 0; k < s.indices.size(); ++k)
      if (!surely_below(s.indices[k], b.sizes[k])) return false;
    return true;
  }

  const Scalar* load(const Scalar* s, std::vector<const Scalar*>& masks) {
    std::vector<Expr> indices = s->indices;
    std::vector<Binding> bindings;
    for (const Binding& b : s->bindings) {
      const Scalar* value = run(b.value, masks);
      const auto e = as_expression(value);
      if (e && surely_below(*e, b.extent)) {
        replace(indices, b.symbol, *e);
      } else if (value == b.value) {
        bindings.push_back(b);
      } else {
        bindings.push_back(make_.bind(work_.context, value, b.extent));
        replace(indices, b.symbol, bindings.back().symbol);
      }
    }
    if (s->operands.empty())
      return bindings.size() == s->bindings.size() && indices == s->indices
                 ? s
                 : make_.load(s->buffer, s->dtype, std::move(indices), std::move(bindings));
    if (holds(s->operands[0], masks) && in_bounds(*s)) return make_.load(s->buffer, s->dtype, std::move(indices), std::move(bindings));
    const Scalar *mask = run(s->operands[0], masks), *otherwise = run(s->operands[1], masks);
    return make_.load_masked(s->buffer, s->dtype, std::move(indices), std::move(bindings), mask, otherwise);
  }

  static void replace(std::vector<Expr>& indices, Expr symbol, Expr value) {
    const std::pair<Expr, Expr> s[] = {{symbol, value}};
    for (Expr& e : indices) e = sym::substitute(e, s);
  }

  struct MasksHash {
    size_t operator()(const std::vector<const Scalar*>& masks) const {
      size_t h = masks.size();
      for (const Scalar* m : masks) h = h * 0x9e3779b97f4a7c15ull + m->id;
      return h;
    }
  };

  Work& work_;
  ScalarBuilder& make_;
  bool addresses_;
  std::unordered_map<std::vector<const Scalar*>, std::unordered_map<const Scalar*, const Scalar*>, MasksHash> known_;
};

}  // namespace

const Scalar* tidy(Work& work, const Scalar* body) {
  if (!needs_tidying(body)) return body;
  std::vector<const Scalar*> masks;
  return Tidier(work, false).run(body, masks);
}

const Scalar* decide_comparisons(Work& work, const Scalar* body) {
  std::vector<const Scalar*> masks;
  return Tidier(work, true).run(body, masks);
}

}  // namespace braze::schedule
