// Kernels with canonical names: axes p0, p1, ... and i0, i1, ...; size parameters k0, k1, ... and buffer parameters in
// order of first use. Two layers of one shape, or of two shapes that differ in sizes only, give the same text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "braze/schedule/cost.h"
#include "braze/schedule/shape.h"
#include "braze/support/check.h"

namespace braze::schedule {
namespace {

constexpr int64_t kLiteral = 4;      // steps and offsets up to this size stay constants: windows, interleaved pairs

class KernelMaker {
 public:
  KernelMaker(Work& work, const Nest& nest, const Plan& plan) : work_(work), nest_(nest), plan_(plan) {
    kernel().context = std::make_shared<sym::Context>();
    kernel().scalars = std::make_shared<ScalarBuilder>();
  }

  Shaped run() {
    kernel().kind = plan_.kind;
    kernel().note = nest_.note;
    for (const LoopAxis& axis : plan_.parallel) kernel().parallel.push_back(declare(axis, "p", next_parallel_));
    for (size_t s = 0; s < nest_.stages.size(); ++s) make_stage(s);
    for (const Scratch& scratch : nest_.scratch) kernel().scratch.push_back({scratch.dtype, size(scratch.elements)});
    finish();
    return std::move(out_);
  }

 private:
  Kernel& kernel() { return out_.kernel; }

  // ---- Expressions

  bool is_axis(Expr symbol) const { return axes_.contains(symbol); }

  bool mentions_axis(Expr e) {
    if (e.is_constant()) return false;
    if (e.is_symbol()) return is_axis(e);
    const auto [it, is_new] = mentions_.try_emplace(e, false);
    if (!is_new) return it->second;
    bool found = false;
    for (Expr operand : e.operands()) found = found || mentions_axis(operand);
    return mentions_[e] = found;
  }

  // A value that is the same in the whole kernel: a small constant, or a size parameter.
  Expr size(Expr e, int64_t literal = kLiteral) {
    if (const auto c = e.maybe_constant()) {
      if (std::abs(*c) <= literal) return e;
      if (*c < 0) return Expr(-1) * size(-*c);
    }
    const auto [it, is_new] = sizes_.try_emplace(e);
    if (is_new) {
      sym::Range range{2, sym::kInf};
      if (!e.is_constant()) range = {e.range().low, sym::kInf};
      it->second = kernel().context->symbol(fmt::format("k{}", out_.sizes.size()), range);
      kernel().size_params.push_back(it->second);
      out_.sizes.push_back(e);
    }
    return it->second;
  }

  // Over the kernel's symbols. Axes that were merged or split are already replaced.
  Expr map(Expr e) {
    if (!mentions_axis(e)) return size(e);
    if (e.is_symbol()) return axes_.at(e);
    const auto [it, is_new] = mapped_.try_emplace(e);
    if (!is_new) return it->second;
    const Expr made = map_node(e);
    return mapped_[e] = made;
  }

  Expr map_node(Expr e) {
    switch (e.op()) {
      case sym::Op::Add: case sym::Op::Mul: {
        const bool is_sum = e.op() == sym::Op::Add;
        Expr free = is_sum ? 0 : 1, bound = free;
        // In the order of the kernel's axes, so that size parameters are numbered alike whatever the sizes are.
        std::vector<Expr> operands(e.operands().begin(), e.operands().end());
        std::ranges::stable_sort(operands, {}, [&](Expr operand) { return rank_of(operand); });
        for (Expr operand : operands) {
          Expr& part = mentions_axis(operand) ? bound : free;
          const Expr value = mentions_axis(operand) ? map(operand) : operand;
          part = is_sum ? part + value : part * value;
        }
        return is_sum ? bound + size(free) : size(free) * bound;
      }
      case sym::Op::FloorDiv: return sym::floor_div(map(e.operands()[0]), divisor(e.operands()[1]));
      case sym::Op::Mod: return sym::mod(map(e.operands()[0]), divisor(e.operands()[1]));
      case sym::Op::Min: return fold(e, sym::min);
      case sym::Op::Max: return fold(e, sym::max);
      case sym::Op::Eq: return sym::eq(map(e.operands()[0]), map(e.operands()[1]));
      case sym::Op::Ne: return sym::ne(map(e.operands()[0]), map(e.operands()[1]));
      case sym::Op::Lt: return sym::lt(map(e.operands()[0]), map(e.operands()[1]));
      case sym::Op::Le: return sym::le(map(e.operands()[0]), map(e.operands()[1]));
      case sym::Op::And: return fold(e, sym::logical_and);
      case sym::Op::Or: return fold(e, sym::logical_or);
      case sym::Op::Not: return sym::logical_not(map(e.operands()[0]));
      case sym::Op::Constant: case sym::Op::Symbol: break;
    }
    CHECK(false, "no node: " << e);
    return 0;
  }

