#include "braze/loop/evaluate.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <unordered_map>

#include "braze/support/check.h"

namespace braze::loop {
namespace {

using Environment = std::unordered_map<Expr, int64_t>;

int64_t value_of(Expr e, const Environment& environment) {
  return sym::evaluate(e, [&](Expr symbol) { return environment.at(symbol); });
}

std::vector<int64_t> values_of(const Shape& shape, const Environment& environment) {
  std::vector<int64_t> out;
  for (const Expr& e : shape) out.push_back(value_of(e, environment));
  return out;
}

int64_t product_of(std::span<const int64_t> sizes) {
  int64_t out = 1;
  for (const int64_t size : sizes) out *= size;
  return out;
}

// Calls f for each index in row-major order.
template <class F>
void for_each_index(std::span<const int64_t> sizes, F&& f) {
  std::vector<int64_t> at(sizes.size(), 0);
  for (int64_t left = product_of(sizes); left > 0; --left) {
    f(at);
    for (size_t k = sizes.size(); k-- > 0;) {
      if (++at[k] < sizes[k]) break;
      at[k] = 0;
    }
  }
}

bool exceeds(Number a, Number b, DType dtype, bool is_max) {   // a is a new extreme
  if (is_floating(dtype)) {
    if (std::isnan(a.real)) return !std::isnan(b.real);
    return is_max ? a.real > b.real : a.real < b.real;
  }
  return is_max ? a.integer > b.integer : a.integer < b.integer;
}

Number combine(ReduceOp op, DType dtype, Number a, Number b) {
  const Number both[] = {a, b};
  switch (op) {
    case ReduceOp::Sum: return compute(ScalarOp::Add, dtype, dtype, both);
    case ReduceOp::Prod: return compute(ScalarOp::Mul, dtype, dtype, both);
    case ReduceOp::Max: return compute(ScalarOp::Maximum, dtype, dtype, both);
    case ReduceOp::Min: return compute(ScalarOp::Minimum, dtype, dtype, both);
    case ReduceOp::Any: return compute(ScalarOp::BitOr, dtype, dtype, both);
    case ReduceOp::All: return compute(ScalarOp::BitAnd, dtype, dtype, both);
    case ReduceOp::Xor: return compute(ScalarOp::BitXor, dtype, dtype, both);
    case ReduceOp::ArgMax: case ReduceOp::ArgMin: break;
  }
  CHECK(false, "an index is not combined");
  return {};
}

Number neutral(ReduceOp op, DType dtype) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (op) {
    case ReduceOp::Sum: case ReduceOp::Any: case ReduceOp::Xor: return number_of_int(dtype, 0);
    case ReduceOp::Prod: case ReduceOp::All: return number_of_int(dtype, 1);
    case ReduceOp::Max: case ReduceOp::ArgMax:
      if (is_floating(dtype)) return number_of(dtype, -kInfinity);
      return {.integer = dtype == DType::U8 ? 0 : -(int64_t{1} << (size_of(dtype) * 8 - 2)) * 2};
    case ReduceOp::Min: case ReduceOp::ArgMin:
      if (is_floating(dtype)) return number_of(dtype, kInfinity);
      return {.integer = dtype == DType::U8 ? 255 : (int64_t{1} << (size_of(dtype) * 8 - 2)) - 1 +
                                                        (int64_t{1} << (size_of(dtype) * 8 - 2))};
  }
  return {};
}

class Evaluator {
 public:
  Evaluator(const LoopProgram& program, std::span<const int64_t> sizes, std::span<const HostTensor> inputs,
            const RunExtern& run_extern)
      : program_(program), inputs_(inputs), run_extern_(run_extern) {
    const auto& symbols = program.env->symbols();
    CHECK(symbols.size() == sizes.size());
    for (size_t k = 0; k < sizes.size(); ++k) environment_[symbols[k]] = sizes[k];
  }

  Evaluation operator()() {
    values_.resize(program_.buffers.size());
    std::vector<bool> called(program_.calls.size());
    for (const Buffer& b : program_.buffers) {
      if (b.kind == BufferKind::Extern) {
        const auto call = static_cast<size_t>(b.call);
        if (!called[call]) run_call(program_.calls[call]);
        called[call] = true;
      } else if (b.kind == BufferKind::Input) {
        values_[static_cast<size_t>(b.id)] = inputs_[static_cast<size_t>(b.input)];
        CHECK(values_[static_cast<size_t>(b.id)].sizes == values_of(b.sizes, environment_));
      } else {
        compute_buffer(b);
      }
    }
    Evaluation out;
    for (const OutputRef& output : program_.outputs)
      out.outputs.push_back(output.view.buffer < 0 ? HostTensor{} : read(output.view));
    for (const auto& mutation : program_.mutations) out.mutations.push_back(read(mutation.value));
    return out;
  }

