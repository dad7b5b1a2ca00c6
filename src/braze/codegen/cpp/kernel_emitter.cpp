#include "braze/codegen/cpp/kernel_emitter.h"

#include <algorithm>

#include "braze/codegen/cpp/op_text.h"
#include "braze/support/check.h"

namespace braze::codegen {

using schedule::AxisRole;

int lanes_of(const Kernel& kernel, const Target& target) {
  bool narrow = false, wide = false;
  auto look = [&](DType dtype) { (size_of(dtype) == 8 ? wide : narrow) |= dtype != DType::Bool; };
  for (const auto& param : kernel.params) look(param.dtype);
  for (const auto& scratch : kernel.scratch) look(scratch.dtype);
  return target.vector_bytes / (wide && !narrow ? 8 : 4);
}

KernelEmitter::KernelEmitter(const Kernel& kernel, const Target& target)
    : kernel_(kernel), target_(target), lanes_(lanes_of(kernel, target)) {}

std::string KernelEmitter::emit(const std::string& name) {
  scopes_.clear();
  scopes_.emplace_back();
  for (size_t i = 0; i < kernel_.params.size(); ++i) {
    const auto& param = kernel_.params[i];
    const std::string type = std::string(param.written ? "" : "const ") + storage_type(param.dtype);
    line(0, type + "* const p" + std::to_string(i) + " = (" + type + "*)p[" + std::to_string(i) + "];");
  }
  for (size_t i = 0; i < kernel_.size_params.size(); ++i) {
    const std::string text = "k" + std::to_string(i);
    line(0, "const long " + text + " = s[" + std::to_string(i) + "];");
    declare(kernel_.size_params[i], {.text = text, .depth = 0, .vectors = {}});
  }
  const std::string parameters = std::move(scope().text);
  scope().text.clear();
  parallel_loops();
  std::string text = "extern \"C\" __attribute__((visibility(\"default\"))) void " + name +
                     "(void* const* p, const long* s, long begin, long end) {\n" + parameters;
  if (uses_error_) text += "  long* const error = (long*)p[" + std::to_string(kernel_.params.size()) + "];\n";
  for (const std::string& local : locals_) text += "  " + local + "\n";
  text += scratch_setup() + scope().text;
  if (streams_) text += "  __sync_synchronize();\n";
  return text + "}\n";
}

// Rows of up to 64 KB stand on the stack; larger ones in memory that the thread keeps.
std::string KernelEmitter::scratch_setup() {
  if (kernel_.scratch.empty()) return {};
  std::string text, total = "0";
  for (size_t i = 0; i < kernel_.scratch.size(); ++i) {
    const auto& scratch = kernel_.scratch[i];
    const std::string at = "at" + std::to_string(i);
    text += "  const long " + at + " = " + total + ";\n";
    const int64_t bytes = size_of(scratch.dtype) * std::max(scratch_lanes_, 1);
    total = at + " + ((" + scalar_index(scratch.elements) + ") * " + std::to_string(bytes) + " + 255) / 64 * 64";
  }
  text += "  const long scratch_bytes = " + total + ";\n";
  text += "  char* const scratch = scratch_bytes <= 65536 ? (char*)__builtin_alloca_with_align(scratch_bytes, 512) : "
          "(char*)braze_scratch(scratch_bytes);\n";
  for (size_t i = 0; i < kernel_.scratch.size(); ++i) {
    const std::string type = storage_type(kernel_.scratch[i].dtype);
    text += "  " + type + "* const t" + std::to_string(i) + " = (" + type + "*)(scratch + at" + std::to_string(i) + ");\n";
  }
  return text;
}

// ---- Scopes ---------------------------------------------------------------------------------------------------------

void KernelEmitter::open() { scopes_.emplace_back(); }

void KernelEmitter::close(const std::string& header) {
  for (const Expr& e : scope().symbols) symbols_.erase(e);
  const std::string inner = std::move(scope().text);
  scopes_.pop_back();
  line(depth(), header + " {");
  scope().text += inner;
  line(depth(), "}");
}

void KernelEmitter::line(int at, const std::string& text) {
  scopes_[static_cast<size_t>(at)].text += std::string(static_cast<size_t>(2 * at + 2), ' ') + text + "\n";
}

void KernelEmitter::declare(Expr e, Symbol info) {
  scopes_[static_cast<size_t>(info.depth)].symbols.push_back(e);
  symbols_.insert_or_assign(e, std::move(info));
}

// ---- Loops ----------------------------------------------------------------------------------------------------------

// for each index of [begin, end): its parts by the parallel axes, then the stages. A vector axis walks the pieces of
// rows that lie in the range.
void KernelEmitter::parallel_loops() {
  const auto& axes = kernel_.parallel;
  const bool vector = !axes.empty() && axes.back().role == AxisRole::Vector;
  const size_t rows = axes.size() - (vector ? 1 : 0);
  LoopPlan plan;
  if (vector) {
    int total = 0;
    bool inner_loops = false;
    for (const Stage& s : kernel_.stages) {
      total += weight(s);
      inner_loops |= !s.loops.empty();
    }
    plan.one_body = total > (inner_loops ? kHeavy : kLight);
    plan.unroll = inner_loops && total <= 8 ? 4 : 1;
    scratch_lanes_ = lanes_ * plan.unroll;
  }
  if (vector && rows == 0) {
    vector_loop(axes.back(), "begin", "end", plan, [&] { stages(); });
    return;
  }
  open();
  const std::string row = vector ? fresh("row") : "t";
  if (vector) {
    const std::string extent = scalar_index(axes.back().extent);
    line(1, "const long " + row + " = t / " + extent + ", from = t - " + row + " * " + extent + ";");
    line(1, "const long to = " + extent + " - from < end - t ? " + extent + " : from + (end - t);");
    line(1, "step = to - from;");
  }
  std::string rest = row;
  for (size_t i = rows; i-- > 0;) {
    const std::string name = "i" + std::to_string(i);
    if (i == 0) {
      line(1, "const long " + name + " = " + rest + ";");
    } else {
      const std::string next = fresh("rest"), extent = scalar_index(axes[i].extent);
      line(1, "const long " + next + " = " + rest + " / " + extent + ", " + name + " = " + rest + " - " + next + " * " +
                  extent + ";");
      rest = next;
    }
    declare(axes[i].symbol, {.text = name, .depth = 1, .vectors = {}});
  }
  if (vector) {
    vector_loop(axes.back(), "from", "to", plan, [&] { stages(); });
    close("for (long t = begin, step; t < end; t += step)");
    return;
  }
  stages();
  close("for (long t = begin; t < end; t++)");
}

void KernelEmitter::stages() {
  for (const Stage& s : kernel_.stages) {
    stage_depth_ = depth();
    stage(s);
    for (Scope& each : scopes_) {
      if (std::any_of(each.symbols.begin(), each.symbols.end(), [&](const Expr& e) { return symbols_.at(e).fragile; }))
        for (Scope& any : scopes_) any.pointers.clear();
      std::erase_if(each.values, [](const auto& entry) { return entry.second.fragile; });
      std::erase_if(each.symbols, [&](const Expr& e) {
        if (!symbols_.at(e).fragile) return false;
        symbols_.erase(e);
        return true;
      });
    }
  }
}

void KernelEmitter::loops(std::span<const LoopAxis> axes, const LoopPlan& plan, const std::function<void()>& body) {
  if (axes.empty()) {
    body();
    return;
  }
  const LoopAxis& axis = axes[0];
  auto inner = [&] { loops(axes.subspan(1), plan, body); };
  if (axis.role == AxisRole::Unrolled) {
    const auto extent = axis.extent.maybe_constant();
    CHECK(extent.has_value(), "an unrolled axis has a constant extent");
    for (int64_t i = 0; i < *extent; ++i) {
      open();
      declare(axis.symbol, {.text = std::to_string(i) + "l", .depth = depth(), .vectors = {}});
      inner();
      close("");
    }
    return;
  }
  const int at = std::max(depth_of(axis.extent), 0);
  CHECK(at <= depth());
  const std::string extent = scalar_index(axis.extent);
  if (axes.size() > 1 || plan.block == 0) {
    counted_loop(axis, "0", extent, plan, inner);
    return;
  }
  // Blocks of the last loop: each sums in the accumulators' own type, the blocks are added up more exactly.
  const std::string first = fresh("b"), last = fresh("e"), step = std::to_string(plan.block);
  open();
  line(depth(), "const long " + last + " = " + extent + " - " + first + " < " + step + " ? " + extent + " : " + first +
                    " + " + step + ";");
  plan.before_block();
  counted_loop(axis, first, last, plan, inner);
  plan.after_block();
  close("for (long " + first + " = 0; " + first + " < " + extent + "; " + first + " += " + step + ")");
}

void KernelEmitter::counted_loop(const LoopAxis& axis, const std::string& from, const std::string& to,
                                 const LoopPlan& plan, const std::function<void()>& body) {
  if (axis.extent == Expr(0)) return;   // nothing is loaded before it, either
  if (axis.role == AxisRole::Vector) {
    vector_loop(axis, from, to, plan, body);
    return;
  }
  const std::string variable = fresh("x");
  open();
  declare(axis.symbol, {.text = variable, .depth = depth(), .vectors = {}});
  body();
  close("for (long " + variable + " = " + from + "; " + variable + " < " + to + "; " + variable + "++)");
}

void KernelEmitter::vector_loop(const LoopAxis& axis, const std::string& from, const std::string& to,
                                const LoopPlan& plan, const std::function<void()>& body) {
  CHECK(!vector_.has_value(), "a kernel has one vector axis at a time");
  const std::string variable = fresh("x");
  line(depth(), "long " + variable + " = " + from + ";");
  auto emit_loop = [&](int unroll, bool partial) {
    open();
    declare(axis.symbol, {.text = variable, .depth = depth(), .vectors = {}});
    vector_ = {axis.symbol, variable, depth(), unroll, partial ? fresh("n") : std::string()};
    const int step = unroll * lanes_;
    if (partial)
      line(depth(), "const long " + vector_->live + " = " + to + " - " + variable + " < " + std::to_string(lanes_) + " ? " +
                        to + " - " + variable + " : " + std::to_string(lanes_) + "l;");
    body();
    vector_.reset();
    const std::string trip = variable + " += " + std::to_string(step) + ")";
    close(partial ? "for (; " + variable + " < " + to + "; " + trip
                  : "for (; " + variable + " + " + std::to_string(step) + " <= " + to + "; " + trip);
  };
  const bool whole = from == "0" && axis.extent.is_constant() && axis.extent.constant() % (plan.unroll * lanes_) == 0;
  if (!plan.one_body || whole) emit_loop(plan.unroll, false);
  if (!whole) emit_loop(1, true);
}

}  // namespace braze::codegen
