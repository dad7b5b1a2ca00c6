#include "braze/schedule/memory_plan.h"

#include <algorithm>
#include <unordered_map>

#include "braze/support/check.h"

namespace braze::schedule {
namespace {

constexpr int32_t kNever = -1;

// Calls whose out= form writes a dense result of the traced strides.
bool has_out_form(const graph::Node& node) {
  return node.op->name == "aten.mm" || node.op->name == "aten.addmm" || node.op->name == "aten.bmm" ||
         node.op->name == "aten.baddbmm";
}

Expr storage_elements(const Shape& sizes, const Shape& strides) {
  for (Expr size : sizes)
    if (size == Expr(0)) return 0;
  if (loop::is_dense(sizes, strides)) return graph::numel(sizes);
  Expr last = 0;
  for (size_t k = 0; k < sizes.size(); ++k) last = last + (sizes[k] - 1) * strides[k];
  return last + 1;
}

Expr align(Expr bytes) {
  if (const auto c = bytes.maybe_constant()) return (*c + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  return sym::ceil_div(bytes, kArenaAlignment) * kArenaAlignment;
}

class Planner {
 public:
  Planner(const Work& work, Program& program, int64_t block_bytes)
      : work_(work), program_(program), block_bytes_(block_bytes) {}

  void run() {
    program_.buffers.resize(work_.buffers.size());
    first_.assign(work_.buffers.size(), kNever);
    last_.assign(work_.buffers.size(), kNever);
    kept_.assign(work_.buffers.size(), false);
    for (size_t i = 0; i < work_.buffers.size(); ++i) describe(i);
    for (size_t s = 0; s < program_.steps.size(); ++s) std::visit([&](auto& step) { touch(step, static_cast<int32_t>(s)); }, program_.steps[s]);
    for (const View& view : program_.outputs) keep(view.buffer, true);
    for (const loop::LoopProgram::Mutation& mutation : work_.loops->mutations) keep(mutation.value.buffer, false);
    for (size_t s = 0; s < program_.steps.size(); ++s)
      if (const auto* launch = std::get_if<LaunchStep>(&program_.steps[s])) reuse_in_place(*launch, static_cast<int32_t>(s));
    place_in_arena();
    for (size_t i = 0; i < program_.buffers.size(); ++i)
      if (!kept_[i]) program_.buffers[i].last_step = last_[i];
  }

 private:
  BufferPlan& plan(int32_t id) { return program_.buffers[static_cast<size_t>(id)]; }
  int32_t& last(int32_t id) { return last_[static_cast<size_t>(id)]; }

  void describe(size_t i) {
    const Buffer& b = *work_.buffers[i];
    BufferPlan& p = program_.buffers[i];
    p.dtype = b.dtype;
    p.sizes = b.sizes;
    p.strides = b.strides;
    p.input = b.input;
    switch (b.kind) {
      case BufferKind::Input: p.place = Place::Input; p.offset = b.offset; break;
      case BufferKind::Extern: p.place = Place::Call; break;
      case BufferKind::Pointwise: case BufferKind::Reduction: case BufferKind::Scan: case BufferKind::Cat:
      case BufferKind::Scatter: p.place = Place::Arena; break;
    }
  }

  void use(int32_t id, int32_t step) {
    if (id < 0) return;
    auto& first = first_[static_cast<size_t>(id)];
    if (first == kNever) first = step;
    last(id) = step;
  }
  void touch(LaunchStep& step, int32_t s) {
    for (const View& view : step.params) use(view.buffer, s);
  }
  void touch(CallStep& step, int32_t s) {
    for (const View& view : step.operands) use(view.buffer, s);
    for (int32_t result : step.results) use(result, s);
    const graph::Node* node = work_.loops->calls[static_cast<size_t>(step.call)].node;
    if (node == nullptr || step.results.size() != 1 || step.results[0] < 0 || !has_out_form(*node)) return;
    const Buffer& b = work_.buffer(step.results[0]);
    if (b.strides.size() != b.sizes.size() || !loop::is_row_major(b.sizes, b.strides)) return;
    step.into_planned = true;
    plan(step.results[0]).place = Place::Arena;
  }
  void touch(CopyStep& step, int32_t s) {
    use(step.from.buffer, s);
    use(step.to.buffer, s);
  }

  void keep(int32_t id, bool returned) {
    if (id < 0) return;
    kept_[static_cast<size_t>(id)] = true;
    last(id) = static_cast<int32_t>(program_.steps.size());
    if (returned && plan(id).place == Place::Arena) {
      plan(id).place = Place::Output;
      plan(id).output = next_output_++;
    }
  }

  // ---- In place: a kernel's result over an operand that nobody reads later

  void reuse_in_place(const LaunchStep& launch, int32_t step) {
    const Kernel& kernel = program_.kernels[static_cast<size_t>(launch.kernel)];
    std::vector<bool> taken(launch.params.size(), false);
    for (size_t w = 0; w < launch.params.size(); ++w) {
      const int32_t to = launch.params[w].buffer;
      if (!kernel.params[w].written || kernel.params[w].read || first_[static_cast<size_t>(to)] != step) continue;
      if (plan(to).place != Place::Arena && plan(to).place != Place::Output) continue;
      for (size_t r = 0; r < launch.params.size(); ++r) {
        const int32_t from = launch.params[r].buffer;
        if (taken[r] || from == to || kernel.params[r].written || !may_take(from, to, step)) continue;
        if (!walks_alike(kernel, static_cast<int32_t>(r), static_cast<int32_t>(w))) continue;
        taken[r] = true;
        share(from, to);
        break;
      }
    }
  }

  bool may_take(int32_t from, int32_t to, int32_t step) {
    const BufferPlan& f = plan(from);
    const BufferPlan& t = plan(to);
    if (last(from) != step || kept_[static_cast<size_t>(from)]) return false;
    if (f.place == Place::Input || f.place == Place::Output || f.place == Place::Constant) return false;
    if (f.place == Place::Alias) return false;     // its memory may have other readers
    if (f.place == Place::Call && t.place == Place::Output) return false;
    if (aliased_.contains(from)) return false;
    // Shapes may differ, as of a product's rows and the batch that they are: elements are compared by address.
    return size_of(f.dtype) == size_of(t.dtype) && storage_elements(f.sizes, f.strides) == storage_elements(t.sizes, t.strides);
  }

  // Every element of `from` is read by the iteration that writes its place in `to`, or by earlier stages of its row.
  static bool walks_alike(const Kernel& kernel, int32_t from, int32_t to) {
    int last_reader = -1, writer = -1;
    const Store* written = nullptr;
    for (size_t s = 0; s < kernel.stages.size(); ++s) {
      const Stage& stage = kernel.stages[s];
      for (const auto* list : {&stage.stores, &stage.inner_stores})
        for (const Store& store : *list) {
          if (store.buffer == to) {
            if (written != nullptr || !store.bindings.empty()) return false;
            written = &store;
            writer = static_cast<int>(s);
            if (list == &stage.stores && !stage.accumulators.empty()) return false;
          }
        }
      if (reads(stage, from)) last_reader = static_cast<int>(s);
    }
    if (written == nullptr || last_reader > writer) return false;
    for (int s = 0; s <= writer; ++s)
      if (!same_places(kernel.stages[static_cast<size_t>(s)], from, kernel.stages[static_cast<size_t>(writer)], written->address)) return false;
    return true;
  }

  template <class F>
  static void for_each_value(const Stage& stage, F&& f) {
    for (const Accumulator& acc : stage.accumulators) f(acc.value);
    for (const auto* list : {&stage.stores, &stage.inner_stores})
      for (const Store& store : *list) {
        f(store.value);
        for (const Binding& b : store.bindings) f(b.value);
      }
  }

  static bool reads(const Stage& stage, int32_t param) {
    bool found = false;
    for_each_value(stage, [&](const Scalar* value) {
      visit(value, [&](const Scalar& s) { found |= s.op == ScalarOp::Load && s.buffer == param; });
    });
    return found;
  }

  // All loads of the parameter in `stage` are at `address`, which stands in `writer`, with the stages' loops identified.
  static bool same_places(const Stage& stage, int32_t param, const Stage& writer, Expr address) {
    if (!reads(stage, param)) return true;
    Substitution loops;
    if (&stage != &writer) {
      if (stage.loops.size() != writer.loops.size() || !stage.kept.empty() || !writer.kept.empty()) return false;
      for (size_t k = 0; k < stage.loops.size(); ++k) {
        if (stage.loops[k].extent != writer.loops[k].extent) return false;
        loops.emplace_back(stage.loops[k].symbol, writer.loops[k].symbol);
      }
    }
    bool same = true;
    for_each_value(stage, [&](const Scalar* value) {
      visit(value, [&](const Scalar& s) {
        if (s.op != ScalarOp::Load || s.buffer != param) return;
        same = same && s.bindings.empty() && sym::substitute(s.indices[0], loops) == address;
      });
    });
    return same;
  }

  void share(int32_t from, int32_t to) {
    if (plan(to).place == Place::Output) {
      // The operand is made in the output's memory.
      plan(from).place = Place::Alias;
      plan(from).alias_of = to;
      aliased_.insert_or_assign(to, true);
    } else {
      plan(to).place = Place::Alias;
      plan(to).alias_of = from;
      last(from) = std::max(last(from), last(to));
      aliased_.insert_or_assign(from, true);
      if (kept_[static_cast<size_t>(to)]) kept_[static_cast<size_t>(from)] = true;
    }
  }

  // ---- Arena

  struct Block {
    int32_t buffer;
    int64_t bytes, offset;
  };

  void place_in_arena() {
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      BufferPlan& p = program_.buffers[i];
      if (p.strides.size() == p.sizes.size() && (first_[i] != kNever || p.place != Place::Arena))
        p.bytes = storage_elements(p.sizes, p.strides) * size_of(p.dtype);
      if (block_bytes_ > 0 && in_arena(i) && p.bytes.is_constant() && p.bytes.constant() >= block_bytes_) p.place = Place::Block;
    }
    const int64_t fixed = place_constant_sizes();
    place_symbolic_sizes(fixed);
  }

  bool in_arena(size_t i) const { return program_.buffers[i].place == Place::Arena && first_[i] != kNever; }

  bool overlap_in_time(int32_t a, int32_t b) const {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    return first_[i] <= last_[j] && first_[j] <= last_[i];
  }

  // Largest first, each at the lowest place that is free for its lifetime.
  int64_t place_constant_sizes() {
    std::vector<Block> blocks;
    for (size_t i = 0; i < program_.buffers.size(); ++i)
      if (in_arena(i) && program_.buffers[i].bytes.is_constant())
        blocks.push_back({static_cast<int32_t>(i), align(program_.buffers[i].bytes).constant(), 0});
    std::ranges::stable_sort(blocks, [](const Block& a, const Block& b) { return a.bytes > b.bytes; });
    int64_t end = 0;
    std::vector<Block> placed;            // by offset
    for (Block& block : blocks) {
      int64_t at = 0;
      for (const Block& other : placed) {
        if (!overlap_in_time(block.buffer, other.buffer)) continue;
        if (other.offset >= at + block.bytes) break;
        at = std::max(at, other.offset + other.bytes);
      }
      block.offset = at;
      plan(block.buffer).arena_offset = at;
      end = std::max(end, at + block.bytes);
      placed.insert(std::ranges::upper_bound(placed, at, {}, &Block::offset), block);
    }
    return end;
  }

  // After the constant part: a block is used again for a size that is known to be equal.
  void place_symbolic_sizes(Expr end) {
    struct Free { Expr bytes, offset; int32_t until; };
    std::vector<Free> blocks;
    std::vector<int32_t> order;
    for (size_t i = 0; i < program_.buffers.size(); ++i)
      if (in_arena(i) && !program_.buffers[i].bytes.is_constant()) order.push_back(static_cast<int32_t>(i));
    std::ranges::stable_sort(order, {}, [&](int32_t id) { return first_[static_cast<size_t>(id)]; });
    for (int32_t id : order) {
      const Expr bytes = align(plan(id).bytes);
      const auto i = static_cast<size_t>(id);
      const auto free = std::ranges::find_if(blocks, [&](const Free& b) { return b.until < first_[i] && b.bytes == bytes; });
      if (free != blocks.end()) {
        plan(id).arena_offset = free->offset;
        free->until = last_[i];
        continue;
      }
      plan(id).arena_offset = end;
      blocks.push_back({bytes, end, last_[i]});
      end = end + bytes;
    }
    program_.arena_bytes = end;
  }

  const Work& work_;
  Program& program_;
  int64_t block_bytes_;
  std::vector<int32_t> first_, last_;
  std::vector<bool> kept_;
  std::unordered_map<int32_t, bool> aliased_;    // buffers in whose memory another one lives
  int32_t next_output_ = 0;
};

}  // namespace

void plan_memory(const Work& work, Program& program, int64_t block_bytes) { Planner(work, program, block_bytes).run(); }

}  // namespace braze::schedule
