#include "braze/schedule/evaluate.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <unordered_map>

#include "braze/loop/arithmetic.h"

namespace braze::schedule {

using loop::Binding;
using loop::Number;
using loop::ScalarOp;

namespace {

constexpr int64_t kSlices = 3;       // of a kernel's range
constexpr std::byte kPoison{0xa5};

struct Memory {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

template <class T>
T read_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

float half_to_float(uint16_t h) {
  const int exponent = h >> 10 & 31, mantissa = h & 1023;
  const float sign = h >> 15 ? -1.f : 1.f;
  if (exponent == 31) return mantissa == 0 ? sign * std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

uint16_t float_to_half(double value) {   // value is representable
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return 0x7e00;
  if (std::isinf(value)) return sign | 0x7c00;
  if (value == 0) return sign;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);   // in [0.5, 1)
  if (exponent < -13) return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::ldexp(fraction, exponent + 24)));
  const auto mantissa = static_cast<uint16_t>(std::ldexp(fraction, 11) - 1024);
  return static_cast<uint16_t>(sign | (exponent + 14) << 10 | mantissa);
}

Number load_number(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::F32: return {.real = read_as<float>(at)};
    case DType::F64: return {.real = read_as<double>(at)};
    case DType::BF16: return {.real = std::bit_cast<float>(static_cast<uint32_t>(read_as<uint16_t>(at)) << 16)};
    case DType::F16: return {.real = half_to_float(read_as<uint16_t>(at))};
    case DType::Bool: return {.integer = read_as<uint8_t>(at) != 0};
    case DType::U8: return {.integer = read_as<uint8_t>(at)};
    case DType::I8: return {.integer = read_as<int8_t>(at)};
    case DType::I16: return {.integer = read_as<int16_t>(at)};
    case DType::I32: return {.integer = read_as<int32_t>(at)};
    case DType::I64: return {.integer = read_as<int64_t>(at)};
    default: throw EvaluationError("no kernel type");
  }
}

template <class T>
void write_as(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

void store_number(std::byte* at, DType dtype, Number n) {
  switch (dtype) {
    case DType::F32: return write_as(at, static_cast<float>(n.real));
    case DType::F64: return write_as(at, n.real);
    case DType::BF16:
      return write_as(at, static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(n.real)) >> 16));
    case DType::F16: return write_as(at, float_to_half(n.real));
    case DType::Bool: return write_as(at, static_cast<uint8_t>(n.integer != 0));
    case DType::U8: return write_as(at, static_cast<uint8_t>(n.integer));
    case DType::I8: return write_as(at, static_cast<int8_t>(n.integer));
    case DType::I16: return write_as(at, static_cast<int16_t>(n.integer));
    case DType::I32: return write_as(at, static_cast<int32_t>(n.integer));
    case DType::I64: return write_as(at, n.integer);
    default: throw EvaluationError("no kernel type");
  }
}

// The value with which a running reduction starts; ArgMax and ArgMin have none.
Number neutral(ReduceOp op, DType dtype) {
  const bool real = is_floating(dtype);
  const double inf = std::numeric_limits<double>::infinity();
  const auto bits = static_cast<int>(size_of(dtype)) * 8;
  switch (op) {
    case ReduceOp::Sum: case ReduceOp::Any: case ReduceOp::Xor: return {};
    case ReduceOp::Prod: case ReduceOp::All: return real ? Number{.real = 1} : Number{.integer = 1};
    case ReduceOp::Max: case ReduceOp::Min: {
      const bool low = op == ReduceOp::Max;
      if (real) return {.real = low ? -inf : inf};
      if (dtype == DType::Bool) return {.integer = low ? 0 : 1};
      if (dtype == DType::U8) return {.integer = low ? 0 : 255};
      const int64_t greatest = bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (bits - 1)) - 1;
      return {.integer = low ? -greatest - 1 : greatest};
    }
    case ReduceOp::ArgMax: case ReduceOp::ArgMin: break;
  }
  return {};
}

Number combine(ReduceOp op, DType dtype, Number a, Number b) {
  const Number operands[] = {a, b};
  const auto apply = [&](ScalarOp scalar) { return loop::compute(scalar, dtype, dtype, operands); };
  switch (op) {
    case ReduceOp::Sum: return apply(ScalarOp::Add);
    case ReduceOp::Prod: return apply(ScalarOp::Mul);
    case ReduceOp::Max: return apply(ScalarOp::Maximum);
    case ReduceOp::Min: return apply(ScalarOp::Minimum);
    case ReduceOp::Any: return apply(ScalarOp::BitOr);
    case ReduceOp::All: return apply(ScalarOp::BitAnd);
    case ReduceOp::Xor: return apply(ScalarOp::BitXor);
    case ReduceOp::ArgMax: case ReduceOp::ArgMin: break;
  }
  throw EvaluationError("no combination");
}

