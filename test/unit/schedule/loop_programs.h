// Loop programs made by hand, and the check that a schedule computes what they say.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "braze/graph/graph.h"
#include "braze/loop/evaluate.h"
#include "braze/loop/loop_ir.h"
#include "braze/schedule/evaluate.h"

namespace braze::test {

using loop::Axis;
using loop::Binding;
using loop::Buffer;
using loop::BufferKind;
using loop::Expr;
using loop::Number;
using loop::ReduceOp;
using loop::Scalar;
using loop::ScalarOp;
using loop::Shape;

struct Loops {
  std::shared_ptr<loop::LoopProgram> program = std::make_shared<loop::LoopProgram>();

  Loops() {
    program->env = std::make_shared<sym::ShapeEnv>();
    program->scalars = std::make_unique<loop::ScalarBuilder>();
  }
  sym::Context& context() { return program->env->context(); }
  loop::ScalarBuilder& make() { return *program->scalars; }
  Buffer& buffer(int32_t id) { return program->buffers[static_cast<size_t>(id)]; }

  // Equal positions and extents share a symbol, as in lowered programs.
  std::vector<Axis> axes(const Shape& sizes, const std::string& prefix) {
    std::vector<Axis> out;
    for (size_t k = 0; k < sizes.size(); ++k)
      out.push_back({context().index(prefix + std::to_string(k) + "_" + sym::to_string(sizes[k]), sizes[k]), sizes[k]});
    return out;
  }

  Buffer& add(BufferKind kind, DType dtype, Shape sizes) {
    Buffer b;
    b.id = static_cast<int32_t>(program->buffers.size());
    b.kind = kind;
    b.dtype = dtype;
    b.name = (kind == BufferKind::Input ? "arg" : "buf") + std::to_string(b.id);
    b.sizes = sizes;
    b.strides = graph::contiguous_strides(sizes);
    if (kind == BufferKind::Input) {
      b.input = n_inputs_++;
    } else if (kind != BufferKind::Extern) {
      b.axes = axes(sizes, "i");
    }
    program->buffers.push_back(std::move(b));
    return program->buffers.back();
  }

  int32_t input(DType dtype, Shape sizes) { return add(BufferKind::Input, dtype, std::move(sizes)).id; }
  int32_t strided_input(DType dtype, Shape sizes, Shape strides) {
    Buffer& b = add(BufferKind::Input, dtype, std::move(sizes));
    b.strides = std::move(strides);
    return b.id;
  }

  using Body = std::function<const Scalar*(const std::vector<Expr>& at)>;
  int32_t pointwise(DType dtype, Shape sizes, const Body& body) {
    Buffer& b = add(BufferKind::Pointwise, dtype, std::move(sizes));
    const int32_t id = b.id;
    const Scalar* value = body(symbols(b.axes));
    buffer(id).body = value;
    return id;
  }
  // body gets the axes, then the reduce axes.
  int32_t reduction(ReduceOp op, DType dtype, Shape sizes, Shape reduced, const Body& body) {
    Buffer& b = add(BufferKind::Reduction, dtype, std::move(sizes));
    b.reduce = op;
    b.reduce_axes = axes(reduced, "r");
    b.accumulate = is_floating(dtype) ? (dtype == DType::F64 ? DType::F64 : DType::F32)
                                      : op == ReduceOp::Sum || op == ReduceOp::Prod ? DType::I64 : dtype;
    const int32_t id = b.id;
    std::vector<Expr> at = symbols(b.axes);
    for (const Axis& axis : b.reduce_axes) at.push_back(axis.symbol);
    const Scalar* value = body(at);
    buffer(id).body = value;
    if (op == ReduceOp::ArgMax || op == ReduceOp::ArgMin) buffer(id).accumulate = value->dtype;
    return id;
  }

  void output(int32_t id) {
    const Buffer& b = buffer(id);
    program->outputs.push_back({{id, b.sizes, b.strides, 0}});
  }

  const Scalar* load(int32_t id, std::vector<Expr> at) { return make().load(id, buffer(id).dtype, std::move(at)); }
  const Scalar* op(ScalarOp o, const Scalar* a) { return make().apply(o, a->dtype, {a}); }
  const Scalar* op(ScalarOp o, const Scalar* a, const Scalar* b) { return make().apply(o, a->dtype, {a, b}); }
  const Scalar* num(const Scalar* like, double value) { return make().constant(like->dtype, value); }

  static std::vector<Expr> symbols(const std::vector<Axis>& axes) {
    std::vector<Expr> out;
    for (const Axis& axis : axes) out.push_back(axis.extent == Expr(1) ? Expr(0) : axis.symbol);
    return out;
  }

 private:
  int32_t n_inputs_ = 0;
};

// ---- Both evaluations of one program on the same inputs

struct Check {
  explicit Check(Loops& l) : loops(l) {}
  Loops& loops;
  std::function<int64_t(Expr)> value_of = [](Expr) -> int64_t { throw std::logic_error("no such size"); };
  std::function<Number(DType, uint32_t random)> element = [](DType d, uint32_t random) {
    return is_floating(d) ? loop::number_of(d, static_cast<double>(random % 2000) / 500.0 - 2.0)
                          : loop::number_of_int(d, random % 4);
  };
  schedule::Target target = default_target();
  schedule::ScheduleOptions options;
  schedule::Program program;
  schedule::Evaluation::Launch launch;   // in place of the reference evaluation of kernels
  uint32_t seed = 1;

