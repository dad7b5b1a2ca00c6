#include "braze/codegen/cpp/index_text.h"

#include <span>

#include "braze/support/check.h"

namespace braze::codegen {

namespace {

using sym::Expr;
using sym::Op;
using SymbolText = std::function<IndexText(Expr)>;

std::string number(int64_t value) {
  if (value == INT64_MIN) return "(-9223372036854775807l - 1)";
  return value < 0 ? "(" + std::to_string(value) + "l)" : std::to_string(value) + "l";
}

IndexText joined(std::span<const Expr> operands, const char* op, const SymbolText& symbol_text) {
  IndexText result;
  for (const Expr& operand : operands) {
    const IndexText next = index_text(operand, symbol_text);
    result.text += (result.text.empty() ? "(" : op) + next.text;
    result.vector |= next.vector;
  }
  result.text += ")";
  return result;
}

bool never_negative(Expr e) { return e.range().low >= 0; }

IndexText divided(Expr a, Expr b, bool remainder, const SymbolText& symbol_text) {
  const IndexText left = index_text(a, symbol_text), right = index_text(b, symbol_text);
  const char* op = remainder ? " % " : " / ";
  if (!left.vector && !right.vector) {
    if (never_negative(a) && b.range().low > 0) return {"(" + left.text + op + right.text + ")", false};
    return {(remainder ? "index_mod(" : "index_div(") + left.text + ", " + right.text + ")", false};
  }
  if (!right.vector) return {(remainder ? "vindex_mod(" : "vindex_div(") + left.text + ", " + right.text + ")", true};
  const std::string quotient = "vindex_div2(" + as_vector(left) + ", " + right.text + ")";
  return {remainder ? "(" + left.text + " - " + quotient + " * " + right.text + ")" : quotient, true};
}

// A function of two that folds over any number of operands.
IndexText folded(std::span<const Expr> operands, const std::string& scalar, const std::string& vector,
                 const SymbolText& symbol_text) {
  IndexText result = index_text(operands[0], symbol_text);
  for (const Expr& operand : operands.subspan(1)) {
    const IndexText next = index_text(operand, symbol_text);
    if (result.vector || next.vector)
      result = {vector + "(" + as_vector(result) + ", " + as_vector(next) + ")", true};
    else
      result.text = scalar + "(" + result.text + ", " + next.text + ")";
  }
  return result;
}

// Predicates have the values 0 and 1; a vector comparison gives 0 and -1.
IndexText compared(std::span<const Expr> operands, const char* op, const SymbolText& symbol_text) {
  const IndexText result = joined(operands, op, symbol_text);
  return {result.vector ? "(" + result.text + " & 1)" : "(long)" + result.text, result.vector};
}

}  // namespace

std::string as_vector(const IndexText& index) { return index.vector ? index.text : "set_l(" + index.text + ")"; }

IndexText index_text(Expr e, const SymbolText& symbol_text) {
  if (e.is_constant()) return {number(e.constant()), false};
  const auto operands = e.is_symbol() ? std::span<const Expr>() : e.operands();
  switch (e.op()) {
    case Op::Constant: break;
    case Op::Symbol: return symbol_text(e);
    case Op::Add: return joined(operands, " + ", symbol_text);
    case Op::Mul: return joined(operands, " * ", symbol_text);
    case Op::FloorDiv: return divided(operands[0], operands[1], false, symbol_text);
    case Op::Mod: return divided(operands[0], operands[1], true, symbol_text);
    case Op::Min: return folded(operands, "index_min", "min_l", symbol_text);
    case Op::Max: return folded(operands, "index_max", "max_l", symbol_text);
    case Op::Eq: return compared(operands, " == ", symbol_text);
    case Op::Ne: return compared(operands, " != ", symbol_text);
    case Op::Lt: return compared(operands, " < ", symbol_text);
    case Op::Le: return compared(operands, " <= ", symbol_text);
    case Op::And: return joined(operands, " & ", symbol_text);
    case Op::Or: return joined(operands, " | ", symbol_text);
    case Op::Not: {
      const IndexText value = index_text(operands[0], symbol_text);
      return {"(1 - " + value.text + ")", value.vector};
    }
  }
  CHECK(false, "an index expression of unknown kind");
  return {};
}

}  // namespace braze::codegen