 private:
  const Buffer& buffer(int32_t id) const { return program_.buffers[static_cast<size_t>(id)]; }

  // The elements that a strided view of a buffer shows.
  HostTensor read(const View& view) const {
    const Buffer& b = buffer(view.buffer);
    const HostTensor& value = values_[static_cast<size_t>(view.buffer)];
    const auto strides = values_of(b.strides, environment_);
    std::unordered_map<int64_t, Number> storage;
    size_t next = 0;
    for_each_index(value.sizes, [&](const std::vector<int64_t>& at) {
      int64_t address = 0;
      for (size_t k = 0; k < at.size(); ++k) address += at[k] * strides[k];
      storage[address] = value.data[next++];
    });
    HostTensor out{b.dtype, values_of(view.sizes, environment_), {}};
    const auto view_strides = values_of(view.strides, environment_);
    const int64_t offset = value_of(view.offset, environment_);
    for_each_index(out.sizes, [&](const std::vector<int64_t>& at) {
      int64_t address = offset;
      for (size_t k = 0; k < at.size(); ++k) address += at[k] * view_strides[k];
      out.data.push_back(storage.at(address));
    });
    return out;
  }

  void run_call(const ExternCall& call) {
    CHECK(static_cast<bool>(run_extern_), "nobody runs " << call.node->op->name);
    std::vector<HostTensor> operands;
    for (const View& view : call.operands) operands.push_back(read(view));
    std::vector<HostTensor> results = run_extern_(call, operands);
    CHECK(results.size() == call.results.size());
    for (size_t k = 0; k < results.size(); ++k)
      if (call.results[k] >= 0) values_[static_cast<size_t>(call.results[k])] = std::move(results[k]);
  }

  // ---- Bodies

  Number load(const Scalar& s, std::unordered_map<const Scalar*, Number>& done) {
    for (const Binding& b : s.bindings) {
      const int64_t index = evaluate(b.value, done).integer;
      if (s.operands.empty() || done.at(s.operands[0]).integer != 0)
        if (index < 0 || index >= value_of(b.extent, environment_)) throw std::out_of_range("index out of range");
      environment_[b.symbol] = index;
    }
    if (!s.operands.empty() && done.at(s.operands[0]).integer == 0) return done.at(s.operands[1]);
    const HostTensor& source = values_[static_cast<size_t>(s.buffer)];
    int64_t flat = 0;
    for (size_t k = 0; k < s.indices.size(); ++k) {
      const int64_t index = value_of(s.indices[k], environment_);
      CHECK(index >= 0);
      CHECK(index < source.sizes[k], buffer(s.buffer).name << "[" << to_string(s.indices[k]) << "]");
      flat = flat * source.sizes[k] + index;
    }
    return source.data[static_cast<size_t>(flat)];
  }

  Number evaluate(const Scalar* s, std::unordered_map<const Scalar*, Number>& done) {
    if (const auto it = done.find(s); it != done.end()) return it->second;
    std::vector<Number> operands;
    for (const Scalar* operand : s->operands) operands.push_back(evaluate(operand, done));
    Number out;
    switch (s->op) {
      case ScalarOp::Constant: out = {s->real, s->integer}; break;
      case ScalarOp::Index: out = {.integer = value_of(s->indices[0], environment_)}; break;
      case ScalarOp::Load: out = load(*s, done); break;
      case ScalarOp::Reduced: CHECK(false, "a reduced value outside of a kernel"); break;
      default: out = compute(s->op, s->dtype, s->operands.back()->dtype, operands);
    }
    done.emplace(s, out);
    return out;
  }

  Number evaluate(const Scalar* s) {
    std::unordered_map<const Scalar*, Number> done;
    return evaluate(s, done);
  }

  void enter(std::span<const Axis> axes, const std::vector<int64_t>& at) {
    for (size_t k = 0; k < axes.size(); ++k) environment_[axes[k].symbol] = at[k];
  }

  std::vector<int64_t> extents(std::span<const Axis> axes) const {
    std::vector<int64_t> out;
    for (const Axis& axis : axes) out.push_back(value_of(axis.extent, environment_));
    return out;
  }