ReduceOp reduce_op(Store::Combine combine) {
  switch (combine) {
    case Store::Combine::Overwrite: break;
    case Store::Combine::Add: return ReduceOp::Sum;
    case Store::Combine::Max: return ReduceOp::Max;
    case Store::Combine::Min: return ReduceOp::Min;
    case Store::Combine::Mul: return ReduceOp::Prod;
  }
  throw EvaluationError("no combination");
}

class KernelRun {
 public:
  KernelRun(const Kernel& kernel, std::vector<Memory> params, std::unordered_map<Expr, int64_t> sizes)
      : kernel_(kernel), params_(std::move(params)), values_(std::move(sizes)) {}

  void run(int64_t begin, int64_t end) {
    scratch_.clear();
    for (const Scratch& s : kernel_.scratch)
      scratch_.emplace_back(static_cast<size_t>(value(s.elements) * size_of(s.dtype)), kPoison);
    for (int64_t p = begin; p < end; ++p) {
      for (auto& s : scratch_) std::fill(s.begin(), s.end(), kPoison);
      int64_t rest = p;
      for (size_t k = kernel_.parallel.size(); k-- > 0;) {
        const int64_t extent = value(kernel_.parallel[k].extent);
        values_[kernel_.parallel[k].symbol] = rest % extent;
        rest /= extent;
      }
      reduced_.clear();
      for (const Stage& stage : kernel_.stages) nest(stage.kept, 0, [&] { run_stage(stage); });
    }
  }

 private:
  struct Running {
    Number value;
    int64_t index = 0;
    bool started = false;
  };

  int64_t value(Expr e) {
    return sym::evaluate(e, [&](Expr symbol) {
      const auto it = values_.find(symbol);
      if (it == values_.end()) throw EvaluationError("symbol without a value: " + sym::to_string(symbol));
      return it->second;
    });
  }

  template <class F>
  void nest(const std::vector<LoopAxis>& axes, size_t k, const F& body) {
    if (k == axes.size()) return body();
    const int64_t extent = value(axes[k].extent);
    for (int64_t i = 0; i < extent; ++i) {
      values_[axes[k].symbol] = i;
      nest(axes, k + 1, body);
    }
  }

  void run_stage(const Stage& stage) {
    if (stage.accumulators.empty()) {
      nest(stage.loops, 0, [&] {
        store_all(stage.inner_stores);
        store_all(stage.stores);
      });
      return;
    }
    start(stage);
    nest(stage.loops, 0, [&] {
      if (stage.scan && !stage.loops.empty() && values_[stage.loops.back().symbol] == 0) start(stage);
      known_.clear();
      if (stage.exclusive) store_all(stage.inner_stores);
      known_.clear();
      for (const Accumulator& acc : stage.accumulators) accumulate(acc);
      if (!stage.exclusive) store_all(stage.inner_stores);
    });
    store_all(stage.stores);
  }

  void start(const Stage& stage) {
    for (const Accumulator& acc : stage.accumulators) reduced_[acc.number] = {neutral(acc.op, acc.dtype)};
  }

  void accumulate(const Accumulator& acc) {
    const Number next = scalar(acc.value);
    Running& running = reduced_[acc.number];
    if (acc.op != ReduceOp::ArgMax && acc.op != ReduceOp::ArgMin) {
      running.value = combine(acc.op, acc.dtype, running.value, next);
      return;
    }
    const bool real = is_floating(acc.dtype), largest = acc.op == ReduceOp::ArgMax;
    bool better = !running.started;
    if (!better && real) {
      better = std::isnan(next.real) ? !std::isnan(running.value.real)
                                     : !std::isnan(running.value.real) &&
                                           (largest ? next.real > running.value.real : next.real < running.value.real);
    } else if (!better) {
      better = largest ? next.integer > running.value.integer : next.integer < running.value.integer;
    }
    if (better) running = {next, value(acc.index), true};
    running.started = true;
  }

