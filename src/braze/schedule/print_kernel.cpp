#include <fmt/format.h>

#include <unordered_map>

#include "braze/loop/text.h"
#include "braze/schedule/print.h"

namespace braze::schedule {

using loop::Binding;
using loop::ScalarOp;

const char* text_of(NestKind kind) {
  switch (kind) {
    case NestKind::Flat: return "flat";
    case NestKind::Tile2D: return "tile_2d";
    case NestKind::RowStages: return "row_stages";
    case NestKind::ColumnReduce: return "column_reduce";
    case NestKind::FullReduce: return "full_reduce";
    case NestKind::Scan: return "scan";
    case NestKind::GatherRows: return "gather_rows";
    case NestKind::ScatterAdd: return "scatter_add";
    case NestKind::Window: return "window";
    case NestKind::Cat: return "cat";
    case NestKind::Scalarised: return "scalarised";
  }
  return "";
}

const char* text_of(Store::Combine combine) {
  switch (combine) {
    case Store::Combine::Overwrite: return "=";
    case Store::Combine::Add: return "+=";
    case Store::Combine::Max: return "max=";
    case Store::Combine::Min: return "min=";
    case Store::Combine::Mul: return "*=";
  }
  return "";
}

namespace {

std::string buffer_name(int32_t buffer) {
  return buffer >= 0 ? fmt::format("b{}", buffer) : fmt::format("t{}", -1 - buffer);
}

class KernelPrinter {
 public:
  explicit KernelPrinter(const Kernel& kernel) : kernel_(kernel) {}

  std::string run() {
    out_ = fmt::format("kernel {} (", text_of(kernel_.kind));
    for (size_t i = 0; i < kernel_.params.size(); ++i) {
      const KernelParam& p = kernel_.params[i];
      out_ += fmt::format("{}b{}: {} {}{}", i == 0 ? "" : ", ", i, braze::text_of(p.dtype), p.read ? "r" : "", p.written ? "w" : "");
    }
    out_ += ")";
    for (size_t i = 0; i < kernel_.size_params.size(); ++i)
      out_ += (i == 0 ? " sizes " : ", ") + sym::to_string(kernel_.size_params[i]);
    out_ += " {\n";
    for (size_t i = 0; i < kernel_.scratch.size(); ++i)
      out_ += fmt::format("  scratch t{}: {}[{}]\n", i, braze::text_of(kernel_.scratch[i].dtype), sym::to_string(kernel_.scratch[i].elements));
    out_ += "  parallel" + axes(kernel_.parallel) + " {\n";
    for (const Stage& stage : kernel_.stages) print_stage(stage);
    out_ += "  }\n}\n";
    return std::move(out_);
  }

 private:
  static std::string axes(const std::vector<LoopAxis>& list) {
    std::string out;
    for (const LoopAxis& axis : list) {
      const char* role = axis.role == AxisRole::Vector ? " vector" : axis.role == AxisRole::Unrolled ? " unrolled" : "";
      out += fmt::format("{}{} < {}{}", out.empty() ? " " : ", ", sym::to_string(axis.symbol), sym::to_string(axis.extent), role);
    }
    return out;
  }

  void print_stage(const Stage& stage) {
    out_ += stage.scan ? stage.exclusive ? "    stage exclusive scan" : "    stage scan" : "    stage";
    if (!stage.kept.empty()) out_ += " keep" + axes(stage.kept);
    if (!stage.loops.empty()) out_ += " for" + axes(stage.loops);
    out_ += " {\n";
    for (const Accumulator& acc : stage.accumulators) {
      std::string value = name(acc.value);
      std::string at = acc.op == ReduceOp::ArgMax || acc.op == ReduceOp::ArgMin ? " at " + sym::to_string(acc.index) : "";
      out_ += fmt::format("      a{} {} {} {}{}\n", acc.number, loop::text_of(acc.op), braze::text_of(acc.dtype), value, at);
    }
    for (const Store& store : stage.inner_stores) print_store(store, stage.accumulators.empty() ? "" : "each ");
    for (const Store& store : stage.stores) print_store(store, "");
    out_ += "    }\n";
  }

  void print_store(const Store& store, const char* where) {
    const std::string value = name(store.value);
    const std::string given = bindings(store.bindings);
    out_ += fmt::format("      {}{}[{}{}] {} {}{}\n", where, buffer_name(store.buffer), sym::to_string(store.address), given,
                        text_of(store.combine), value, store.non_temporal ? " stream" : "");
  }

  std::string bindings(const std::vector<Binding>& list) {
    std::string out;
    for (const Binding& b : list)
      out += fmt::format("; {} = {} < {}", sym::to_string(b.symbol), name(b.value), sym::to_string(b.extent));
    return out;
  }

  // A name or literal for the value; nodes that have none yet are printed first, each on its line.
  std::string name(const Scalar* s) {
    if (const auto it = names_.find(s); it != names_.end()) return it->second;
    std::string text;
    switch (s->op) {
      case ScalarOp::Constant:
        return names_[s] = is_floating(s->dtype) ? fmt::format("{}:{}", s->real, braze::text_of(s->dtype))
                                                 : fmt::format("{}:{}", s->integer, braze::text_of(s->dtype));
      case ScalarOp::Reduced: return names_[s] = fmt::format("a{}", s->integer);
      case ScalarOp::Index: text = "index " + sym::to_string(s->indices[0]); break;
      case ScalarOp::Load: {
        const std::string given = bindings(s->bindings);
        text = fmt::format("load {}[{}{}]", buffer_name(s->buffer), sym::to_string(s->indices[0]), given);
        if (!s->operands.empty()) {
          const std::string mask = name(s->operands[0]), otherwise = name(s->operands[1]);
          text += fmt::format(" if {} else {}", mask, otherwise);
        }
        break;
      }
      default:
        text = loop::text_of(s->op);
        for (const Scalar* operand : s->operands) text += " " + name(operand);
        break;
    }
    const std::string made = fmt::format("%{}", next_++);
    out_ += fmt::format("      {} = {} {}\n", made, braze::text_of(s->dtype), text);
    return names_[s] = made;
  }

  const Kernel& kernel_;
  std::string out_;
  std::unordered_map<const Scalar*, std::string> names_;
  int next_ = 0;
};

}  // namespace

std::string canonical_text(const Kernel& kernel) { return KernelPrinter(kernel).run(); }

std::string print(const Kernel& kernel) {
  return (kernel.note.empty() ? "" : "# " + kernel.note + "\n") + canonical_text(kernel);
}

}  // namespace braze::schedule
