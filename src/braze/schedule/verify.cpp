// Checks of kernels (names in scope, types, results before their use) and of programs (values written before they are
// read, memory that is live never shared).
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "braze/schedule/print.h"

namespace braze::schedule {
namespace {

using loop::Binding;
using loop::ScalarOp;

class KernelVerifier {
 public:
  KernelVerifier(const Kernel& kernel, const std::string& name, std::string& out) : kernel_(kernel), name_(name), out_(out) {}

  void run() {
    for (Expr size : kernel_.size_params) scope_.insert(size);
    for (size_t k = 0; k < kernel_.parallel.size(); ++k) {
      enter(kernel_.parallel[k]);
      if (kernel_.parallel[k].role == AxisRole::Vector && k + 1 != kernel_.parallel.size()) problem("a vector axis that is not the last");
    }
    for (const Scratch& s : kernel_.scratch) check(s.elements, "scratch size");
    for (const Stage& stage : kernel_.stages) run(stage);
  }

 private:
  void problem(const std::string& text) { out_ += name_ + ": " + text + "\n"; }

  void check(Expr e, const char* what) {
    std::vector<Expr> symbols;
    sym::collect_symbols(e, symbols);
    for (Expr s : symbols)
      if (!scope_.contains(s)) problem(fmt::format("{} {} uses {}, which is not in scope", what, sym::to_string(e), sym::to_string(s)));
  }

  void enter(const LoopAxis& axis) {
    check(axis.extent, "extent");
    if (!scope_.insert(axis.symbol).second) problem("axis " + sym::to_string(axis.symbol) + " stands twice");
  }

  void run(const Stage& stage) {
    for (const LoopAxis& axis : stage.kept) enter(axis);
    for (const LoopAxis& axis : stage.loops) enter(axis);
    for (const Accumulator& acc : stage.accumulators) {
      value(acc.value);
      if (acc.value->dtype != acc.dtype) problem(fmt::format("accumulator {} gets a value of another type", acc.number));
      if (acc.op == ReduceOp::ArgMax || acc.op == ReduceOp::ArgMin) check(acc.index, "index");
    }
    if (stage.accumulators.empty() && !stage.inner_stores.empty()) problem("inner stores without accumulators");
    if (stage.scan && stage.accumulators.size() != 1) problem("a scan of several values");
    if (stage.scan) define(stage);
    for (const Store& s : stage.inner_stores) store(s);
    if (!stage.scan && !stage.accumulators.empty()) {
      for (const LoopAxis& axis : stage.loops) scope_.erase(axis.symbol);
      define(stage);
    }
    for (const Store& s : stage.stores) store(s);
    for (const LoopAxis& axis : stage.loops) scope_.erase(axis.symbol);
    for (const LoopAxis& axis : stage.kept) scope_.erase(axis.symbol);
    if (!stage.kept.empty() || stage.scan)
      for (const Accumulator& acc : stage.accumulators) results_.erase(acc.number);
    seen_.clear();
  }

  void define(const Stage& stage) {
    for (const Accumulator& acc : stage.accumulators)
      if (!results_.insert(acc.number).second) problem(fmt::format("accumulator {} stands twice", acc.number));
    seen_.clear();
  }

  void store(const Store& s) {
    const std::vector<Expr> entered = bindings(s.bindings);
    check(s.address, "address");
    value(s.value);
    memory(s.buffer, s.value->dtype, true);
    if (s.combine != Store::Combine::Overwrite) memory(s.buffer, s.value->dtype, false);
    leave(entered);
  }

  // The symbols that come into scope: a load within a binding's value may have brought some there before.
  std::vector<Expr> bindings(const std::vector<Binding>& list) {
    std::vector<Expr> entered;
    for (const Binding& b : list) {
      value(b.value);
      check(b.extent, "extent");
      if (scope_.insert(b.symbol).second) entered.push_back(b.symbol);
    }
    return entered;
  }
  void leave(const std::vector<Expr>& entered) {
    for (const Expr symbol : entered) scope_.erase(symbol);
  }

  void memory(int32_t buffer, DType dtype, bool write) {
    if (buffer < 0) {
      const auto n = static_cast<size_t>(-1 - buffer);
      if (n >= kernel_.scratch.size()) return problem(fmt::format("no scratch {}", n));
      if (kernel_.scratch[n].dtype != dtype) problem(fmt::format("scratch {} has another type", n));
      return;
    }
    if (static_cast<size_t>(buffer) >= kernel_.params.size()) return problem(fmt::format("no parameter {}", buffer));
    const KernelParam& p = kernel_.params[static_cast<size_t>(buffer)];
    if (p.dtype != dtype) problem(fmt::format("parameter {} has another type", buffer));
    if (write ? !p.written : !p.read) problem(fmt::format("parameter {} is not marked as {}", buffer, write ? "written" : "read"));
  }

  void value(const Scalar* s) {
    if (!seen_.insert(s).second) return;
    for (const Scalar* operand : s->operands) value(operand);
    if (s->op == ScalarOp::Load) {
      if (s->indices.size() != 1) return problem("a load without an address");
      const std::vector<Expr> entered = bindings(s->bindings);
      check(s->indices[0], "address");
      leave(entered);
      memory(s->buffer, s->dtype, false);
    } else if (s->op == ScalarOp::Index) {
      check(s->indices[0], "index");
    } else if (s->op == ScalarOp::Reduced && !results_.contains(static_cast<int32_t>(s->integer))) {
      problem(fmt::format("accumulator {} is read before it is complete", s->integer));
    }
  }