  void store_all(const std::vector<Store>& stores) {
    known_.clear();
    struct Write { std::byte* at; DType dtype; Number value; Store::Combine combine; };
    std::vector<Write> writes;
    for (const Store& store : stores) {
      const Number n = scalar(store.value);
      bind(store.bindings);
      writes.push_back({place(store.buffer, value(store.address), store.value->dtype), store.value->dtype, n, store.combine});
    }
    for (const Write& w : writes) {
      Number n = w.value;
      if (w.combine != Store::Combine::Overwrite)
        n = combine(reduce_op(w.combine), w.dtype, load_number(w.at, w.dtype), n);
      store_number(w.at, w.dtype, n);
    }
  }

  std::byte* place(int32_t buffer, int64_t element, DType dtype) {
    Memory memory;
    if (buffer >= 0) {
      memory = params_.at(static_cast<size_t>(buffer));
      if (kernel_.params[static_cast<size_t>(buffer)].dtype != dtype) throw EvaluationError("a parameter of another type");
    } else {
      auto& s = scratch_.at(static_cast<size_t>(-1 - buffer));
      memory = {s.data(), static_cast<int64_t>(s.size())};
    }
    const int64_t at = element * size_of(dtype);
    if (at < 0 || at + size_of(dtype) > memory.bytes)
      throw EvaluationError(fmt::format("element {} of parameter {} is out of bounds ({} bytes)", element, buffer, memory.bytes));
    return memory.data + at;
  }

  void bind(const std::vector<Binding>& bindings) {
    for (const Binding& b : bindings) {
      const int64_t index = scalar(b.value).integer;
      if (index < 0 || index >= value(b.extent)) throw EvaluationError("index out of range");
      values_[b.symbol] = index;
    }
  }

  Number scalar(const Scalar* s) {
    if (const auto it = known_.find(s); it != known_.end()) return it->second;
    const Number n = compute(s);
    known_.emplace(s, n);
    return n;
  }

  Number compute(const Scalar* s) {
    switch (s->op) {
      case ScalarOp::Constant: return {s->real, s->integer};
      case ScalarOp::Index: return {.integer = value(s->indices[0])};
      case ScalarOp::Reduced: {
        const auto it = reduced_.find(static_cast<int32_t>(s->integer));
        if (it == reduced_.end()) throw EvaluationError("a result that is not there yet");
        return it->second.started ? Number{.integer = it->second.index} : it->second.value;
      }
      case ScalarOp::Load: {
        if (!s->operands.empty() && scalar(s->operands[0]).integer == 0) return scalar(s->operands[1]);
        bind(s->bindings);
        return load_number(place(s->buffer, value(s->indices[0]), s->dtype), s->dtype);
      }
      case ScalarOp::Cast: return loop::convert(scalar(s->operands[0]), s->operands[0]->dtype, s->dtype);
      case ScalarOp::Bitcast: return loop::bitcast(scalar(s->operands[0]), s->operands[0]->dtype, s->dtype);
      default: break;
    }
    std::vector<Number> operands;
    for (const Scalar* operand : s->operands) operands.push_back(scalar(operand));
    try {
      return loop::compute(s->op, s->dtype, s->operands.back()->dtype, operands);
    } catch (const std::domain_error& e) {
      throw EvaluationError(e.what());
    }
  }

  const Kernel& kernel_;
  std::vector<Memory> params_;
  std::unordered_map<Expr, int64_t> values_;
  std::vector<std::vector<std::byte>> scratch_;
  std::unordered_map<int32_t, Running> reduced_;
  std::unordered_map<const Scalar*, Number> known_;   // of this iteration
};

}  // namespace

struct Evaluation::Impl {
  const Program& program;
  std::vector<const void*> inputs;
  ValueOf value_of;
  Call call;
  Launch launch;
  std::vector<Memory> memory;                       // by buffer
  std::vector<std::vector<std::byte>> own;
  std::vector<std::byte> arena;

  int64_t value(Expr e) const { return e.is_constant() ? e.constant() : sym::evaluate(e, value_of); }

  // Elements that a strided tensor reaches.
  int64_t reach(const Shape& sizes, const Shape& strides) const {
    int64_t last = 0;
    for (size_t k = 0; k < sizes.size(); ++k) {
      if (value(sizes[k]) == 0) return 0;
      last += (value(sizes[k]) - 1) * value(strides[k]);
    }
    return last + 1;
  }

