// Reads what print() writes. Lines are statements; bodies are the lines up to the closing brace.
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <stdexcept>

#include "braze/graph/text.h"
#include "braze/loop/loop_ir.h"
#include "braze/loop/text.h"

namespace braze::loop {
namespace {

// A position in one line (or in the whole text, for the outermost loop over lines).
class Cursor {
 public:
  Cursor(std::string_view text, int line) : text_(text), line_(line) {}

  [[noreturn]] void fail(const std::string& expected) const {
    throw graph::ParseError("line " + std::to_string(line_) + ", column " + std::to_string(at_ + 1) + ": expected " +
                            expected + " at '" + std::string(text_.substr(at_, 20)) + "'");
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool at_end() {
    skip();
    return at_ == text_.size();
  }
  bool accept(std::string_view token) {
    skip();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  // The word as a whole, not the beginning of a longer one.
  bool accept_word(std::string_view word) {
    skip();
    const size_t end = at_ + word.size();
    if (!text_.substr(at_).starts_with(word) || (end < text_.size() && is_word(text_[end]))) return false;
    at_ = end;
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("'" + std::string(token) + "'");
  }
  std::string word() {
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (begin == at_) fail("a name");
    return std::string(text_.substr(begin, at_ - begin));
  }
  int64_t integer() {
    const std::string text = word();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) fail("an integer");
    return value;
  }
  // Text up to one of `ends`, outside of parentheses; the end is not consumed.
  std::string until(std::initializer_list<std::string_view> ends) {
    skip();
    const size_t begin = at_;
    for (int depth = 0; at_ < text_.size(); ++at_) {
      const std::string_view rest = text_.substr(at_);
      if (depth == 0 && std::ranges::any_of(ends, [&](std::string_view end) { return rest.starts_with(end); })) break;
      if (text_[at_] == '(') ++depth;
      if (text_[at_] == ')') --depth;
    }
    std::string_view out = text_.substr(begin, at_ - begin);
    while (out.ends_with(' ')) out.remove_suffix(1);
    return std::string(out);
  }
  std::string rest() {
    skip();
    return std::string(text_.substr(std::exchange(at_, text_.size())));
  }
  std::string quoted() {
    expect("\"");
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      out += text_[at_++];
    }
    expect("\"");
    return out;
  }

 private:
  static bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-' || c == '$';
  }
  std::string_view text_;
  int line_;
  size_t at_ = 0;
};

double number_from(const std::string& text, const Cursor& at) {
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) at.fail("a number");
  return value;
}

class Parser {
 public:
  explicit Parser(std::string_view text) {
    int number = 0;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      lines_.push_back({text.substr(0, end), ++number});
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    program_.env = std::make_shared<sym::ShapeEnv>();
    program_.scalars = std::make_unique<ScalarBuilder>();
  }

  LoopProgram operator()() {
    Cursor head = next_line();
    head.expect("program @");
    auto graph = std::make_shared<graph::Graph>(program_.env, head.word());
    head.expect("{");
    for (Cursor line = next_line(); !line.accept("}"); line = next_line()) statement(line, *graph);
    make_nodes(*graph);
    program_.graph = graph.get();
    program_.owned_graph = std::move(graph);
    return std::move(program_);
  }

 private:
  struct Line {
    std::string_view text;
    int number;
  };

  Cursor next_line() {
    while (next_ < lines_.size()) {
      const Line line = lines_[next_++];
      const size_t first = line.text.find_first_not_of(' ');
      if (first == std::string_view::npos || line.text.substr(first).starts_with("//")) continue;
      return {line.text, line.number};
    }
    throw graph::ParseError("the text ends too early");
  }

  void statement(Cursor& line, graph::Graph& graph) {
    if (line.accept_word("sym")) return symbol(line);
    if (line.accept_word("op")) return void(graph::intern_op(line.rest()));
    if (line.accept_word("call")) return call(line, graph);
    if (line.accept_word("output")) return program_.outputs.push_back({view(line)});
    if (line.accept_word("mutate")) {
      const int32_t input = buffer_named(line, line.word());
      line.expect("=");
      return program_.mutations.push_back({input, view(line)});
    }
    buffer(line);
  }

