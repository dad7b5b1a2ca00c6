// Patterns: trees of ops that are replaced as a whole. A row of patterns.cpp is a pattern and what to make of it:
//
//   {"mm_add_bias", commutative(OpId::add_Tensor, call(OpId::mm, {any("x"), any("w")}).once(), any("bias")),
//    [](Builder& b, const Match& m) { return b(OpId::addmm, {m["bias"], m["x"], m["w"]}); }}
//
// Inner calls match only values that nothing else uses where `once` is said; results of a rewrite must have exactly the
// dtype and sizes of what they replace (the layout is adjusted).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "braze/graph/builder.h"

namespace braze::rewrite {

class Match {
 public:
  graph::Value* operator[](std::string_view name) const;  // nullptr: not bound
  const graph::Argument* argument(std::string_view name) const;
  void bind(std::string_view name, graph::Argument argument);
  // A name that is bound twice must be bound to the same thing.
  bool agrees(std::string_view name, const graph::Argument& argument) const;
  size_t size() const { return bound_.size(); }
  void truncate(size_t size) { bound_.resize(size); }

 private:
  std::vector<std::pair<std::string, graph::Argument>> bound_;
};

class Pattern {
 public:
  using Test = std::function<bool(graph::Value*)>;

  // No other use of this value than the pattern's.
  Pattern once() const;
  Pattern named(std::string_view name) const;
  Pattern where(Test test) const;

  bool matches(const graph::Argument& argument, Match& match) const;

 private:
  friend Pattern any(std::string_view name);
  friend Pattern number(std::string_view name);
  friend Pattern call(graph::OpId op, std::vector<Pattern> operands);
  friend Pattern commutative(graph::OpId op, Pattern a, Pattern b);
  friend Pattern either(std::vector<Pattern> choices);
  friend Pattern moved(Pattern inner);
  struct Body;
  explicit Pattern(std::shared_ptr<const Body> body) : body_(std::move(body)) {}
  std::shared_ptr<const Body> body_;
};

Pattern any(std::string_view name);                           // a tensor
Pattern number(std::string_view name);                        // an immediate number
Pattern call(graph::OpId op, std::vector<Pattern> operands);  // the first arguments of the schema; the rest is free
Pattern commutative(graph::OpId op, Pattern a, Pattern b);
Pattern either(std::vector<Pattern> choices);
// The inner value, perhaps seen through views, expansions and copies that keep its elements in order.
Pattern moved(Pattern inner);

// The operand of a view or copy that keeps all elements in their row-major order; nullptr for other producers.
graph::Value* same_order(const graph::Value* value);

struct PatternRow {
  std::string_view name;
  Pattern pattern;
  // The replacement, or nullptr if more is needed than the pattern can say; nodes made until then are removed.
  std::function<graph::Value*(graph::Builder&, const Match&)> rewrite;
};

const std::vector<PatternRow>& all_patterns();

}  // namespace braze::rewrite