  // Of the axis, declared first, that an expression mentions.
  int rank_of(Expr e) {
    if (!mentions_axis(e)) return std::numeric_limits<int>::max();
    std::vector<Expr> symbols;
    sym::collect_symbols(e, symbols);
    int rank = std::numeric_limits<int>::max();
    for (Expr s : symbols)
      if (const auto it = ranks_.find(s); it != ranks_.end()) rank = std::min(rank, it->second);
    return rank;
  }

  // Divisors stay constants: dividing by a parameter is many times slower.
  Expr divisor(Expr e) { return e.is_constant() ? e : map(e); }

  Expr fold(Expr e, Expr (*op)(Expr, Expr)) {
    Expr out = divisor(e.operands()[0]);
    for (Expr operand : e.operands().subspan(1)) out = op(out, divisor(operand));
    return out;
  }

  Expr address(Expr e) { return map(plan_.symbols.empty() ? e : sym::substitute(e, plan_.symbols)); }

  // ---- Axes

  LoopAxis declare(const LoopAxis& axis, const char* prefix, int& next) {
    const Expr extent = divisor(axis.extent);
    const Expr made = mentions_axis(axis.extent) ? extent : size(axis.extent, 1);
    const Expr symbol = kernel().context->index(fmt::format("{}{}", prefix, next++), made);
    CHECK(axes_.emplace(axis.symbol, symbol).second, "an axis of two loops: " << axis.symbol);
    ranks_.emplace(axis.symbol, static_cast<int>(ranks_.size()));
    return {symbol, made, axis.role};
  }

  // ---- Scalars

  int32_t param(int32_t buffer) {
    if (buffer < 0) return buffer;
    const auto [it, is_new] = params_.try_emplace(buffer, static_cast<int32_t>(out_.params.size()));
    if (is_new) {
      out_.params.push_back(buffer);
      kernel().params.push_back({work_.buffer(buffer).dtype});
    }
    return it->second;
  }

  std::vector<Binding> bindings(const std::vector<Binding>& from) {
    std::vector<Binding> out;
    for (const Binding& b : from) {
      const Scalar* value = scalar(b.value);
      const auto [it, is_new] = axes_.try_emplace(b.symbol);
      const Expr extent = size(b.extent);
      if (is_new) {
        it->second = kernel().context->index(fmt::format("g{}", next_binding_++), extent);
        ranks_.emplace(b.symbol, static_cast<int>(ranks_.size()));
      }
      out.push_back({it->second, value, extent});
    }
    return out;
  }