  void symbol(Cursor& line) {
    const std::string name = line.word();
    line.expect("in [");
    const auto bound = [&] {
      if (line.accept_word("inf")) return sym::kInf;
      if (line.accept_word("-inf")) return -sym::kInf;
      return line.integer();
    };
    const int64_t low = bound();
    line.expect(",");
    const int64_t high = bound();
    line.expect("] =");
    program_.env->declare(name, {low, high}, line.integer(), "");
  }

  // ---- Expressions

  Expr expression(const std::string& text, const Cursor& at) {
    try {
      return sym::parse(text, [&](std::string_view name) {
        for (const Expr& symbol : program_.env->symbols())
          if (symbol.symbol_name() == name) return symbol;
        if (const auto it = indices_.find(std::string(name)); it != indices_.end()) return it->second;
        throw std::invalid_argument("unknown symbol " + std::string(name));
      });
    } catch (const std::invalid_argument& problem) {
      at.fail(std::string("an expression (") + problem.what() + ")");
    }
  }

  std::vector<Expr> expressions(Cursor& line, std::string_view open, std::string_view close) {
    std::vector<Expr> out;
    line.expect(open);
    while (!line.accept(close)) {
      if (!out.empty()) line.expect(",");
      out.push_back(expression(line.until({",", close}), line));
    }
    return out;
  }

  Expr offset(Cursor& line) {
    if (!line.accept("+ (")) return 0;
    const Expr out = expression(line.until({")"}), line);
    line.expect(")");
    return out;
  }

  void layout(Cursor& line, Shape& sizes, Shape& strides) {
    sizes = expressions(line, "[", "]");
    if (line.accept("{?}")) return;
    strides = line.accept("{") ? unfinished(line) : graph::contiguous_strides(sizes);
  }
  Shape unfinished(Cursor& line) {   // after the opening brace
    Shape out;
    while (!line.accept("}")) {
      if (!out.empty()) line.expect(",");
      out.push_back(expression(line.until({",", "}"}), line));
    }
    return out;
  }

  std::vector<Axis> axes(Cursor& line) {
    std::vector<Axis> out;
    line.expect("[");
    while (!line.accept("]")) {
      if (!out.empty()) line.expect(",");
      const std::string name = line.word();
      line.expect("<");
      const Expr extent = expression(line.until({",", "]"}), line);
      out.push_back({index_symbol(name, extent), extent});
    }
    return out;
  }

  Expr index_symbol(const std::string& name, Expr extent) {
    const auto [it, is_new] = indices_.try_emplace(name);
    if (is_new) it->second = program_.env->context().index(name, extent == Expr(0) ? Expr(1) : extent);
    return it->second;
  }

  // ---- Views, buffers

  int32_t buffer_named(const Cursor& at, const std::string& name) {
    const auto it = buffers_.find(name);
    if (it == buffers_.end()) at.fail("a buffer, not " + name);
    return it->second;
  }

  View view(Cursor& line) {
    const std::string name = line.word();
    if (name == "undef") return {};
    View out;
    out.buffer = buffer_named(line, name);
    layout(line, out.sizes, out.strides);
    out.offset = offset(line);
    return out;
  }

  DType dtype(const Cursor& at, const std::string& text) {
    const auto found = dtype_from_text(text);
    if (!found) at.fail("a dtype, not " + text);
    return *found;
  }

  Device device(Cursor& line) {
    const std::string kind = line.word();
    Device out;
    out.kind = kind == "cpu" ? Device::Kind::Cpu : kind == "cuda" ? Device::Kind::Cuda
               : kind == "meta" ? Device::Kind::Meta : Device::Kind::Other;
    if (line.accept(":")) out.index = static_cast<int8_t>(line.integer());
    return out;
  }

