// Printing and parsing of expressions, in Python's syntax and precedence.
#include <cctype>
#include <ostream>
#include <stdexcept>

#include "braze/sym/expr.h"

namespace braze::sym {
namespace {

// Binding strength; an operand is put in parentheses when it binds no tighter than its place demands.
enum Strength { kOr, kAnd, kNot, kCompare, kSum, kProduct, kAtom };

Strength strength_of(Expr e) {
  switch (e.op()) {
    case Op::Constant:
      return e.constant() < 0 ? kSum : kAtom;
    case Op::Symbol:
    case Op::Min:
    case Op::Max:
      return kAtom;
    case Op::Add:
      return kSum;
    case Op::Mul:
      return e.node()->coefficient < 0 ? kSum : kProduct;
    case Op::FloorDiv:
    case Op::Mod:
      return kProduct;
    case Op::Eq:
    case Op::Ne:
    case Op::Lt:
    case Op::Le:
      return kCompare;
    case Op::And:
      return kAnd;
    case Op::Or:
      return kOr;
    case Op::Not:
      return kNot;
  }
  return kAtom;
}

void print(Expr e, std::string& out);

void print_in(Expr e, Strength at_least, std::string& out) {
  const bool parentheses = strength_of(e) < at_least;
  if (parentheses) out += '(';
  print(e, out);
  if (parentheses) out += ')';
}

// |coefficient| * monomial, coefficient last: "s0*s1*4". The sign is the caller's.
void print_product(Expr e, std::string& out) {
  if (e.op() == Op::Mul) {
    int64_t constant = 1;
    bool first = true;
    for (const Expr& factor : e.operands()) {
      if (factor.is_constant()) {
        constant = factor.constant();
        continue;
      }
      if (!first) out += '*';
      first = false;
      print_in(factor, kAtom, out);
    }
    if (constant < 0) constant = -constant;
    if (constant != 1) out += '*' + std::to_string(constant);
  } else {
    print_in(e, kProduct, out);
  }
}

bool is_negative_term(Expr e) { return e.is_constant() ? e.constant() < 0 : e.node()->coefficient < 0; }

void print_joined(Expr e, const char* separator, Strength at_least, std::string& out) {
  const char* between = "";
  for (const Expr& operand : e.operands()) {
    out += between;
    print_in(operand, at_least, out);
    between = separator;
  }
}

void print_call(const char* name, Expr e, std::string& out) {
  out += name;
  out += '(';
  print_joined(e, ", ", kOr, out);
  out += ')';
}

void print(Expr e, std::string& out) {
  switch (e.op()) {
    case Op::Constant:
      out += std::to_string(e.constant());
      break;
    case Op::Symbol:
      out += e.symbol_name();
      break;
    case Op::Add: {
      bool first = true;
      for (const Expr& term : e.operands()) {
        const bool negative = is_negative_term(term);
        if (first)
          out += negative ? "-" : "";
        else
          out += negative ? " - " : " + ";
        first = false;
        if (term.is_constant())
          out += std::to_string(term.constant()).substr(negative ? 1 : 0);
        else
          print_product(term, out);
      }
      break;
    }
    case Op::Mul:
      if (e.node()->coefficient < 0) out += '-';
      print_product(e, out);
      break;
    case Op::FloorDiv:
    case Op::Mod:
      print_in(e.operands()[0], kProduct, out);
      out += e.op() == Op::FloorDiv ? " // " : " % ";
      print_in(e.operands()[1], kAtom, out);
      break;
    case Op::Min:
      print_call("min", e, out);
      break;
    case Op::Max:
      print_call("max", e, out);
      break;
    case Op::Eq:
      print_joined(e, " == ", kSum, out);
      break;
    case Op::Ne:
      print_joined(e, " != ", kSum, out);
      break;
    case Op::Lt:
      print_joined(e, " < ", kSum, out);
      break;
    case Op::Le:
      print_joined(e, " <= ", kSum, out);
      break;
    case Op::And:
      print_joined(e, " and ", kNot, out);
      break;
    case Op::Or:
      print_joined(e, " or ", kAnd, out);
      break;
    case Op::Not:
      out += "not ";
      print_in(e.operands()[0], kNot, out);
      break;
  }
}

class Parser {
 public:
  Parser(std::string_view text, const std::function<Expr(std::string_view)>& symbol_of)
      : text_(text), symbol_of_(symbol_of) {}

