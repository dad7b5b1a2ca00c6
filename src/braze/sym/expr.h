// Symbolic integers: immutable, hash-consed, kept in a simplified canonical form.
//
// An Expr is a constant or a node of a Context (which must outlive it). Building an expression simplifies it:
// sums are flattened, sorted and like terms joined; products distribute over sums where that shortens;
// floor_div and mod use the ranges of their symbols ((8*i + j) // 8 is i when 0 <= j < 8, and
// 8*(x // 8) + x % 8 is x). Equal expressions of one Context are the same node, so == is a pointer comparison:
// true means equal for all values; false means "not known to be equal" (ask ShapeEnv for a decision).
// Division and remainder round as Python's // and % do. Predicates are Exprs with values 0 and 1.
// Arithmetic on constants that leaves int64 is an InternalError. A Context is used by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
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
  template <class T>
    requires std::is_pointer_v<T>                            // keeps Expr(0) a constant
  explicit Expr(T node) : node_(node) {}

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

// Operands are in canonical order, which depends on structure and symbol names only, never on who was built first.
// A sum lists its terms by falling degree, the constant last; a product lists its constant factor first.
struct Node {
  Op op;
  Context* context;
  uint32_t id;                    // creation order
  uint64_t hash;
  uint64_t symbol_mask;           // one bit (of 64, shared) for each symbol below
  Range range;
  std::vector<Expr> operands;
  std::string name;               // symbols
  // The node is coefficient * monomial; the monomial is the node itself unless this is a product with a constant.
  int64_t coefficient = 1;
  const Node* monomial = nullptr;
  // Symbols only: if it is no constant expression, 0 <= symbol < extent is known.
  Expr extent;
};

inline Op Expr::op() const { return node_ == nullptr ? Op::Constant : node_->op; }
inline std::span<const Expr> Expr::operands() const { return node_->operands; }
inline const std::string& Expr::symbol_name() const { return node_->name; }
inline Range Expr::range() const { return node_ == nullptr ? Range{value_, value_} : node_->range; }
inline size_t Expr::hash() const {
  return node_ == nullptr ? static_cast<size_t>(value_) * 0x9e3779b97f4a7c15ull : static_cast<size_t>(node_->hash);
}

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
  // An index symbol: 0 <= symbol < extent, which the simplifier uses also where the extent is symbolic.
  Expr index(std::string_view name, Expr extent);
  Expr fresh_index(std::string_view prefix, Expr extent);
  // Narrows a symbol's range; expressions built before keep their old bounds.
  void set_range(Expr symbol, Range range);
  size_t size() const;                                       // nodes ever made

  const Node* intern(Op op, std::span<const Expr> operands); // for the simplifier alone

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace detail {
Expr add(Expr a, Expr b, int64_t scale_of_b);
Expr multiply(Expr a, Expr b);
}  // namespace detail

inline Expr operator+(Expr a, Expr b) {
  int64_t sum;
  if (a.is_constant() && b.is_constant() && !__builtin_add_overflow(a.constant(), b.constant(), &sum)) return sum;
  return detail::add(a, b, 1);
}
inline Expr operator-(Expr a, Expr b) {
  int64_t difference;
  if (a.is_constant() && b.is_constant() && !__builtin_sub_overflow(a.constant(), b.constant(), &difference))
    return difference;
  return detail::add(a, b, -1);
}
inline Expr operator-(Expr a) { return Expr(0) - a; }
inline Expr operator*(Expr a, Expr b) {
  int64_t product;
  if (a.is_constant() && b.is_constant() && !__builtin_mul_overflow(a.constant(), b.constant(), &product))
    return product;
  return detail::multiply(a, b);
}
inline Expr& operator+=(Expr& a, Expr b) { return a = a + b; }
inline Expr& operator*=(Expr& a, Expr b) { return a = a * b; }
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