  void buffer(Cursor& line) {
    Buffer b;
    b.id = static_cast<int32_t>(program_.buffers.size());
    b.name = line.word();
    line.expect(":");
    std::string type = line.until({"["});
    b.dtype = dtype(line, type);
    layout(line, b.sizes, b.strides);
    line.expect("@");
    b.device = device(line);
    b.offset = offset(line);
    b.flexible = line.accept_word("flexible");
    line.expect("=");
    if (line.accept_word("input")) {
      b.kind = BufferKind::Input;
      b.input = static_cast<int32_t>(line.integer());
    } else if (line.accept_word("extern")) {
      result(line, b);
    } else {
      computed(line, b);
    }
    buffers_[b.name] = b.id;
    origins(line, b);
    program_.buffers.push_back(std::move(b));
  }

  static void origins(Cursor& line, Buffer& b) {
    if (!line.accept("#")) return;
    while (!line.at_end()) {
      b.origins.push_back(line.until({"; "}));
      line.accept("; ");
    }
  }

  void result(Cursor& line, Buffer& b) {
    b.kind = BufferKind::Extern;
    const std::string text = line.word();   // call.result
    const size_t dot = text.find('.');
    if (dot == std::string::npos) line.fail("a call's result");
    b.call = std::stoi(text.substr(0, dot));
    if (b.call < 0 || static_cast<size_t>(b.call) >= program_.calls.size()) line.fail("a call");
    auto& results = program_.calls[static_cast<size_t>(b.call)].results;
    const auto at = static_cast<size_t>(std::stoi(text.substr(dot + 1)));
    if (results.size() <= at) results.resize(at + 1, -1);
    results[at] = b.id;
  }

  void reduce_op(Cursor& line, Buffer& b) {
    const std::string text = line.word();
    const size_t dot = text.find('.');
    for (int k = 0; k <= static_cast<int>(ReduceOp::Xor); ++k) {
      if (text.substr(0, dot) != text_of(static_cast<ReduceOp>(k))) continue;
      b.reduce = static_cast<ReduceOp>(k);
      b.accumulate = dtype(line, dot == std::string::npos ? "" : text.substr(dot + 1));
      return;
    }
    line.fail("a reduction");
  }

  void computed(Cursor& line, Buffer& b) {
    const std::string kind = line.word();
    bool known = false;
    for (const BufferKind k : {BufferKind::Pointwise, BufferKind::Reduction, BufferKind::Scan, BufferKind::Cat,
                               BufferKind::Scatter}) {
      if (kind != text_of(k)) continue;
      b.kind = k;
      known = true;
    }
    if (!known) line.fail("a kind of buffer");
    if (b.kind == BufferKind::Reduction || b.kind == BufferKind::Scan) reduce_op(line, b);
    b.axes = axes(line);
    if (b.kind == BufferKind::Reduction) {
      line.expect("over");
      b.reduce_axes = axes(line);
    }
    if (b.kind == BufferKind::Scan || b.kind == BufferKind::Cat) {
      line.expect("along");
      (b.kind == BufferKind::Scan ? b.scan_axis : b.cat_axis) = static_cast<int32_t>(line.integer());
    }
    b.exclusive = line.accept_word("exclusive");
    line.expect("{");
    body_lines(b);
    line = closing_;
  }

  void body_lines(Buffer& b) {
    for (Cursor line = next_line();; line = next_line()) {
      if (line.accept("}")) {
        closing_ = line;
        return;
      }
      if (line.accept_word("piece")) {
        Piece piece;
        piece.begin = expression(line.until({" size "}), line);
        line.expect("size");
        piece.extent = expression(line.rest(), line);
        piece.body = body();
        b.pieces.push_back(piece);
      } else if (line.accept_word("update")) {
        b.accumulate_updates = !line.accept_word("set");
        if (b.accumulate_updates) reduce_op(line, b);
        b.update_axes = axes(line);
        b.update = body(&b);
      } else {
        --next_;
        b.body = body();
      }
    }
  }