  void allocate() {
    arena.assign(static_cast<size_t>(value(program.arena_bytes)), kPoison);
    memory.resize(program.buffers.size());
    for (size_t i = 0; i < program.buffers.size(); ++i) {
      const BufferPlan& b = program.buffers[i];
      const int64_t bytes = reach(b.sizes, b.strides) * size_of(b.dtype);
      switch (b.place) {
        case Place::Input: case Place::Constant:
          if (b.input >= 0 && inputs.at(static_cast<size_t>(b.input)) != nullptr)
            memory[i] = {static_cast<std::byte*>(const_cast<void*>(inputs[static_cast<size_t>(b.input)])), bytes};
          break;
        case Place::Output: case Place::Call: case Place::Block:
          own.emplace_back(static_cast<size_t>(bytes), kPoison);
          memory[i] = {own.back().data(), bytes};
          break;
        case Place::Arena:
          if (b.bytes == Expr(0)) break;
          if (value(b.arena_offset) + bytes > value(program.arena_bytes)) throw EvaluationError("outside of the arena");
          memory[i] = {arena.data() + value(b.arena_offset), bytes};
          break;
        case Place::Alias: break;
      }
    }
    for (size_t i = 0; i < program.buffers.size(); ++i) {
      size_t base = i;
      while (program.buffers[base].place == Place::Alias) base = static_cast<size_t>(program.buffers[base].alias_of);
      memory[i] = memory[base];
    }
  }

  const std::byte* at(const View& view) const {
    if (view.buffer < 0) return nullptr;
    const auto i = static_cast<size_t>(view.buffer);
    return memory[i].data + value(view.offset) * size_of(program.buffers[i].dtype);
  }

  void run(const LaunchStep& step) {
    const Kernel& kernel = program.kernels.at(static_cast<size_t>(step.kernel));
    std::vector<Memory> params;
    for (const View& view : step.params) {
      const Memory& m = memory[static_cast<size_t>(view.buffer)];
      const int64_t offset = value(view.offset) * size_of(program.buffers[static_cast<size_t>(view.buffer)].dtype);
      params.push_back({m.data + offset, m.bytes - offset});
    }
    std::unordered_map<Expr, int64_t> sizes;
    std::vector<int64_t> size_list;
    for (size_t k = 0; k < step.sizes.size(); ++k) {
      const int64_t n = value(step.sizes[k]);
      const sym::Range range = kernel.size_params[k].range();
      if (n < range.low || n > range.high) throw EvaluationError("a size outside of its parameter's range");
      sizes[kernel.size_params[k]] = n;
      size_list.push_back(n);
    }
    const int64_t range = value(step.range), grain = value(step.grain);
    const int64_t slice = std::max<int64_t>(grain, (range / kSlices + grain - 1) / grain * grain);
    if (launch) {
      std::vector<std::byte*> pointers;
      for (const Memory& m : params) pointers.push_back(m.data);
      for (int64_t begin = (range - 1) / slice * slice; begin >= 0; begin -= slice)
        launch(kernel, pointers, size_list, begin, std::min(range, begin + slice));
      return;
    }
    KernelRun run(kernel, std::move(params), std::move(sizes));
    // Backwards: no slice may count on an earlier one.
    for (int64_t begin = (range - 1) / slice * slice; begin >= 0; begin -= slice) run.run(begin, std::min(range, begin + slice));
  }

  void run(const CallStep& step) {
    if (!call) throw EvaluationError("no way to run a call");
    std::vector<const std::byte*> operands;
    std::vector<std::byte*> results;
    for (const View& view : step.operands) operands.push_back(at(view));
    for (int32_t id : step.results) results.push_back(id < 0 ? nullptr : memory[static_cast<size_t>(id)].data);
    call(step, operands, results);
  }

  void run(const CopyStep&) { throw EvaluationError("copies are the runtime's"); }
};

Evaluation::Evaluation(const Program& program, std::vector<const void*> inputs, ValueOf value_of, Call call,
                       Launch launch)
    : impl_(new Impl{program, std::move(inputs), std::move(value_of), std::move(call), std::move(launch), {}, {}, {}}) {}
Evaluation::~Evaluation() = default;

void Evaluation::run() {
  impl_->allocate();
  for (const Step& step : impl_->program.steps) std::visit([&](const auto& s) { impl_->run(s); }, step);
}

const std::byte* Evaluation::output(size_t i) const { return impl_->at(impl_->program.outputs.at(i)); }
const std::byte* Evaluation::memory(const View& view) const { return impl_->at(view); }

}  // namespace braze::schedule