  static schedule::Target default_target() {
    schedule::Target t = schedule::cpu_target(2);
    t.vector_bytes = 64;
    t.l1_bytes = 32 << 10;
    t.l2_bytes = 1 << 20;
    t.l3_bytes = 32 << 20;
    return t;
  }

  // "" or the first difference.
  std::string run(double tolerance = 1e-5) {
    auto scheduled = schedule::schedule(loops.program, target, options);
    if (!scheduled.ok()) return scheduled.why().reason;
    program = std::move(scheduled).value();
    if (std::string problems = schedule::verify(program); !problems.empty()) return problems;
    std::vector<loop::HostTensor> values;
    std::vector<std::vector<std::byte>> bytes;
    uint32_t state = seed;
    for (const Buffer& b : loops.program->buffers) {
      if (b.kind != BufferKind::Input) continue;
      std::vector<int64_t> sizes, strides;
      int64_t n = 1, reach = 1;
      for (size_t k = 0; k < b.sizes.size(); ++k) {
        sizes.push_back(number(b.sizes[k]));
        strides.push_back(number(b.strides[k]));
        n *= sizes.back();
        reach += (sizes.back() - 1) * strides.back();
      }
      std::vector<std::byte> memory(static_cast<size_t>(std::max<int64_t>(reach, 0) * size_of(b.dtype)));
      loop::HostTensor list{b.dtype, sizes, {}};
      for (int64_t i = 0; i < n; ++i) {
        int64_t rest = i, at = 0;
        for (size_t k = sizes.size(); k-- > 0;) {
          at += rest % sizes[k] * strides[k];
          rest /= sizes[k];
        }
        state = state * 1664525 + 1013904223;
        const Number x = element(b.dtype, state >> 8);
        write(memory.data() + at * size_of(b.dtype), b.dtype, x);
        list.data.push_back(x);
      }
      values.push_back(std::move(list));
      bytes.push_back(std::move(memory));
    }
    std::vector<const void*> pointers;
    for (const auto& memory : bytes) pointers.push_back(memory.data());
    schedule::Evaluation evaluation(program, pointers, value_of, {}, launch);
    try {
      evaluation.run();
    } catch (const std::exception& e) {
      return std::string(e.what()) + "\n" + schedule::print(program);
    }
    std::vector<int64_t> sizes;
    for (Expr symbol : loops.program->env->symbols()) sizes.push_back(value_of(symbol));
    const loop::Evaluation wanted = loop::evaluate(*loops.program, sizes, values);
    for (size_t o = 0; o < program.outputs.size(); ++o)
      if (std::string problem = compare(wanted.outputs[o], evaluation, program.outputs[o], tolerance); !problem.empty())
        return "output " + std::to_string(o) + ": " + problem + "\n" + schedule::print(program);
    return "";
  }

  int64_t number(Expr e) const { return e.is_constant() ? e.constant() : sym::evaluate(e, value_of); }

  static void write(std::byte* at, DType dtype, Number n) {
    const auto put = [at](auto value) { std::memcpy(at, &value, sizeof value); };
    switch (dtype) {
      case DType::F32: return put(static_cast<float>(n.real));
      case DType::F64: return put(n.real);
      case DType::BF16: return put(static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(n.real)) >> 16));
      case DType::I64: return put(n.integer);
      case DType::I32: return put(static_cast<int32_t>(n.integer));
      case DType::Bool: return put(static_cast<uint8_t>(n.integer & 1));
      default: throw std::logic_error("no test type");
    }
  }
  static Number read(const std::byte* at, DType dtype) {
    const auto get = [at](auto value) {
      std::memcpy(&value, at, sizeof value);
      return value;
    };
    switch (dtype) {
      case DType::F32: return {.real = get(0.f)};
      case DType::F64: return {.real = get(0.0)};
      case DType::BF16: return {.real = std::bit_cast<float>(static_cast<uint32_t>(get(uint16_t{0})) << 16)};
      case DType::I64: return {.integer = get(int64_t{0})};
      case DType::I32: return {.integer = get(int32_t{0})};
      case DType::Bool: return {.integer = get(uint8_t{0})};
      default: throw std::logic_error("no test type");
    }
  }

  std::string compare(const loop::HostTensor& wanted, const schedule::Evaluation& got, const loop::View& view,
                      double tolerance) const {
    const std::byte* memory = got.memory(view);
    const DType dtype = wanted.dtype;
    for (size_t i = 0; i < wanted.data.size(); ++i) {
      int64_t rest = static_cast<int64_t>(i), at = 0;
      for (size_t k = wanted.sizes.size(); k-- > 0;) {
        at += rest % wanted.sizes[k] * number(view.strides[k]);
        rest /= wanted.sizes[k];
      }
      const double x = loop::as_double(wanted.data[i], dtype), y = loop::as_double(read(memory + at * size_of(dtype), dtype), dtype);
      if (std::isnan(x) && std::isnan(y)) continue;
      if (!(std::abs(x - y) <= tolerance * (1 + std::abs(x))) && x != y)
        return "element " + std::to_string(i) + " is " + std::to_string(y) + ", not " + std::to_string(x);
    }
    return "";
  }

  size_t launches() const {
    size_t n = 0;
    for (const schedule::Step& step : program.steps) n += std::holds_alternative<schedule::LaunchStep>(step);
    return n;
  }
  const schedule::Kernel& kernel(size_t i) const { return program.kernels.at(i); }
};

}  // namespace braze::test