  // Lines up to "return": names, and the place of an update.
  const Scalar* body(Buffer* update = nullptr) {
    names_.clear();
    for (Cursor line = next_line();; line = next_line()) {
      if (line.accept_word("return")) return scalar(line);
      if (update != nullptr && line.accept("at [")) {
        const std::string places = line.until({"]"});
        line.expect("]");
        update->update_bindings = bindings(line);
        Cursor inner(places, 0);
        while (!inner.at_end()) {
          update->update_at.push_back(expression(inner.until({","}), line));
          inner.accept(",");
        }
        continue;
      }
      const std::string name = line.word();
      line.expect("=");
      names_[name] = scalar(line);
    }
  }

  std::vector<Binding> bindings(Cursor& line) {
    std::vector<Binding> out;
    if (!line.accept_word("where")) return out;
    do {
      const std::string name = line.word();
      line.expect("<");
      const Expr extent = expression(line.until({" = "}), line);
      line.expect("=");
      out.push_back({index_symbol(name, extent), scalar(line), extent});
    } while (line.accept(","));
    line.expect("end");
    return out;
  }

  const Scalar* load(Cursor& line) {
    const int32_t id = buffer_named(line, line.word());
    line.expect("[");
    const std::string indices = line.until({"]"});
    line.expect("]");
    std::vector<Binding> bound = bindings(line);   // their symbols stand in the indices
    Cursor inner(indices, 0);
    std::vector<Expr> at;
    while (!inner.at_end()) {
      at.push_back(expression(inner.until({","}), line));
      inner.accept(",");
    }
    const DType type = program_.buffers[static_cast<size_t>(id)].dtype;
    if (!line.accept_word("if")) return scalars().load(id, type, std::move(at), std::move(bound));
    const Scalar* mask = scalar(line);
    line.expect("else");
    const Scalar* otherwise = scalar(line);
    return scalars().load_masked(id, type, std::move(at), std::move(bound), mask, otherwise);
  }

  const Scalar* scalar(Cursor& line) {
    if (line.accept_word("load")) return load(line);
    if (line.accept("index(")) {
      const Expr e = expression(line.until({")"}), line);
      line.expect(")");
      return scalars().index(e);
    }
    const std::string word = line.word();
    if (!line.accept("(")) {
      const auto it = names_.find(word);
      if (it == names_.end()) line.fail("a value, not " + word);
      return it->second;
    }
    if (const auto type = dtype_from_text(word)) {
      const std::string text = line.until({")"});
      line.expect(")");
      return is_floating(*type) ? scalars().constant(*type, number_from(text, line))
                                : scalars().constant_int(*type, std::stoll(text));
    }
    const size_t dot = word.rfind('.');
    if (dot == std::string::npos) line.fail("an op with a dtype");
    const DType type = dtype(line, word.substr(dot + 1));
    std::vector<const Scalar*> operands;
    while (!line.accept(")")) {
      if (!operands.empty()) line.expect(",");
      operands.push_back(scalar(line));
    }
    return scalars().apply(op_named(line, word.substr(0, dot), operands.size()), type, operands);
  }

  static ScalarOp op_named(const Cursor& at, const std::string& name, size_t n_operands) {
    for (int k = 0; k <= static_cast<int>(ScalarOp::Fma); ++k) {
      const auto op = static_cast<ScalarOp>(k);
      if (name == text_of(op) && static_cast<int>(n_operands) == arity_of(op)) return op;
    }
    at.fail("an op, not " + name + " of " + std::to_string(n_operands));
  }

  // ---- Calls: their nodes are made at the end, when the results are known

  void call(Cursor& line, graph::Graph& graph) {
    ExternCall made;
    PendingNode pending;
    line.integer();
    line.expect("=");
    const std::string name = line.word();
    pending.op = graph::find_op(name);
    if (pending.op == nullptr) line.fail("an operator, not " + name);
    line.expect("(");
    while (!line.accept(")")) {
      if (!pending.arguments.empty()) line.expect(",");
      pending.arguments.push_back(argument(line, made, graph));
    }
    while (line.accept_word("after")) made.order_after.push_back(static_cast<int32_t>(line.integer()));
    pending_.push_back(std::move(pending));
    program_.calls.push_back(std::move(made));
  }

