#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "braze/graph/text.h"
#include "braze/loop/index.h"
#include "braze/loop/loop_ir.h"
#include "braze/loop/text.h"
#include "braze/support/check.h"

namespace braze::loop {

std::string_view text_of(BufferKind kind) {
  switch (kind) {
    case BufferKind::Input: return "input";
    case BufferKind::Pointwise: return "pointwise";
    case BufferKind::Reduction: return "reduce";
    case BufferKind::Scan: return "scan";
    case BufferKind::Cat: return "cat";
    case BufferKind::Scatter: return "scatter";
    case BufferKind::Extern: return "extern";
  }
  return "";
}

std::string_view text_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum: return "sum";
    case ReduceOp::Prod: return "prod";
    case ReduceOp::Max: return "max";
    case ReduceOp::Min: return "min";
    case ReduceOp::Any: return "any";
    case ReduceOp::All: return "all";
    case ReduceOp::ArgMax: return "argmax";
    case ReduceOp::ArgMin: return "argmin";
    case ReduceOp::Xor: return "xor";
  }
  return "";
}

namespace {

std::string join(std::span<const Expr> list) {
  std::string out;
  for (const Expr& e : list) out.append(out.empty() ? "" : ", ").append(to_string(e));
  return out;
}

// The shortest text that reads back as the same number of this type.
std::string text_of_real(DType dtype, double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto [end, error] = dtype == DType::F64
                                ? std::to_chars(buffer, buffer + sizeof buffer, value)
                                : std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(value));
  CHECK(error == std::errc());
  return std::string(buffer, end);
}

std::string layout(std::span<const Expr> sizes, std::span<const Expr> strides) {
  std::string out = "[" + join(sizes) + "]";
  if (strides.size() != sizes.size()) return out + "{?}";
  return is_row_major(sizes, strides) ? out : out + "{" + join(strides) + "}";
}

std::string offset_text(Expr offset) { return offset == Expr(0) ? "" : " + (" + to_string(offset) + ")"; }

std::string axes_text(std::span<const Axis> axes) {
  std::string out = "[";
  for (const Axis& axis : axes)
    out.append(out.size() > 1 ? ", " : "").append(to_string(axis.symbol)).append(" < ").append(to_string(axis.extent));
  return out + "]";
}

// One body: sub-expressions that are used more than once get a line of their own.
class BodyPrinter {
 public:
  BodyPrinter(const BufferName& name, std::string indent) : name_(name), indent_(std::move(indent)) {}

  void count(const Scalar* root) {
    visit(root, [&](const Scalar& s) {
      for (const Scalar* operand : s.operands) ++uses_[operand];
      for (const Binding& binding : s.bindings) ++uses_[binding.value];
    });
    ++uses_[root];
  }
  void count(std::span<const Binding> bindings) {
    for (const Binding& binding : bindings) count(binding.value);
  }

  std::string operator()(const Scalar* s) {
    if (const auto it = names_.find(s); it != names_.end()) return it->second;
    std::string text = expression(s);
    const bool is_leaf = s->op == ScalarOp::Constant || s->op == ScalarOp::Index || s->op == ScalarOp::Reduced;
    if (is_leaf || uses_[s] < 2) return text;
    std::string name = "v" + std::to_string(names_.size());
    lines_ += indent_ + name + " = " + text + "\n";
    names_.emplace(s, name);
    return name;
  }

  std::string bindings_text(std::span<const Binding> bindings) {
    std::string out;
    for (const Binding& b : bindings) {
      const std::string value = (*this)(b.value);
      out += (out.empty() ? " where " : ", ") + to_string(b.symbol) + " < " + to_string(b.extent) + " = " + value;
    }
    return out.empty() ? out : out + " end";
  }
  std::string take_lines() { return std::exchange(lines_, {}); }