  const Scalar* scalar(const Scalar* s) {
    if (const auto it = scalars_.find(s); it != scalars_.end()) return it->second;
    ScalarBuilder& make = *kernel().scalars;
    std::vector<const Scalar*> operands;
    for (const Scalar* operand : s->operands) operands.push_back(scalar(operand));
    const Scalar* out = nullptr;
    switch (s->op) {
      case ScalarOp::Load: {
        std::vector<Binding> own = bindings(s->bindings);
        const int32_t number = param(s->buffer);
        if (number >= 0) kernel().params[static_cast<size_t>(number)].read = true;
        const Expr at = address(s->indices[0]);
        out = operands.empty() ? make.load(number, s->dtype, {at}, std::move(own))
                               : make.load_masked(number, s->dtype, {at}, std::move(own), operands[0], operands[1]);
        break;
      }
      case ScalarOp::Index: out = make.index(address(s->indices[0])); break;
      case ScalarOp::Constant: out = make.constant_like(*s); break;
      case ScalarOp::Reduced: out = make.reduced(s->dtype, s->integer); break;
      case ScalarOp::Div: out = make.apply(s->op, s->dtype, {operands[0], as_size(*s->operands[1], operands[1])}); break;
      default: out = make.apply(s->op, s->dtype, operands); break;
    }
    scalars_.emplace(s, out);
    return out;
  }

  // The divisor of a mean is the size of what was summed: as a size parameter it lets layers of other widths share the
  // kernel.
  const Scalar* as_size(const Scalar& source, const Scalar* constant) {
    if (source.op != ScalarOp::Constant || !is_floating(source.dtype) || size_of(source.dtype) < 4) return constant;
    const double value = source.real;
    if (!(value > kLiteral) || value > (1 << 24) || value != std::floor(value)) return constant;
    const auto it = sizes_.find(Expr(static_cast<int64_t>(value)));
    if (it == sizes_.end()) return constant;
    return kernel().scalars->cast(kernel().scalars->index(it->second), source.dtype);
  }

  // ---- Stages

  void make_stage(size_t s) {
    const NestStage& from = nest_.stages[s];
    Stage to;
    to.scan = from.scan;
    to.exclusive = from.exclusive;
    for (const LoopAxis& axis : plan_.kept[s]) to.kept.push_back(declare(axis, "i", next_loop_));
    for (const LoopAxis& axis : plan_.loops[s]) to.loops.push_back(declare(axis, "i", next_loop_));
    for (const Accumulator& acc : from.accumulators) {
      Accumulator made = acc;
      made.value = scalar(acc.value);
      if (acc.op == ReduceOp::ArgMax || acc.op == ReduceOp::ArgMin) made.index = address(acc.index);
      to.accumulators.push_back(made);
    }
    for (const Store& store : from.inner_stores) to.inner_stores.push_back(make_store(store));
    for (const Store& store : from.stores) to.stores.push_back(make_store(store));
    count(to);
    kernel().stages.push_back(std::move(to));
  }

  Store make_store(const Store& from) {
    Store to = from;
    to.value = scalar(from.value);
    to.bindings = bindings(from.bindings);
    to.buffer = param(from.buffer);
    to.address = address(from.address);
    if (to.buffer >= 0) {
      KernelParam& p = kernel().params[static_cast<size_t>(to.buffer)];
      p.written = true;
      if (to.combine != Store::Combine::Overwrite) p.read = true;
    }
    return to;
  }

  // ---- Cost

  // Adds the stage's time for one parallel index.
  void count(const Stage& stage) {
    std::vector<Expr> moving;
    for (const auto* axes : {&stage.kept, &stage.loops})
      for (const LoopAxis& axis : *axes) moving.push_back(axis.symbol);
    if (!kernel().parallel.empty() && kernel().parallel.back().role == AxisRole::Vector)
      moving.push_back(kernel().parallel.back().symbol);
    double ns = 0;
    std::unordered_map<const Scalar*, bool> moves;
    const auto add = [&](const Scalar* value) {
      visit(value, [&](const Scalar& s) {
        if (moves.contains(&s)) return;
        bool m = std::ranges::any_of(s.indices, [&](Expr e) {
          return std::ranges::any_of(moving, [&](Expr axis) { return sym::depends_on(e, axis); });
        });
        for (const Scalar* operand : s.operands) m = m || moves[operand];
        for (const Binding& b : s.bindings) m = m || moves[b.value];
        moves[&s] = m;
        if (!m) return;
        ns += kNsPerOp * weight_of(s.op, s.dtype);
        if (s.op == ScalarOp::Load) ns += load_ns(s.buffer, s.dtype) + (s.bindings.empty() ? 0 : kNsPerGather);
      });
    };
    for (const Accumulator& acc : stage.accumulators) add(acc.value), ns += kNsPerOp;
    for (const auto* list : {&stage.inner_stores, &stage.stores})
      for (const Store& store : *list) {
        add(store.value);
        if (list == &stage.inner_stores || stage.accumulators.empty()) ns += load_ns(store.buffer, store.value->dtype);
      }
    row_ns_ += ns * iterations(stage);
  }