  graph::Argument argument(Cursor& line, ExternCall& made, graph::Graph& graph) {
    if (line.accept("[")) {
      graph::ArgumentList list;
      while (!line.accept("]")) {
        if (!list.empty()) line.expect(",");
        list.push_back(argument(line, made, graph));
      }
      return list;
    }
    if (line.accept_word("none")) return graph::None{};
    if (line.accept_word("true")) return true;
    if (line.accept_word("false")) return false;
    if (line.accept_word("undef")) return static_cast<graph::Value*>(nullptr);
    if (line.accept("@")) return device(line);
    if (line.accept("\"")) return quoted_rest(line);
    if (line.accept("layout(")) {
      const auto value = static_cast<int8_t>(line.integer());
      line.expect(")");
      return graph::Layout{value};
    }
    static constexpr std::string_view kFormats[] = {"contiguous_format", "preserve_format", "channels_last",
                                                    "channels_last_3d"};
    for (int8_t k = 0; k < 4; ++k)
      if (line.accept_word(kFormats[static_cast<size_t>(k)])) return graph::MemoryFormat{k};
    Cursor saved = line;
    const std::string text = line.until({",", ")", "]", "["});
    if (const auto it = buffers_.find(text); it != buffers_.end()) {
      line = saved;
      return operand(line, made, graph);
    }
    if (const auto type = dtype_from_text(text)) return *type;
    const bool real = text.find_first_of(".en") != std::string::npos &&
                      text.find_first_not_of("0123456789.e+-infa") == std::string::npos;
    if (real) return number_from(text, line);
    return expression(text, line);
  }

  static std::string quoted_rest(Cursor& line) {
    std::string out = line.until({"\""});
    line.expect("\"");
    return out;
  }

  graph::Argument operand(Cursor& line, ExternCall& made, graph::Graph& graph) {
    const View at = view(line);
    made.operands.push_back(at);
    graph::TensorType type;
    const Buffer& b = program_.buffers[static_cast<size_t>(at.buffer)];
    type.dtype = b.dtype;
    type.device = b.device;
    type.sizes = at.sizes;
    type.strides = at.strides;
    type.is_strided = at.strides.size() == at.sizes.size();
    return graph.add_input(type, graph::InputKind::User);
  }

  void make_nodes(graph::Graph& graph) {
    for (size_t k = 0; k < pending_.size(); ++k) {
      ExternCall& call = program_.calls[k];
      call.results.resize(std::max(call.results.size(), pending_[k].op->returns.size()), -1);
      std::vector<graph::TensorType> types;
      for (const int32_t id : call.results) {
        graph::TensorType type;
        type.defined = id >= 0;
        if (id >= 0) {
          const Buffer& b = program_.buffers[static_cast<size_t>(id)];
          type.dtype = b.dtype;
          type.sizes = b.sizes;
          type.strides = b.strides;
          type.device = b.device;
        }
        types.push_back(std::move(type));
      }
      call.node = graph.add_node(pending_[k].op, std::move(pending_[k].arguments), std::move(types));
    }
  }

  ScalarBuilder& scalars() { return *program_.scalars; }

  struct PendingNode {
    const graph::Op* op = nullptr;
    std::vector<graph::Argument> arguments;
  };

  std::vector<Line> lines_;
  size_t next_ = 0;
  LoopProgram program_;
  std::map<std::string, Expr> indices_;
  std::map<std::string, int32_t> buffers_;
  std::map<std::string, const Scalar*> names_;
  std::vector<PendingNode> pending_;
  Cursor closing_{"", 0};
};

}  // namespace

LoopProgram parse(std::string_view text) { return Parser(text)(); }

}  // namespace braze::loop
