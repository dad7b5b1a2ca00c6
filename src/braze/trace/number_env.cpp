#include "braze/trace/number_env.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "braze/trace/abort.h"

namespace braze::trace {
namespace {

// Doubles hold every integer up to here.
constexpr double kMostExact = 9007199254740992.0;
// Sizes are bounded by memory.
constexpr double kMostSize = 1099511627776.0;
constexpr double kMostInt64 = 4.7e18;

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

const char* sign(FloatOp op) {
  switch (op) {
    case FloatOp::Add: return " + ";
    case FloatOp::Subtract: return " - ";
    case FloatOp::Multiply: return " * ";
    case FloatOp::Divide: return " / ";
    case FloatOp::Power: return " ** ";
    case FloatOp::Maximum: return " max ";
    case FloatOp::Minimum: return " min ";
    case FloatOp::Negate: return "-";
    case FloatOp::Single: return "float32";
    case FloatOp::Exact: return "int";
    case FloatOp::SquareRoot: return "sqrt";
    case FloatOp::Exponential: return "exp";
    case FloatOp::Logarithm: return "log";
    case FloatOp::Sine: return "sin";
    case FloatOp::Cosine: return "cos";
    case FloatOp::Constant: case FloatOp::Input: case FloatOp::Element: case FloatOp::InGraph: case FloatOp::Integer: break;
  }
  return "?";
}

// Of an operator: how many floats it takes.
int n_operands(FloatOp op) {
  switch (op) {
    case FloatOp::Constant: case FloatOp::Input: case FloatOp::Element: case FloatOp::InGraph: case FloatOp::Integer: return 0;
    case FloatOp::Negate: case FloatOp::Single: case FloatOp::Exact: case FloatOp::SquareRoot:
    case FloatOp::Exponential: case FloatOp::Logarithm: case FloatOp::Sine: case FloatOp::Cosine: return 1;
    case FloatOp::Add: case FloatOp::Subtract: case FloatOp::Multiply: case FloatOp::Divide: case FloatOp::Power:
    case FloatOp::Maximum: case FloatOp::Minimum: return 2;
  }
  return 0;
}

[[noreturn]] void refuse_value() {
  unsupported("the program needs the value of a tensor (item(), bool(), int(), float())",
              "compute with tensors, for example torch.where instead of if");
}

const char* sign(Comparison how) {
  switch (how) {
    case Comparison::Equal: case Comparison::SameBits: return " == ";
    case Comparison::NotEqual: return " != ";
    case Comparison::Less: return " < ";
    case Comparison::LessEqual: return " <= ";
  }
  return " ? ";
}

}  // namespace

double apply(FloatOp op, double a, double b) {
  switch (op) {
    case FloatOp::Add: return a + b;
    case FloatOp::Subtract: return a - b;
    case FloatOp::Multiply: return a * b;
    case FloatOp::Divide: return a / b;
    case FloatOp::Power: return std::pow(a, b);
    case FloatOp::Maximum: return b > a ? b : a;
    case FloatOp::Minimum: return b < a ? b : a;
    case FloatOp::Negate: return -a;
    case FloatOp::Single: return static_cast<float>(a);
    case FloatOp::SquareRoot: return std::sqrt(a);
    case FloatOp::Exponential: return std::exp(a);
    case FloatOp::Logarithm: return std::log(a);
    case FloatOp::Sine: return std::sin(a);
    case FloatOp::Cosine: return std::cos(a);
    case FloatOp::Exact: case FloatOp::Constant: case FloatOp::Input: case FloatOp::Element: case FloatOp::InGraph: case FloatOp::Integer: break;
  }
  return a;
}

bool is_computed(const FloatNode& node, double a, double b, double value) {
  switch (node.op) {
    case FloatOp::Exact: return std::abs(value) <= kMostExact;
    case FloatOp::Power: return std::isfinite(value) || !std::isfinite(a) || !std::isfinite(b);
    case FloatOp::SquareRoot: case FloatOp::Exponential: case FloatOp::Logarithm: case FloatOp::Sine: case FloatOp::Cosine:
      return (!std::isnan(value) || std::isnan(a)) && (!std::isinf(value) || !std::isfinite(a));
    case FloatOp::Constant: case FloatOp::Input: case FloatOp::Element: case FloatOp::InGraph: case FloatOp::Integer:
    case FloatOp::Add: case FloatOp::Subtract: case FloatOp::Multiply: case FloatOp::Divide: case FloatOp::Negate:
    case FloatOp::Maximum: case FloatOp::Minimum: case FloatOp::Single: break;
  }
  return true;
}

bool compare(Comparison how, double a, double b) {
  switch (how) {
    case Comparison::Equal: return a == b;
    case Comparison::NotEqual: return a != b;
    case Comparison::Less: return a < b;
    case Comparison::LessEqual: return a <= b;
    case Comparison::SameBits: return same_bits(a, b);
  }
  return false;
}

sym::Expr NumberEnv::new_integer(int64_t hint, std::string name) {
  integers_.push_back(new_size(hint, std::move(name), {-kMostInteger, kMostInteger}));
  return integers_.back();
}

bool NumberEnv::has_integers(sym::Expr e) const {
  if (integers_.empty() || e.is_constant()) return false;
  std::vector<sym::Expr> symbols;
  collect_symbols(e, symbols);
  return std::ranges::any_of(symbols, [&](sym::Expr s) { return std::ranges::find(integers_, s) != integers_.end(); });
}

double NumberEnv::magnitude(sym::Expr e) const {
  if (e.is_constant()) return std::abs(static_cast<double>(e.constant()));
  const std::span<const sym::Expr> operands = e.is_symbol() ? std::span<const sym::Expr>() : e.operands();
  double out = 0;
  switch (e.op()) {
    case sym::Op::Symbol: {
      const sym::Range range = e.range();
      if (range.low == -sym::kInf || range.high == sym::kInf) return kMostSize;
      return std::max(std::abs(static_cast<double>(range.low)), std::abs(static_cast<double>(range.high)));
    }
    case sym::Op::Add:
      for (sym::Expr operand : operands) out += magnitude(operand);
      return out;
    case sym::Op::Mul:
      out = 1;
      for (sym::Expr operand : operands) out *= magnitude(operand);
      return out;
    case sym::Op::FloorDiv: return magnitude(operands[0]) + 1;
    case sym::Op::Mod: return magnitude(operands[1]);
    case sym::Op::Min: case sym::Op::Max:
      for (sym::Expr operand : operands) out = std::max(out, magnitude(operand));
      return out;
    case sym::Op::Constant: case sym::Op::Eq: case sym::Op::Ne: case sym::Op::Lt: case sym::Op::Le:
    case sym::Op::And: case sym::Op::Or: case sym::Op::Not: break;
  }
  return 1;
}

sym::Expr NumberEnv::within_int64(sym::Expr e) {
  if (!has_integers(e) || magnitude(e) < kMostInt64) return e;
  std::vector<sym::Expr> symbols;
  collect_symbols(e, symbols);
  for (sym::Expr symbol : symbols)
    if (symbol.range().high == sym::kInf) guard(sym::le(symbol, kMostInteger), {"a large integer"});
  if (magnitude(e) < kMostInt64) return e;
  // A narrower range, with room for numbers that are larger than those of now.
  for (int bits = 28; bits >= 12; bits -= 4) {
    const int64_t most = int64_t{1} << bits;
    if (std::ranges::any_of(symbols, [&](sym::Expr s) { return std::abs(hint(s)) > most / 4; })) break;
    for (sym::Expr symbol : symbols) {
      if (symbol.range().high > most) guard(sym::le(symbol, most), {"a large integer"});
      if (symbol.range().low < -most) guard(sym::ge(symbol, -most), {"a large integer"});
    }
    if (magnitude(e) < kMostInt64) return e;
  }
  const double exact = magnitude(e);
  for (sym::Expr symbol : symbols) specialize(symbol, {"a large integer"});
  e = simplify(e);
  if (!e.is_constant() || exact >= kMostInt64 * kMostInt64) unsupported("an integer that may need more than 64 bits");
  return e;
}

sym::Expr NumberEnv::as_size(sym::Expr e) {
  if (!has_integers(e)) return e;
  const sym::Expr simplified = simplify(e);
  if (simplified.is_constant()) return simplified;
  if (hint(simplified) < 0) unsupported("a negative size");
  if (hint(simplified) < 2 || !guard(sym::ge(simplified, 2), {"a size"})) return specialize(simplified, {"a size"});
  return e;
}

FloatId NumberEnv::add(const FloatNode& node) {
  for (size_t i = 0; i < floats_.size(); ++i) {
    const FloatNode& known = floats_[i];
    if (known.op == node.op && known.op != FloatOp::Input && known.op != FloatOp::Element && known.a == node.a &&
        known.b == node.b && known.integer == node.integer && same_bits(known.value, node.value))
      return static_cast<FloatId>(i);
  }
  const auto any_operand = [&](const std::vector<bool>& flags) {
    const int n = n_operands(node.op);
    return (n > 0 && flags[static_cast<size_t>(node.a)]) || (n > 1 && flags[static_cast<size_t>(node.b)]);
  };
  in_graph_.push_back(node.op == FloatOp::InGraph || any_operand(in_graph_));
  of_tensor_.push_back(node.op == FloatOp::InGraph || node.op == FloatOp::Element || any_operand(of_tensor_));
  floats_.push_back(node);
  fixed_.push_back(false);
  return static_cast<FloatId>(floats_.size()) - 1;
}

FloatId NumberEnv::new_input(FloatOp op, double hint, std::string name) {
  const FloatId id = add({op, static_cast<FloatId>(float_names_.size()), -1, 0, hint});
  float_names_.push_back(std::move(name));
  return id;
}

FloatId NumberEnv::new_float(double hint, std::string name) { return new_input(FloatOp::Input, hint, std::move(name)); }

FloatId NumberEnv::new_element(double hint, std::string name) {
  return new_input(FloatOp::Element, hint, std::move(name));
}

FloatId NumberEnv::in_graph(int32_t value) {
  return add({FloatOp::InGraph, value, -1, 0, std::numeric_limits<double>::quiet_NaN()});
}

FloatId NumberEnv::integer(sym::Expr e) {
  e = simplify(e);
  if (e.is_constant()) return constant(static_cast<double>(e.constant()));
  if (magnitude(e) > kMostExact) return constant(static_cast<double>(specialize(e, {"float()"})));
  return add({FloatOp::Integer, -1, -1, e, static_cast<double>(hint(e))});
}

// max(x, 1.0) is at least 1.0, or NaN.
bool NumberEnv::is_nonzero(FloatId id) const {
  const FloatNode& node = floats_[static_cast<size_t>(id)];
  const auto is_positive = [&](FloatId o) { return is_constant(o) && hint_of(o) > 0; };
  return node.op == FloatOp::Maximum && (is_positive(node.a) || is_positive(node.b));
}

FloatId NumberEnv::apply(FloatOp op, FloatId a, FloatId b) {
  if (op == FloatOp::Divide && !is_nonzero(b) && ask(Comparison::Equal, b, constant(0))) unsupported("division of a number by zero");
  const double x = hint_of(a), y = b < 0 ? 0 : hint_of(b);
  const FloatNode node{op, a, b, 0, trace::apply(op, x, y)};
  if (is_in_graph(a) || (b >= 0 && is_in_graph(b))) {
    // Where CPython might refuse, nobody would notice.
    if (op != FloatOp::Add && op != FloatOp::Subtract && op != FloatOp::Multiply && op != FloatOp::Divide &&
        op != FloatOp::Negate && op != FloatOp::Maximum && op != FloatOp::Minimum)
      refuse_value();
    return add(node);
  }
  if (!is_computed(node, x, y, node.value)) unsupported("a number that Python refuses to compute");
  if (is_constant(a) && (b < 0 || is_constant(b))) return constant(node.value);
  return add(node);
}

double NumberEnv::fix(FloatId id) {
  const FloatNode node = floats_[static_cast<size_t>(id)];
  if (node.op == FloatOp::Constant || fixed_[static_cast<size_t>(id)]) return node.value;
  if (of_tensor_[static_cast<size_t>(id)]) refuse_value();
  fixed_[static_cast<size_t>(id)] = true;
  if (node.op == FloatOp::Input) {
    float_guards_.push_back({Comparison::SameBits, id, constant(node.value), true});
  } else if (node.op == FloatOp::Integer) {
    specialize(node.integer, {"float()"});
  } else {
    fix(node.a);
    if (node.b >= 0) fix(node.b);
  }
  return node.value;
}

bool NumberEnv::ask(Comparison how, FloatId a, FloatId b) {
  if (is_in_graph(a) || is_in_graph(b)) refuse_value();
  const bool holds = compare(how, hint_of(a), hint_of(b));
  if (is_constant(a) && is_constant(b)) return holds;
  const bool known = std::ranges::any_of(float_guards_, [&](const FloatGuard& g) { return g.how == how && g.a == a && g.b == b; });
  if (!known) float_guards_.push_back({how, a, b, holds});
  return holds;
}

bool NumberEnv::is_in_f32(FloatId id) {
  if (is_in_graph(id)) return true;
  const double most = std::numeric_limits<float>::max();
  return ask(Comparison::LessEqual, id, constant(most)) && ask(Comparison::LessEqual, constant(-most), id);
}

std::string NumberEnv::describe(FloatId id) const {
  const FloatNode& node = floats_[static_cast<size_t>(id)];
  switch (node.op) {
    case FloatOp::Constant: return std::to_string(node.value);
    case FloatOp::Input: return float_names_[static_cast<size_t>(node.a)];
    case FloatOp::Element: return float_names_[static_cast<size_t>(node.a)] + ".item()";
    case FloatOp::InGraph: return "a number in a tensor";
    case FloatOp::Integer: {
      std::vector<sym::Expr> symbols;
      collect_symbols(node.integer, symbols);
      std::string text = to_string(node.integer);
      for (sym::Expr symbol : symbols) text += ", " + symbol.symbol_name() + " = " + name_of(symbol);
      return "(" + text + ")";
    }
    case FloatOp::Negate: return "-" + describe(node.a);
    case FloatOp::Single: case FloatOp::Exact: case FloatOp::SquareRoot: case FloatOp::Exponential:
    case FloatOp::Logarithm: case FloatOp::Sine: case FloatOp::Cosine: return std::string(sign(node.op)) + "(" + describe(node.a) + ")";
    case FloatOp::Add: case FloatOp::Subtract: case FloatOp::Multiply: case FloatOp::Divide: case FloatOp::Power:
    case FloatOp::Maximum: case FloatOp::Minimum: break;
  }
  return "(" + describe(node.a) + sign(node.op) + describe(node.b) + ")";
}

std::string NumberEnv::describe(const FloatGuard& guard) const {
  const std::string text = describe(guard.a) + sign(guard.how) + describe(guard.b);
  return guard.holds ? text : "not " + text;
}

}  // namespace braze::trace
