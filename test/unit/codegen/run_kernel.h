// Builds kernels by hand, as the scheduler would, compiles them for several vector widths and runs them.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "braze/codegen/codegen.h"
#include "braze/jit/jit.h"
#include "braze/schedule/program.h"

namespace braze::test {

using loop::ReduceOp;
using loop::Scalar;
using loop::ScalarOp;
using schedule::AxisRole;
using sym::Expr;

// A kernel in the making. Sizes k0, k1, ... are its parameters; axes are fresh symbols.
struct Builder {
  schedule::Kernel kernel;
  std::vector<int64_t> sizes;

  Builder() {
    kernel.context = std::make_shared<sym::Context>();
    kernel.scalars = std::make_shared<loop::ScalarBuilder>();
  }
  loop::ScalarBuilder& s() { return *kernel.scalars; }
  int32_t param(DType dtype, bool written = false) {
    kernel.params.push_back({dtype, !written, written});
    return static_cast<int32_t>(kernel.params.size()) - 1;
  }
  Expr size(int64_t value, bool constant = false) {
    if (constant) return value;
    const Expr e = kernel.context->symbol("k" + std::to_string(sizes.size()), {0, int64_t{1} << 40});
    kernel.size_params.push_back(e);
    sizes.push_back(value);
    return e;
  }
  schedule::LoopAxis axis(Expr extent, AxisRole role) {
    return {kernel.context->fresh("x", {0, int64_t{1} << 40}), extent, role};
  }
  const Scalar* load(int32_t p, Expr address) { return s().load(p, dtype_of(p), {address}); }
  DType dtype_of(int32_t p) const {
    return p >= 0 ? kernel.params[static_cast<size_t>(p)].dtype : kernel.scratch[static_cast<size_t>(-1 - p)].dtype;
  }
  const Scalar* f32(double value) { return s().constant(DType::F32, value); }
  const Scalar* op(ScalarOp o, DType dtype, std::initializer_list<const Scalar*> operands) {
    return s().apply(o, dtype, operands);
  }
};

inline schedule::Target target_of(int vector_bytes) {
  schedule::Target target = schedule::cpu_target(1);
  if (vector_bytes < target.vector_bytes) {
    target.vector_bytes = vector_bytes;
    target.cpu = vector_bytes == 32 ? "x86-64-v3" : "x86-64-v2";
    target.has_fma = vector_bytes == 32;
    target.has_bf16_dot = target.has_f16_convert = false;
  }
  return target;
}

// The vector widths that this machine can run.
inline std::vector<int> widths() {
  std::vector<int> result;
  for (int bytes : {64, 32, 16})
    if (bytes <= schedule::cpu_target(1).vector_bytes) result.push_back(bytes);
  return result;
}

inline jit::KernelFunction compiled(const schedule::Kernel& kernel, const schedule::Target& target,
                                    std::shared_ptr<void>& code) {
  const jit::KernelSource source{codegen::kernel_key(kernel, target)};
  std::string text;
  auto emit = [&](std::span<const int32_t>, std::span<const std::string> names) {
    const schedule::Kernel* one[] = {&kernel};
    return text = codegen::emit_cpp(one, names, target);
  };
  auto result = jit::compile(std::span(&source, 1), emit, target);
  REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.why().reason) << text);
  code = (*result)[0].code;
  return (*result)[0].function;
}

// Runs the kernel over [begin, end); returns the error code that it reported.
inline int64_t run(Builder& b, int vector_bytes, std::vector<void*> buffers, int64_t begin, int64_t end) {
  const schedule::Target target = target_of(vector_bytes);
  std::shared_ptr<void> code;
  const jit::KernelFunction f = compiled(b.kernel, target, code);
  int64_t error = 0;
  buffers.push_back(&error);
  f(buffers.data(), b.sizes.data(), begin, end);
  return error;
}

// Values in [-scale, scale), the same for the same seed.
inline std::vector<float> numbers(size_t n, uint32_t seed = 1, float scale = 2) {
  std::vector<float> result(n);
  uint32_t state = seed * 2654435761u + 12345;
  for (float& x : result) {
    state = state * 1664525u + 1013904223u;
    x = (static_cast<float>(state >> 8) / 8388608.f - 1.f) * scale;
  }
  return result;
}

}  // namespace braze::test