  // ---- Buffers

  void compute_buffer(const Buffer& b) {
    HostTensor out{b.dtype, values_of(b.sizes, environment_), {}};
    out.data.reserve(static_cast<size_t>(product_of(out.sizes)));
    for_each_index(out.sizes, [&](const std::vector<int64_t>& at) {
      enter(b.axes, at);
      out.data.push_back(element(b, at));
    });
    if (b.kind == BufferKind::Scan) scan(b, out);
    if (b.kind == BufferKind::Scatter) scatter(b, out);
    values_[static_cast<size_t>(b.id)] = std::move(out);
  }

  // Of a scan: the element before it is summed up, in the type of the running value.
  Number element(const Buffer& b, const std::vector<int64_t>& at) {
    switch (b.kind) {
      case BufferKind::Reduction: return reduce(b);
      case BufferKind::Cat: {
        const int64_t along = at[static_cast<size_t>(b.cat_axis)];
        for (const Piece& piece : b.pieces) {
          const int64_t begin = value_of(piece.begin, environment_);
          if (along >= begin && along < begin + value_of(piece.extent, environment_)) return evaluate(piece.body);
        }
        CHECK(false, "no piece at " << along);
        return {};
      }
      case BufferKind::Pointwise: case BufferKind::Scan: case BufferKind::Scatter: return evaluate(b.body);
      case BufferKind::Input: case BufferKind::Extern: break;
    }
    CHECK(false);
    return {};
  }

  Number reduce(const Buffer& b) {
    const bool is_index = b.reduce == ReduceOp::ArgMax || b.reduce == ReduceOp::ArgMin;
    Number running = neutral(b.reduce, b.accumulate);
    int64_t place = 0, best = 0;
    for_each_index(extents(b.reduce_axes), [&](const std::vector<int64_t>& at) {
      enter(b.reduce_axes, at);
      const Number next = evaluate(b.body);
      if (!is_index) {
        running = combine(b.reduce, b.accumulate, running, next);
      } else if (exceeds(next, running, b.accumulate, b.reduce == ReduceOp::ArgMax)) {
        running = next;
        best = place;
      }
      ++place;
    });
    return is_index ? Number{.integer = best} : convert(running, b.accumulate, b.dtype);
  }

  void scan(const Buffer& b, HostTensor& out) const {
    const auto axis = static_cast<size_t>(b.scan_axis);
    int64_t inner = 1;
    for (size_t k = axis + 1; k < out.sizes.size(); ++k) inner *= out.sizes[k];
    const int64_t length = out.sizes[axis], outer = length == 0 ? 0 : product_of(out.sizes) / (length * inner);
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        Number running = neutral(b.reduce, b.accumulate);
        for (int64_t k = 0; k < length; ++k) {
          Number& at = out.data[static_cast<size_t>((o * length + k) * inner + i)];
          const Number sum = combine(b.reduce, b.accumulate, running, at);
          at = convert(b.exclusive ? running : sum, b.accumulate, b.dtype);
          running = sum;
        }
      }
    }
  }

  void scatter(const Buffer& b, HostTensor& out) {
    for_each_index(extents(b.update_axes), [&](const std::vector<int64_t>& at) {
      enter(b.update_axes, at);
      std::unordered_map<const Scalar*, Number> done;
      for (const Binding& binding : b.update_bindings) {
        const int64_t index = evaluate(binding.value, done).integer;
        if (index < 0 || index >= value_of(binding.extent, environment_))
          throw std::out_of_range("index out of range");
        environment_[binding.symbol] = index;
      }
      int64_t flat = 0;
      for (size_t k = 0; k < b.update_at.size(); ++k)
        flat = flat * out.sizes[k] + value_of(b.update_at[k], environment_);
      Number& place = out.data[static_cast<size_t>(flat)];
      const Number value = evaluate(b.update, done);
      place = b.accumulate_updates ? combine(b.reduce, b.dtype, place, value) : value;
    });
  }

  const LoopProgram& program_;
  std::span<const HostTensor> inputs_;
  const RunExtern& run_extern_;
  Environment environment_;
  std::vector<HostTensor> values_;
};

}  // namespace

Evaluation evaluate(const LoopProgram& program, std::span<const int64_t> sizes, std::span<const HostTensor> inputs,
                    const RunExtern& run_extern) {
  return Evaluator(program, sizes, inputs, run_extern)();
}

}  // namespace braze::loop
