// Loop programs from tensor IR text, and their results, for tests.
#pragma once

#include <doctest/doctest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "braze/graph/text.h"
#include "braze/loop/evaluate.h"
#include "braze/loop/loop_ir.h"

namespace braze::loop {

struct Lowered {
  std::unique_ptr<graph::Graph> graph;
  LoopProgram program;

  const Buffer& last() const { return program.buffers.back(); }
  size_t computed() const {
    size_t n = 0;
    for (const Buffer& b : program.buffers) n += b.kind != BufferKind::Input;
    return n;
  }
};

inline Lowered lowered(const std::string& text) {
  auto graph = graph::parse(text);
  auto result = lower(*graph);
  REQUIRE(result.ok());
  const std::string problems = verify(*result);
  INFO(print(*result));
  REQUIRE(problems == "");
  return {std::move(graph), std::move(result).value()};
}

inline HostTensor tensor(DType dtype, std::vector<int64_t> sizes, const std::vector<double>& values) {
  HostTensor out{dtype, std::move(sizes), {}};
  for (const double value : values) out.data.push_back(number_of(dtype, value));
  return out;
}

// 0, 1, 2, ... as elements.
inline HostTensor counting(DType dtype, std::vector<int64_t> sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  HostTensor out{dtype, std::move(sizes), {}};
  for (int64_t k = 0; k < n; ++k) out.data.push_back(number_of_int(dtype, k));
  return out;
}

inline std::vector<double> values(const HostTensor& t) {
  std::vector<double> out;
  for (const Number& n : t.data) out.push_back(as_double(n, t.dtype));
  return out;
}

inline Evaluation run(const Lowered& l, const std::vector<HostTensor>& inputs, std::vector<int64_t> sizes = {}) {
  return evaluate(l.program, sizes, inputs);
}

using Values = std::vector<double>;

}  // namespace braze::loop
