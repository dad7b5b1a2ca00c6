#include <algorithm>
#include <charconv>
#include <cmath>

#include "braze/graph/regions.h"
#include "braze/graph/text.h"
#include "braze/support/check.h"

namespace braze::graph {
namespace {

std::string name_of(const Value* value) {
  if (value == nullptr) return "undef";
  return "%" + (value->name.empty() ? std::to_string(value->id) : value->name);
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

// Shortest text that reads back as the same double, always with a sign of being no integer.
std::string text_of_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  CHECK(error == std::errc());
  std::string out(buffer, end);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

std::string text_of_shape(const Shape& shape) {
  std::string out;
  for (const Expr& e : shape) out.append(out.empty() ? "" : ", ").append(to_string(e));
  return out;
}

constexpr const char* kMemoryFormats[] = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};

struct ArgumentPrinter {
  std::string operator()(const None&) const { return "none"; }
  std::string operator()(Value* value) const { return name_of(value); }
  std::string operator()(const Expr& e) const { return to_string(e); }
  std::string operator()(double value) const { return text_of_double(value); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(const std::complex<double>& z) const {
    return "complex(" + text_of_double(z.real()) + ", " + text_of_double(z.imag()) + ")";
  }
  std::string operator()(const std::string& text) const { return quoted(text); }
  std::string operator()(DType dtype) const { return std::string(text_of(dtype)); }
  std::string operator()(Device device) const { return "@" + text_of(device); }
  std::string operator()(Layout layout) const { return "layout(" + std::to_string(layout.value) + ")"; }
  std::string operator()(MemoryFormat format) const {
    CHECK(format.value >= 0 && format.value < 4);
    return kMemoryFormats[format.value];
  }
  std::string operator()(const Opaque& object) const {
    return "opaque(" + std::to_string(object.slot) + ", " + quoted(object.text) + ")";
  }
  std::string operator()(const ArgumentList& list) const {
    std::string out = "[";
    for (const Argument& item : list) out.append(out.size() > 1 ? ", " : "").append(std::visit(*this, item.v));
    return out + "]";
  }
};

class Printer {
 public:
  Printer(const Graph& graph, const PrintOptions& options) : graph_(graph), options_(options) {}

  std::string operator()() {
    print_header();
    for (const Node* node : graph_.nodes) print_node(*node);
    print_return();
    return out_ + "}\n";
  }

 private:
  void print_header() {
    const sym::ShapeEnv& env = *graph_.env;
    for (const Expr& symbol : env.symbols()) {
      const sym::Range range = env.declared_range(symbol);  // the guards narrow it again
      out_ += "sym " + to_string(symbol) + " in [" + bound(range.low) + ", " + bound(range.high) +
              "] = " + std::to_string(env.hint(symbol));
      if (!env.name_of(symbol).empty()) out_ += " " + quoted(env.name_of(symbol));
      out_ += '\n';
    }
    for (const sym::Guard& guard : env.guards()) {
      out_ += "guard " + to_string(guard.predicate);
      if (!guard.reason.text.empty()) out_ += " " + quoted(guard.reason.text);
      out_ += '\n';
    }
    std::vector<const Op*> declared;
    for (const Node* node : graph_.nodes)
      if (node->op->id == OpId::Unknown && std::find(declared.begin(), declared.end(), node->op) == declared.end()) {
        declared.push_back(node->op);
        out_ += "op " + node->op->schema + flags_of(*node->op) + "\n";
      }
    out_ += "graph @" + graph_.name + "(";
    const char* separator = "";
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      out_ += separator + name_of(graph_.inputs[i]) + ": " + print(graph_.inputs[i]->type) +
              kind_text(graph_.input_kinds[i]);
      separator = ", ";
    }
    for (const Expr& size : graph_.size_inputs) {
      out_ += separator + to_string(size);
      separator = ", ";
    }
    out_ += ") {\n";
  }

  static std::string bound(int64_t value) {
    return value == sym::kInf ? "inf" : value == -sym::kInf ? "-inf" : std::to_string(value);
  }
  static std::string flags_of(const Op& op) {
    std::string out;
    if (op.has(kRandom)) out += " !random";
    if (op.has(kSideEffect)) out += " !side_effect";
    if (op.has(kMayAlias)) out += " !may_alias";
    if (op.has(kView)) out += " !view";
    return out;
  }
  static const char* kind_text(InputKind kind) {
    switch (kind) {
      case InputKind::User:
        return "";
      case InputKind::Parameter:
        return " parameter";
      case InputKind::Buffer:
        return " buffer";
      case InputKind::Constant:
        return " constant";
      case InputKind::Tangent:
        return " tangent";
      case InputKind::Saved:
        return " saved";
    }
    return "";
  }

