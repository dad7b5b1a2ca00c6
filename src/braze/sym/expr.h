// Symbolic integers: immutable, hash-consed, kept in a simplified canonical form.
//
// An Expr is a constant or a node of a Context (which must outlive it). Building an expression simplifies it:
// sums are flattened, sorted and like terms joined; products distribute over sums where that shortens;
// floor_div and mod use the ranges of their symbols ((8*i + j) // 8 is i when 0 <= j < 8, and
// 8*(x // 8) + x % 8 is x). Equal expressions of one Context are the same node, so == is a pointer comparison:
// true means equal for all values; false means "not known to be equal" (ask ShapeEnv for a decision).
// Division and remainder round as Python's // and % do. Predicates are Exprs with values 0 and 1.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace braze::sym {

class Context;
struct Node;

inline constexpr int64_t kInf = std::numeric_limits<int64_t>::max();

// Inclusive bounds; kInf and -kInf mean unbounded.
struct Range {
  int64_t low = -kInf;
  int64_t high = kInf;
  bool operator==(const Range&) const = default;
};

enum class Op : uint8_t {
  Constant, Symbol,
  Add, Mul, FloorDiv, Mod, Min, Max,      // integers
  Eq, Ne, Lt, Le, And, Or, Not,           // predicates
};

class Expr {
 public:
  Expr() = default;
  Expr(int64_t value) : value_(value) {}  // NOLINT: constants convert
  explicit Expr(const Node* node) : node_(node) {}

  bool is_constant() const { return node_ == nullptr; }
  int64_t constant() const { return value_; }               // only when is_constant()
  std::optional<int64_t> maybe_constant() const {
    return is_constant() ? std::optional(value_) : std::nullopt;
  }
  const Node* node() const { return node_; }
  Op op() const;
  std::span<const Expr> operands() const;                    // of a node that is no symbol
  bool is_symbol() const { return node_ != nullptr && op() == Op::Symbol; }
  const std::string& symbol_name() const;                    // of a symbol
  Range range() const;                                       // bounds known from symbol ranges
  bool operator==(const Expr&) const = default;
  size_t hash() const;

 private:
  const Node* node_ = nullptr;
  int64_t value_ = 0;
};

struct Node {
  Op op;
  Context* context;
  uint32_t id;                    // creation order; sorts operands
  Range range;
  std::vector<Expr> operands;
  std::string name;               // symbols
};

class Context {
 public:
  Context();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // A symbol is found by its name; a second call with the same name gives the same node (and keeps its range).
  Expr symbol(std::string_view name, Range range);
  // A symbol with an unused name "<prefix><number>".
  Expr fresh(std::string_view prefix, Range range);
  // Narrows a symbol's range; expressions built before keep their old bounds.
  void set_range(Expr symbol, Range range);

  const Node* intern(Op op, std::vector<Expr> operands);     // for the simplifier alone

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator-(Expr a);
Expr operator*(Expr a, Expr b);
Expr floor_div(Expr a, Expr b);
Expr ceil_div(Expr a, Expr b);
Expr mod(Expr a, Expr b);
Expr min(Expr a, Expr b);
Expr max(Expr a, Expr b);
Expr eq(Expr a, Expr b);
Expr ne(Expr a, Expr b);
Expr lt(Expr a, Expr b);
Expr le(Expr a, Expr b);
inline Expr gt(Expr a, Expr b) { return lt(b, a); }
inline Expr ge(Expr a, Expr b) { return le(b, a); }
Expr logical_and(Expr a, Expr b);
Expr logical_or(Expr a, Expr b);
Expr logical_not(Expr a);

// Simplified product of a span; 1 when empty.
Expr product(std::span<const Expr> factors);

// Replaces symbols (and simplifies again). Pairs are (symbol, replacement), applied at once.
Expr substitute(Expr e, std::span<const std::pair<Expr, Expr>> replacements);
// Value under an assignment of its symbols.
int64_t evaluate(Expr e, const std::function<int64_t(Expr symbol)>& value_of);
// Appends each symbol once, in order of first appearance.
void collect_symbols(Expr e, std::vector<Expr>& out);
bool depends_on(Expr e, Expr symbol);
// c such that e == c * symbol + rest with neither c nor rest depending on symbol; nullopt if there is none.
std::optional<Expr> coefficient(Expr e, Expr symbol);

// "s0*4 + i1", "(s0 + 1) // 2"; parse() reads it back.
std::string to_string(Expr e);
// symbol_of gives the Expr of a name, or throws. Throws std::invalid_argument on bad text.
Expr parse(std::string_view text, const std::function<Expr(std::string_view name)>& symbol_of);
std::ostream& operator<<(std::ostream& os, Expr e);

// Known without asking anybody: from ranges and structure alone.
std::optional<bool> try_decide(Expr predicate);

}  // namespace braze::sym

template <>
struct std::hash<braze::sym::Expr> {
  size_t operator()(const braze::sym::Expr& e) const { return e.hash(); }
};