 private:
  std::string expression(const Scalar* s) {
    const std::string dtype(text_of(s->dtype));
    switch (s->op) {
      case ScalarOp::Constant:
        return dtype + "(" +
               (is_floating(s->dtype) ? text_of_real(s->dtype, s->real) : std::to_string(s->integer)) + ")";
      case ScalarOp::Index: return "index(" + to_string(s->indices[0]) + ")";
      case ScalarOp::Reduced: return "reduced." + dtype + "(" + std::to_string(s->integer) + ")";
      case ScalarOp::Load: {
        std::string out = "load " + name_(s->buffer) + "[" + join(s->indices) + "]" + bindings_text(s->bindings);
        if (!s->operands.empty()) {
          const std::string mask = (*this)(s->operands[0]);
          out += " if " + mask + " else " + (*this)(s->operands[1]);
        }
        return out;
      }
      default: {
        std::string out = std::string(text_of(s->op)) + "." + dtype + "(";
        for (size_t k = 0; k < s->operands.size(); ++k) out += (k == 0 ? "" : ", ") + (*this)(s->operands[k]);
        return out + ")";
      }
    }
  }

  const BufferName& name_;
  std::string indent_, lines_;
  std::unordered_map<const Scalar*, int> uses_;
  std::unordered_map<const Scalar*, std::string> names_;
};

class Printer {
 public:
  explicit Printer(const LoopProgram& program) : program_(program) {}

  std::string operator()() {
    out_ = "program @" + (program_.graph != nullptr ? program_.graph->name : "main") + " {\n";
    for (const Expr& symbol : program_.env->symbols()) {
      const sym::Range range = symbol.range();
      out_ += "  sym " + symbol.symbol_name() + " in [" + bound(range.low) + ", " + bound(range.high) +
              "] = " + std::to_string(program_.env->hint(symbol)) + "\n";
    }
    print_unknown_ops();
    size_t next_call = 0;
    for (const Buffer& buffer : program_.buffers) {
      // A call stands in front of its first result.
      if (buffer.kind == BufferKind::Extern)
        while (next_call <= static_cast<size_t>(buffer.call)) print_call(next_call++);
      print_buffer(buffer);
    }
    while (next_call < program_.calls.size()) print_call(next_call++);
    for (size_t k = 0; k < program_.outputs.size(); ++k)
      out_ += "  output " + view_text(program_.outputs[k].view) + "\n";
    for (const auto& mutation : program_.mutations)
      out_ += "  mutate " + name(mutation.input_buffer) + " = " + view_text(mutation.value) + "\n";
    return out_ + "}\n";
  }

 private:
  void print_unknown_ops() {
    std::vector<const graph::Op*> declared;
    for (const ExternCall& call : program_.calls) {
      const graph::Op* op = call.node->op;
      if (op->id != graph::OpId::Unknown || std::ranges::find(declared, op) != declared.end()) continue;
      declared.push_back(op);
      out_ += "  op " + op->schema + "\n";
    }
  }

  static std::string bound(int64_t value) {
    return value == sym::kInf ? "inf" : value == -sym::kInf ? "-inf" : std::to_string(value);
  }

  std::string name(int32_t id) const { return program_.buffers[static_cast<size_t>(id)].name; }

  std::string view_text(const View& view) const {
    if (view.buffer < 0) return "undef";
    return name(view.buffer) + layout(view.sizes, view.strides) + offset_text(view.offset);
  }

  void print_body(const Scalar* body) {
    BodyPrinter printer(name_, "    ");
    printer.count(body);
    const std::string value = printer(body);
    out_ += printer.take_lines() + "    return " + value + "\n";
  }

  std::string reduction_text(const Buffer& b) const {
    return std::string(text_of(b.reduce)) + "." + std::string(text_of(b.accumulate));
  }

