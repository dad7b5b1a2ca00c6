// Values of the graph of one element that the host can tell before the call: elements of the caller's CPU tensors and of
// constants, and what simple arithmetic makes of them (a step counter that was raised by one). Integers and bools are
// known as doubles, too.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>

#include "braze/graph/graph.h"
#include "braze/trace/number_env.h"

namespace braze::trace {

class HostNumbers {
 public:
  // The number of a value that is the caller's tensor as the call finds it, or a constant.
  using Element = std::function<std::optional<FloatId>(const graph::Value&)>;

  explicit HostNumbers(NumberEnv& env) : env_(env) {}
  void set_elements(Element element) { element_ = std::move(element); }
  // The value as a double; nullopt: only the graph knows it. Bit by bit what the operators compute.
  std::optional<FloatId> of(const graph::Value& value, int depth = 0);
  // Whether it is not 0, under a guard; of comparisons, too.
  std::optional<bool> truth(const graph::Value& value);

 private:
  std::optional<FloatId> computed(const graph::Value& value, int depth);
  std::optional<FloatId> operand(const graph::Argument& argument, DType dtype, int depth);

  NumberEnv& env_;
  Element element_;
  std::unordered_map<const graph::Value*, std::optional<FloatId>> known_;
};

}  // namespace braze::trace
