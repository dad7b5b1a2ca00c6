// ShapeEnv: the size symbols of one trace, their example values (hints), and the guards that the trace needed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "braze/sym/expr.h"

namespace braze::sym {

// Where a guard came from, for messages: the user's expression and line.
struct Reason {
  std::string text;
};

struct Guard {
  Expr predicate;   // must evaluate to 1
  Reason reason;
};

class ShapeEnv {
 public:
  ShapeEnv();
  Context& context() { return *context_; }

  // A size symbol s0, s1, ... with its example value. Sizes 0 and 1 are never symbols: callers pass them as
  // constants. `name` describes the user's expression ("x.size(0)") for messages.
  Expr new_size(int64_t hint, std::string name, Range range = {2, kInf});

  int64_t hint(Expr e) const;                       // value under the hints
  // The truth of a predicate: decided by structure or ranges if possible, else by the hints, with a guard recorded.
  bool guard(Expr predicate, Reason reason = {});
  // The value as a constant: by structure, else by the hints, with a guard `e == value` recorded.
  int64_t specialize(Expr e, Reason reason = {});
  // The truth if it is known without a new guard.
  std::optional<bool> known(Expr predicate) const;

  // After `s1 == s0` was guarded, s1 is replaced by s0.
  Expr simplify(Expr e) const;

  const std::vector<Guard>& guards() const { return guards_; }
  const std::vector<Expr>& symbols() const { return symbols_; }
  const std::string& name_of(Expr symbol) const;    // "x.size(0)"
  Range declared_range(Expr symbol) const;          // before guards narrowed it

  // Reads back one `sym` line of a printed graph: the symbol keeps its name and hint.
  Expr declare(std::string_view symbol_name, Range range, int64_t hint, std::string name);
  // A guard that is known to hold already (read from text, or required by the caller).
  void assume(Expr predicate, Reason reason = {});

 private:
  std::optional<bool> decide(Expr simplified) const;
  void learn(Expr predicate);        // the consequences of a guard: replacements and ranges
  std::unique_ptr<Context> context_;
  std::vector<Expr> symbols_;
  std::vector<int64_t> hints_;
  std::vector<std::string> names_;
  std::vector<Range> ranges_;                       // as declared
  std::vector<Guard> guards_;
  std::unordered_map<Expr, size_t> number_of_;      // symbol -> place in symbols_
  std::unordered_set<Expr> facts_;                  // guarded predicates, simplified
  std::vector<std::pair<Expr, Expr>> replacements_;
};

}  // namespace braze::sym
