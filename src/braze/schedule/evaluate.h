// Reference evaluation of a Program: runs each kernel exactly as program.h says, one element at a time, on host memory.
// Slow; every access is checked against the bounds of its buffer, and a kernel's range is cut into slices that each
// start with poisoned scratch. For tests.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "braze/schedule/program.h"

namespace braze::schedule {

class EvaluationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Evaluation {
 public:
  // inputs[i]: first element of graph input i (its dense storage must follow). value_of: the program's size symbols.
  // call: runs a CallStep; the pointers are the views' first elements.
  using ValueOf = std::function<int64_t(Expr symbol)>;
  using Call = std::function<void(const CallStep& step, const std::vector<const std::byte*>& operands,
                                  const std::vector<std::byte*>& results)>;
  // launch: runs a kernel in place of this evaluation (tests of code generation). Called once for a slice of its range.
  using Launch = std::function<void(const Kernel& kernel, const std::vector<std::byte*>& params,
                                    const std::vector<int64_t>& sizes, int64_t begin, int64_t end)>;
  Evaluation(const Program& program, std::vector<const void*> inputs, ValueOf value_of = {}, Call call = {},
             Launch launch = {});
  ~Evaluation();

  // Throws EvaluationError for an access out of bounds, an index out of range or a division of integers by zero.
  void run();
  // First element of an output; it lives as long as this object.
  const std::byte* output(size_t i) const;
  const std::byte* memory(const View& view) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braze::schedule
