// Walks over expressions: substitution, evaluation, symbols, coefficients.
#include "braze/sym/expr.h"

#include <algorithm>
#include <unordered_map>

#include "braze/support/check.h"
#include "braze/sym/range.h"
#include "braze/sym/terms.h"

namespace braze::sym {
namespace {

// Builds op(operands) through the simplifier.
Expr rebuild(Op op, std::span<const Expr> operands) {
  switch (op) {
    case Op::Add: {
      Terms terms;
      for (const Expr& operand : operands) append_terms(terms, operand);
      for (const Expr& operand : operands)
        if (!operand.is_constant()) return sum_of(context_of(operand), terms);
      normalize(terms);
      return terms.empty() ? 0 : terms[0].coefficient;
    }
    case Op::Mul:
      return product(operands);
    case Op::FloorDiv:
      return floor_div(operands[0], operands[1]);
    case Op::Mod:
      return mod(operands[0], operands[1]);
    case Op::Min:
    case Op::Max: {
      Expr out = operands[0];
      for (const Expr& operand : operands.subspan(1)) out = op == Op::Min ? min(out, operand) : max(out, operand);
      return out;
    }
    case Op::Eq:
      return eq(operands[0], operands[1]);
    case Op::Ne:
      return ne(operands[0], operands[1]);
    case Op::Lt:
      return lt(operands[0], operands[1]);
    case Op::Le:
      return le(operands[0], operands[1]);
    case Op::And:
    case Op::Or: {
      Expr out = op == Op::And ? 1 : 0;
      for (const Expr& operand : operands) out = op == Op::And ? logical_and(out, operand) : logical_or(out, operand);
      return out;
    }
    case Op::Not:
      return logical_not(operands[0]);
    case Op::Constant:
    case Op::Symbol:
      break;
  }
  CHECK(false, "not an operation");
  return 0;
}

struct Substitution {
  std::span<const std::pair<Expr, Expr>> replacements;
  uint64_t mask = 0;
  std::unordered_map<const Node*, Expr> done;

  Expr operator()(Expr e) {
    if (e.is_constant() || (e.node()->symbol_mask & mask) == 0) return e;
    if (e.is_symbol()) {
      for (const auto& [from, to] : replacements)
        if (from == e) return to;
      return e;
    }
    if (const auto it = done.find(e.node()); it != done.end()) return it->second;
    SmallVector<Expr, 8> operands;
    bool changed = false;
    for (const Expr& operand : e.operands()) {
      operands.push_back((*this)(operand));
      changed = changed || operands.back() != operand;
    }
    const Expr out = changed ? rebuild(e.op(), {operands.data(), operands.size()}) : e;
    done.emplace(e.node(), out);
    return out;
  }
};

}  // namespace

Expr substitute(Expr e, std::span<const std::pair<Expr, Expr>> replacements) {
  if (e.is_constant() || replacements.empty()) return e;
  Substitution substitution{replacements, 0, {}};
  for (const auto& [from, to] : replacements) {
    CHECK(from.is_symbol());
    substitution.mask |= from.node()->symbol_mask;
  }
  return substitution(e);
}

int64_t evaluate(Expr e, const std::function<int64_t(Expr symbol)>& value_of) {
  if (e.is_constant()) return e.constant();
  if (e.is_symbol()) return value_of(e);
  const std::span<const Expr> operands = e.operands();
  int64_t value = evaluate(operands[0], value_of);
  if (e.op() == Op::Not) return value == 0 ? 1 : 0;
  for (const Expr& operand : operands.subspan(1)) {
    const int64_t next = evaluate(operand, value_of);
    switch (e.op()) {
      case Op::Add:
        value = checked_add(value, next);
        break;
      case Op::Mul:
        value = checked_multiply(value, next);
        break;
      case Op::FloorDiv:
        CHECK(next != 0);
        value = floor_div_int(value, next);
        break;
      case Op::Mod:
        CHECK(next != 0);
        value = mod_int(value, next);
        break;
      case Op::Min:
        value = std::min(value, next);
        break;
      case Op::Max:
        value = std::max(value, next);
        break;
      case Op::Eq:
        value = value == next ? 1 : 0;
        break;
      case Op::Ne:
        value = value != next ? 1 : 0;
        break;
      case Op::Lt:
        value = value < next ? 1 : 0;
        break;
      case Op::Le:
        value = value <= next ? 1 : 0;
        break;
      case Op::And:
        value = value != 0 && next != 0 ? 1 : 0;
        break;
      case Op::Or:
        value = value != 0 || next != 0 ? 1 : 0;
        break;
      case Op::Constant:
      case Op::Symbol:
      case Op::Not:
        break;
    }
  }
  return value;
}

void collect_symbols(Expr e, std::vector<Expr>& out) {
  if (e.is_constant()) return;
  if (e.is_symbol()) {
    if (std::find(out.begin(), out.end(), e) == out.end()) out.push_back(e);
    return;
  }
  for (const Expr& operand : e.operands()) collect_symbols(operand, out);
}

bool depends_on(Expr e, Expr symbol) {
  if (e.is_constant() || symbol.is_constant()) return false;
  if ((e.node()->symbol_mask & symbol.node()->symbol_mask) == 0) return false;
  if (e.is_symbol()) return e == symbol;
  return std::ranges::any_of(e.operands(), [&](Expr operand) { return depends_on(operand, symbol); });
}

std::optional<Expr> coefficient(Expr e, Expr symbol) {
  if (!depends_on(e, symbol)) return Expr(0);
  Terms terms, linear;
  append_terms(terms, e);
  for (const Term& term : terms) {
    if (term.monomial == nullptr || !depends_on(Expr(term.monomial), symbol)) continue;
    const Node* rest = nullptr;
    if (!divide_monomials(term.monomial, symbol.node(), rest)) return std::nullopt;
    if (rest != nullptr && depends_on(Expr(rest), symbol)) return std::nullopt;
    linear.push_back({term.coefficient, rest});
  }
  return sum_of(context_of(symbol), linear);
}

}  // namespace braze::sym
