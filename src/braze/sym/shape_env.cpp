#include "braze/sym/shape_env.h"

#include "braze/support/check.h"
#include "braze/sym/range.h"
#include "braze/sym/terms.h"

namespace braze::sym {

ShapeEnv::ShapeEnv() : context_(std::make_unique<Context>()) {}

Expr ShapeEnv::new_size(int64_t hint, std::string name, Range range) {
  const Expr symbol = context_->fresh("s", range);
  return declare(symbol.symbol_name(), range, hint, std::move(name));
}

Expr ShapeEnv::declare(std::string_view symbol_name, Range range, int64_t hint, std::string name) {
  const Expr symbol = context_->symbol(symbol_name, range);
  CHECK(contains(range, hint), "hint of " << symbol);
  CHECK(number_of_.emplace(symbol, symbols_.size()).second, "size symbol declared twice: " << symbol);
  symbols_.push_back(symbol);
  hints_.push_back(hint);
  names_.push_back(std::move(name));
  ranges_.push_back(range);
  return symbol;
}

int64_t ShapeEnv::hint(Expr e) const {
  if (e.is_constant()) return e.constant();
  return evaluate(e, [&](Expr symbol) {
    const auto it = number_of_.find(symbol);
    CHECK(it != number_of_.end(), "no size symbol of this trace: " << symbol);
    return hints_[it->second];
  });
}

std::optional<bool> ShapeEnv::decide(Expr p) const {
  if (const auto decided = try_decide(p)) return decided;
  if (facts_.contains(p)) return true;
  if (facts_.contains(logical_not(p))) return false;
  return std::nullopt;
}

std::optional<bool> ShapeEnv::known(Expr predicate) const {
  if (predicate.is_constant()) return predicate.constant() != 0;
  return decide(simplify(predicate));
}

bool ShapeEnv::guard(Expr predicate, Reason reason) {
  if (predicate.is_constant()) return predicate.constant() != 0;
  const Expr simplified = simplify(predicate);
  if (const auto decided = decide(simplified)) return *decided;
  const bool value = hint(simplified) != 0;
  assume(value ? simplified : logical_not(simplified), std::move(reason));
  return value;
}

void ShapeEnv::assume(Expr predicate, Reason reason) {
  if (predicate.is_constant() || facts_.contains(predicate)) return;
  guards_.push_back({predicate, std::move(reason)});
  learn(predicate);
}

int64_t ShapeEnv::specialize(Expr e, Reason reason) {
  if (e.is_constant()) return e.constant();
  const Expr simplified = simplify(e);
  if (simplified.is_constant()) return simplified.constant();
  const int64_t value = hint(simplified);
  assume(eq(simplified, value), std::move(reason));
  return value;
}

Expr ShapeEnv::simplify(Expr e) const {
  if (e.is_constant() || replacements_.empty()) return e;
  return substitute(e, replacements_);
}

void ShapeEnv::learn(Expr predicate) {
  if (predicate.is_constant()) return;
  facts_.insert(predicate);
  const std::span<const Expr> operands = predicate.operands();
  switch (predicate.op()) {
    case Op::And:
      for (const Expr& operand : operands) learn(operand);
      return;
    case Op::Eq: {
      // Solve for the youngest symbol that stands alone with coefficient 1 or -1.
      const Expr difference = operands[0] - operands[1];
      for (size_t i = symbols_.size(); i-- > 0;) {
        const std::optional<Expr> c = coefficient(difference, symbols_[i]);
        if (!c || (*c != Expr(1) && *c != Expr(-1))) continue;
        const Expr value = *c == Expr(1) ? symbols_[i] - difference : symbols_[i] + difference;
        if (value.is_symbol()) {
          const Range both = intersect(value.range(), symbols_[i].range());
          if (both.low <= both.high) context_->set_range(value, both);
        }
        const std::pair<Expr, Expr> replacement{symbols_[i], value};
        for (auto& [from, to] : replacements_) to = substitute(to, {&replacement, 1});
        replacements_.push_back(replacement);
        return;
      }
      return;
    }
    case Op::Le:
    case Op::Lt: {
      // c*s + k <= 0 narrows the range of s.
      Terms terms;
      append_terms(terms, operands[0] - operands[1] + (predicate.op() == Op::Lt ? 1 : 0));
      const int64_t constant = take_constant(terms);
      if (terms.size() != 1 || !number_of_.contains(Expr(terms[0].monomial))) return;
      const Expr symbol(terms[0].monomial);
      const int64_t c = terms[0].coefficient;
      Range bound;
      if (c > 0)
        bound.high = floor_div_int(-constant, c);
      else
        bound.low = -floor_div_int(-constant, -c);
      const Range both = intersect(symbol.range(), bound);
      if (both.low <= both.high) context_->set_range(symbol, both);
      return;
    }
    case Op::Ne:
    case Op::Or:
    case Op::Not:
    case Op::Constant:
    case Op::Symbol:
    case Op::Add:
    case Op::Mul:
    case Op::FloorDiv:
    case Op::Mod:
    case Op::Min:
    case Op::Max:
      return;
  }
}

Range ShapeEnv::declared_range(Expr symbol) const { return ranges_[number_of_.at(symbol)]; }

const std::string& ShapeEnv::name_of(Expr symbol) const { return names_[number_of_.at(symbol)]; }

}  // namespace braze::sym