  Expr whole() {
    const Expr e = disjunction();
    skip_space();
    if (at_ != text_.size()) fail("end of expression");
    return e;
  }

 private:
  [[noreturn]] void fail(const std::string& wanted) const {
    throw std::invalid_argument("in \"" + std::string(text_) + "\" at column " + std::to_string(at_ + 1) +
                                ": expected " + wanted);
  }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  static bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }
  bool accept(std::string_view token) {
    skip_space();
    if (!text_.substr(at_).starts_with(token)) return false;
    const size_t end = at_ + token.size();
    if (is_name_char(token.back()) && end < text_.size() && is_name_char(text_[end])) return false;
    at_ = end;
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("\"" + std::string(token) + "\"");
  }

  Expr disjunction() {
    Expr e = conjunction();
    while (accept("or")) e = logical_or(e, conjunction());
    return e;
  }
  Expr conjunction() {
    Expr e = negation();
    while (accept("and")) e = logical_and(e, negation());
    return e;
  }
  Expr negation() { return accept("not") ? logical_not(negation()) : comparison(); }
  Expr comparison() {
    const Expr e = sum();
    if (accept("==")) return eq(e, sum());
    if (accept("!=")) return ne(e, sum());
    if (accept("<=")) return le(e, sum());
    if (accept(">=")) return ge(e, sum());
    if (accept("<")) return lt(e, sum());
    if (accept(">")) return gt(e, sum());
    return e;
  }
  Expr sum() {
    Expr e = term();
    for (;;) {
      if (accept("+"))
        e = e + term();
      else if (accept("-"))
        e = e - term();
      else
        return e;
    }
  }
  Expr term() {
    Expr e = unary();
    for (;;) {
      if (accept("//"))
        e = floor_div(e, divisor());
      else if (accept("*"))
        e = e * unary();
      else if (accept("%"))
        e = mod(e, divisor());
      else
        return e;
    }
  }
  Expr divisor() {
    const Expr e = unary();
    if (e == Expr(0)) fail("a divisor that is not zero");
    return e;
  }
  Expr unary() {
    if (!accept("-")) return atom();
    skip_space();
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) return number("-");
    return -unary();
  }
  Expr atom() {
    if (accept("(")) {
      const Expr e = disjunction();
      expect(")");
      return e;
    }
    if (accept("min(")) return call(&min);
    if (accept("max(")) return call(&max);
    skip_space();
    if (at_ == text_.size()) fail("an expression");
    if (std::isdigit(static_cast<unsigned char>(text_[at_]))) return number("");
    const size_t start = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    if (at_ == start) fail("an expression");
    return symbol_of_(text_.substr(start, at_ - start));
  }
  Expr number(std::string digits) {
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) digits += text_[at_++];
    try {
      return std::stoll(digits);
    } catch (const std::out_of_range&) {
      fail("a 64-bit number");
    }
  }
  Expr call(Expr (*combine)(Expr, Expr)) {
    Expr e = disjunction();
    while (accept(",")) e = combine(e, disjunction());
    expect(")");
    return e;
  }

  std::string_view text_;
  const std::function<Expr(std::string_view)>& symbol_of_;
  size_t at_ = 0;
};

}  // namespace

std::string to_string(Expr e) {
  std::string out;
  print(e, out);
  return out;
}

Expr parse(std::string_view text, const std::function<Expr(std::string_view name)>& symbol_of) {
  return Parser(text, symbol_of).whole();
}

std::ostream& operator<<(std::ostream& os, Expr e) { return os << to_string(e); }

}  // namespace braze::sym