  void print_buffer(const Buffer& b) {
    out_ += "  " + b.name + " : " + std::string(text_of(b.dtype)) + layout(b.sizes, b.strides) + "@" +
            text_of(b.device) + offset_text(b.offset) + (b.flexible ? " flexible" : "") + " = " +
            std::string(text_of(b.kind));
    switch (b.kind) {
      case BufferKind::Input: out_ += " " + std::to_string(b.input); break;
      case BufferKind::Extern: print_result(b); break;
      case BufferKind::Pointwise: out_ += " " + axes_text(b.axes) + " {\n"; break;
      case BufferKind::Reduction:
        out_ += " " + reduction_text(b) + " " + axes_text(b.axes) + " over " + axes_text(b.reduce_axes) + " {\n";
        break;
      case BufferKind::Scan:
        out_ += " " + reduction_text(b) + " " + axes_text(b.axes) + " along " + std::to_string(b.scan_axis) +
                (b.exclusive ? " exclusive" : "") + " {\n";
        break;
      case BufferKind::Cat: out_ += " " + axes_text(b.axes) + " along " + std::to_string(b.cat_axis) + " {\n"; break;
      case BufferKind::Scatter: out_ += " " + axes_text(b.axes) + " {\n"; break;
    }
    if (b.kind != BufferKind::Input && b.kind != BufferKind::Extern) {
      for (const Piece& piece : b.pieces) {
        out_ += "  piece " + to_string(piece.begin) + " size " + to_string(piece.extent) + "\n";
        print_body(piece.body);
      }
      if (b.body != nullptr) print_body(b.body);
      if (b.kind == BufferKind::Scatter) print_update(b);
      out_ += "  }";
    }
    for (size_t k = 0; k < b.origins.size(); ++k) out_ += (k == 0 ? "  # " : "; ") + b.origins[k];
    out_ += "\n";
  }

  void print_result(const Buffer& b) {
    const auto& results = program_.calls[static_cast<size_t>(b.call)].results;
    const auto at = std::find(results.begin(), results.end(), b.id) - results.begin();
    out_ += " " + std::to_string(b.call) + "." + std::to_string(at);
  }

  void print_update(const Buffer& b) {
    out_ += "  update " + (b.accumulate_updates ? reduction_text(b) : "set") + " " + axes_text(b.update_axes) + "\n";
    BodyPrinter printer(name_, "    ");
    printer.count(b.update);
    printer.count(b.update_bindings);
    const std::string bindings = printer.bindings_text(b.update_bindings);
    const std::string value = printer(b.update);
    out_ += printer.take_lines() + "    at [" + join(b.update_at) + "]" + bindings + "\n    return " + value + "\n";
  }

  void print_call(size_t number) {
    const ExternCall& call = program_.calls[number];
    out_ += "  call " + std::to_string(number) + " = " + call.node->op->name + "(";
    size_t operand = 0;
    for (size_t k = 0; k < call.node->arguments.size(); ++k) {
      if (k > 0) out_ += ", ";
      print_argument(call, call.node->arguments[k], operand);
    }
    out_ += ")";
    for (const int32_t before : call.order_after) out_ += " after " + std::to_string(before);
    out_ += "\n";
  }

  void print_argument(const ExternCall& call, const graph::Argument& argument, size_t& operand) {
    if (argument.is<graph::Value*>()) {
      const graph::Value* value = argument.as<graph::Value*>();
      out_ += value == nullptr || !value->type.defined ? "undef" : view_text(call.operands[operand++]);
    } else if (argument.is<graph::ArgumentList>()) {
      out_ += "[";
      bool first = true;
      for (const graph::Argument& item : argument.as<graph::ArgumentList>()) {
        if (!std::exchange(first, false)) out_ += ", ";
        print_argument(call, item, operand);
      }
      out_ += "]";
    } else {
      out_ += graph::print(argument);
    }
  }

  const LoopProgram& program_;
  std::string out_;
  BufferName name_ = [this](int32_t id) { return name(id); };
};

}  // namespace

std::string print(const Scalar* body, const BufferName& name, std::string_view indent) {
  BodyPrinter printer(name, std::string(indent));
  printer.count(body);
  const std::string value = printer(body);
  return printer.take_lines() + std::string(indent) + "return " + value + "\n";
}

std::string print(const LoopProgram& program) { return Printer(program)(); }

}  // namespace braze::loop