  const Kernel& kernel_;
  const std::string& name_;
  std::string& out_;
  std::unordered_set<Expr> scope_;
  std::unordered_set<int32_t> results_;
  std::unordered_set<const Scalar*> seen_;
};

class ProgramVerifier {
 public:
  explicit ProgramVerifier(const Program& program) : program_(program), written_(program.buffers.size(), false) {}

  std::string run() {
    for (size_t k = 0; k < program_.kernels.size(); ++k) {
      const std::string name = fmt::format("k{}", k);
      KernelVerifier(program_.kernels[k], name, out_).run();
    }
    for (size_t i = 0; i < program_.buffers.size(); ++i)
      if (plan(i).place == Place::Input || plan(i).place == Place::Constant) written_[i] = true;
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      where_ = fmt::format("step {}", s);
      std::visit([&](const auto& step) { run(step); }, program_.steps[s]);
    }
    where_ = "outputs";
    for (const View& view : program_.outputs) read(view.buffer);
    check_memory();
    return std::move(out_);
  }

 private:
  const BufferPlan& plan(size_t i) const { return program_.buffers[i]; }
  void problem(const std::string& text) { out_ += where_ + ": " + text + "\n"; }

  void read(int32_t id) {
    if (id < 0) return;
    if (static_cast<size_t>(id) >= written_.size()) return problem(fmt::format("no buffer {}", id));
    if (!written_[static_cast<size_t>(id)]) problem(fmt::format("b{} is read before it is written", id));
  }
  void write(int32_t id) {
    if (id < 0) return;
    if (static_cast<size_t>(id) >= written_.size()) return problem(fmt::format("no buffer {}", id));
    if (plan(static_cast<size_t>(id)).place == Place::Input) problem(fmt::format("input b{} is written", id));
    written_[static_cast<size_t>(id)] = true;
  }

  void run(const LaunchStep& step) {
    if (step.kernel < 0 || static_cast<size_t>(step.kernel) >= program_.kernels.size()) return problem("no such kernel");
    const Kernel& kernel = program_.kernels[static_cast<size_t>(step.kernel)];
    if (kernel.params.size() != step.params.size()) return problem("wrong number of parameters");
    if (kernel.size_params.size() != step.sizes.size()) problem("wrong number of sizes");
    for (size_t i = 0; i < step.params.size(); ++i)
      if (kernel.params[i].read && !kernel.params[i].written) read(step.params[i].buffer);
    for (size_t i = 0; i < step.params.size(); ++i) {
      if (kernel.params[i].written) write(step.params[i].buffer);
      const int32_t id = step.params[i].buffer;
      if (id >= 0 && plan(static_cast<size_t>(id)).dtype != kernel.params[i].dtype) problem(fmt::format("b{} has another type", id));
    }
  }
  void run(const CallStep& step) {
    for (const View& view : step.operands) read(view.buffer);
    for (int32_t id : step.results) write(id);
  }
  void run(const CopyStep& step) {
    read(step.from.buffer);
    write(step.to.buffer);
  }

  // The memory that a buffer lives in: itself, or what it is an alias of.
  size_t home(size_t i) const {
    for (size_t steps = 0; plan(i).place == Place::Alias && steps <= program_.buffers.size(); ++steps) i = static_cast<size_t>(plan(i).alias_of);
    return i;
  }

  void check_memory() {
    struct Life { int64_t begin, end; int32_t first, last; size_t buffer; };
    std::vector<int32_t> first(program_.buffers.size(), -1), last(program_.buffers.size(), -1);
    const auto touch = [&](int32_t id, size_t step) {
      if (id < 0) return;
      const size_t i = home(static_cast<size_t>(id));
      if (first[i] < 0) first[i] = static_cast<int32_t>(step);
      last[i] = static_cast<int32_t>(step);
    };
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      if (const auto* launch = std::get_if<LaunchStep>(&program_.steps[s]))
        for (const View& view : launch->params) touch(view.buffer, s);
      if (const auto* call = std::get_if<CallStep>(&program_.steps[s])) {
        for (const View& view : call->operands) touch(view.buffer, s);
        for (int32_t id : call->results) touch(id, s);
      }
    }
    for (const View& view : program_.outputs) touch(view.buffer, program_.steps.size());
    std::vector<Life> lives;
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const BufferPlan& b = plan(i);
      if (b.place != Place::Arena || first[i] < 0 || !b.bytes.is_constant() || !b.arena_offset.is_constant()) continue;
      if (b.bytes.constant() == 0) continue;   // lies nowhere
      lives.push_back({b.arena_offset.constant(), b.arena_offset.constant() + b.bytes.constant(), first[i], last[i], i});
    }
    std::ranges::sort(lives, {}, &Life::begin);
    where_ = "memory";
    for (size_t x = 0; x < lives.size(); ++x)
      for (size_t y = x + 1; y < lives.size() && lives[y].begin < lives[x].end; ++y)
        if (lives[x].first <= lives[y].last && lives[y].first <= lives[x].last)
          problem(fmt::format("b{} and b{} overlap while both are live", lives[x].buffer, lives[y].buffer));
  }

  const Program& program_;
  std::vector<bool> written_;
  std::string out_, where_;
};

}  // namespace

std::string verify(const Kernel& kernel) {
  std::string out;
  KernelVerifier(kernel, "kernel", out).run();
  return out;
}

std::string verify(const Program& program) { return ProgramVerifier(program).run(); }

}  // namespace braze::schedule