  void print_node(const Node& node) {
    out_ += "  ";
    const char* separator = "";
    for (const Value* result : node.results) {
      out_ += separator + name_of(result);
      separator = ", ";
    }
    if (!node.results.empty()) out_ += " = ";
    out_ += node.op->name + "(";
    print_arguments(node);
    out_ += ")";
    separator = " : ";
    for (const Value* result : node.results) {
      out_ += separator + print(result->type);
      separator = ", ";
    }
    if (node.order_after != nullptr || node.op->has(kRandom) || node.op->has(kSideEffect)) out_ += " !order";
    if ((node.tags & kRecompute) != 0)
      out_ += region_of(node) == 0 ? " !recompute" : " !recompute(" + std::to_string(region_of(node)) + ")";
    if ((node.tags & kBackward) != 0) out_ += " !backward";
    if ((node.tags & kNoGrad) != 0) out_ += " !no_grad";
    if (options_.origins && !node.origin.empty()) out_ += "  # " + node.origin;
    out_ += '\n';
  }

  // Positional as far as possible; arguments that equal their defaults are left out, later ones named.
  void print_arguments(const Node& node) {
    const char* separator = "";
    bool named = false;
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      const OpArgument& declared = node.op->arguments[i];
      named = named || declared.keyword_only;
      const std::optional<Argument> value = default_of(declared);
      if (value && *value == node.arguments[i]) {
        named = true;
        continue;
      }
      out_ += separator;
      separator = ", ";
      if (named) out_ += declared.name + "=";
      out_ += std::visit(ArgumentPrinter{}, node.arguments[i].v);
    }
  }

  void print_return() {
    out_ += "  return";
    const char* separator = " ";
    for (const Value* output : graph_.outputs) {
      out_ += separator + name_of(output);
      separator = ", ";
    }
    if (!graph_.mutations.empty()) {
      out_ += " mutates(";
      separator = "";
      for (const Mutation& mutation : graph_.mutations) {
        out_ +=
            separator + name_of(graph_.inputs[static_cast<size_t>(mutation.input)]) + " = " + name_of(mutation.value);
        if (!mutation.under_no_grad) out_ += " with_grad";
        separator = ", ";
      }
      out_ += ")";
    }
    if (!graph_.aliases.empty()) {
      out_ += " aliases(";
      separator = "";
      for (const OutputAlias& alias : graph_.aliases) {
        out_ += separator + std::to_string(alias.output) + " = ";
        out_ += alias.input >= 0 ? name_of(graph_.inputs[static_cast<size_t>(alias.input)])
                                 : "output " + std::to_string(alias.base_output);
        if (!alias.same_object) {
          out_ += " as [" + text_of_shape(alias.sizes) + "]{" + text_of_shape(alias.strides) + "}";
          if (alias.conj) out_ += " conj";
          if (alias.neg) out_ += " neg";
          if (alias.detached) out_ += " detached";
          if (alias.offset != Expr(0)) out_ += " offset " + to_string(alias.offset);
        }
        separator = ", ";
      }
      out_ += ")";
    }
    out_ += '\n';
  }

  const Graph& graph_;
  const PrintOptions& options_;
  std::string out_;
};

}  // namespace

std::string print(const Argument& argument) { return std::visit(ArgumentPrinter{}, argument.v); }

std::string print(const TensorType& type) {
  if (!type.defined) return "undef";
  std::string out(text_of(type.dtype));
  out += "[" + text_of_shape(type.sizes) + "]";
  if (type.is_strided && type.strides != contiguous_strides(type.sizes)) out += "{" + text_of_shape(type.strides) + "}";
  if (type.offset != Expr(0))
    out += " offset " + (type.offset.is_constant() ? to_string(type.offset) : "(" + to_string(type.offset) + ")");
  if (type.device != Device{}) out += "@" + text_of(type.device);
  if (type.requires_grad) out += " grad";
  if (type.wrapped_number) out += " weak";
  if (!type.is_strided) out += " unstrided";
  return out;
}

std::string print(const Graph& graph, const PrintOptions& options) { return Printer(graph, options)(); }

}  // namespace braze::graph