  // Scratch rows stay in L1; a parameter that an earlier stage has read is at least in L2.
  static double load_ns(int32_t buffer, DType dtype) {
    return static_cast<double>(size_of(dtype)) * (buffer < 0 ? 0.2 : 1.0) * kNsPerByte;
  }

  double iterations(const Stage& stage) {
    double n = 1;
    for (const auto* axes : {&stage.kept, &stage.loops})
      for (const LoopAxis& axis : *axes) n *= static_cast<double>(hint(axis.extent));
    return n;
  }

  // The extent at index 0 of the axes further out, under the hints.
  int64_t hint(Expr e) {
    return sym::evaluate(e, [&](Expr symbol) -> int64_t {
      for (size_t k = 0; k < out_.sizes.size(); ++k)
        if (kernel().size_params[k] == symbol) return work_.hint(out_.sizes[k]);
      return 0;
    });
  }

  void finish() {
    double n = 1;
    for (const LoopAxis& axis : plan_.parallel) {
      out_.range = out_.range * axis.extent;
      n *= static_cast<double>(work_.hint(axis.extent));
    }
    kernel().cost_ns = row_ns_ * n;
    const bool vector = !plan_.parallel.empty() && plan_.parallel.back().role == AxisRole::Vector;
    const double wanted = std::max(1.0, std::ceil(0.5 * kWorthThreadsNs / std::max(row_ns_, 1e-3)));
    int64_t grain = nest_.chunk;
    while (static_cast<double>(grain) < wanted && grain < (1 << 20)) grain *= 2;
    out_.grain = vector ? std::max<int64_t>(grain, 64) : grain;
    out_.parallel = kernel().cost_ns > kWorthThreadsNs && n > 1;
    stream_stores();
  }

  // What is far larger than the last cache is written past it: nothing of it would be there when it is read again.
  void stream_stores() {
    double bytes = 0;
    for (int32_t id : out_.params) bytes += work_.at(id).elements * static_cast<double>(size_of(work_.buffer(id).dtype));
    if (bytes < 2.0 * static_cast<double>(work_.target.l3_bytes)) return;
    const auto stream = [&](std::vector<Store>& stores) {
      for (Store& store : stores)
        if (store.buffer >= 0 && store.combine == Store::Combine::Overwrite) {
          const bool large = work_.at(out_.params[static_cast<size_t>(store.buffer)]).elements * 8 * static_cast<double>(size_of(store.value->dtype)) > bytes;
          store.non_temporal = large && !kernel().params[static_cast<size_t>(store.buffer)].read;
        }
    };
    for (Stage& stage : kernel().stages) {
      stream(stage.stores);
      stream(stage.inner_stores);
    }
  }

  Work& work_;
  const Nest& nest_;
  const Plan& plan_;
  Shaped out_;
  std::unordered_map<Expr, Expr> axes_;       // source axes and bound symbols -> the kernel's
  std::unordered_map<Expr, int> ranks_;       // of these, by order of declaration
  std::unordered_map<Expr, Expr> sizes_, mapped_;
  std::unordered_map<Expr, bool> mentions_;
  std::unordered_map<const Scalar*, const Scalar*> scalars_;
  std::unordered_map<int32_t, int32_t> params_;
  int next_parallel_ = 0, next_loop_ = 0, next_binding_ = 0;
  double row_ns_ = 0;
};

}  // namespace

Shaped make_kernel(Work& work, const Nest& nest, const Plan& plan) { return KernelMaker(work, nest, plan).run(); }

}  // namespace braze::schedule
