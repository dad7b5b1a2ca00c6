#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <unordered_map>

#include "braze/graph/regions.h"
#include "braze/graph/text.h"
#include "braze/graph/type_rules.h"

namespace braze::graph {
namespace {

bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '$'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), env_(std::make_shared<sym::ShapeEnv>()) {}

  std::unique_ptr<Graph> parse() {
    for (;;) {
      if (accept_word("sym"))
        parse_symbol();
      else if (accept_word("guard"))
        parse_guard();
      else if (accept_word("op"))
        parse_op();
      else
        break;
    }
    expect_word("graph");
    expect("@");
    graph_ = std::make_unique<Graph>(env_, std::string(name()));
    graph_->set_next_id(largest_id() + 1);
    parse_inputs();
    expect("{");
    while (!accept_word("return")) parse_node();
    parse_return();
    expect("}");
    skip_space();
    if (at_ != text_.size()) fail("end of text");
    return std::move(graph_);
  }

 private:
  // ---- Text ----
  [[noreturn]] void fail(const std::string& wanted) const { fail_at(at_, "expected " + wanted); }
  [[noreturn]] void fail_at(size_t place, const std::string& problem) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < place && i < text_.size(); ++i) {
      ++column;
      if (text_[i] == '\n') ++line, column = 1;
    }
    throw ParseError("line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + problem);
  }
  // Skips blanks and lines that start with //; a # starts a node's origin, which parse_node() takes.
  void skip_space() {
    for (;;) {
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
      const size_t line_start = at_ == 0 ? 0 : text_.rfind('\n', at_ - 1) + 1;
      const bool starts_line =
          text_.substr(line_start, at_ - line_start).find_first_not_of(" \t") == std::string_view::npos;
      if (!starts_line || !text_.substr(at_).starts_with("//")) return;
      at_ = std::min(text_.find('\n', at_), text_.size());
    }
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(std::string_view token) {
    skip_space();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  bool accept_word(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    if (at_ + word.size() < text_.size() && is_name_char(text_[at_ + word.size()])) return false;
    at_ += word.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("\"" + std::string(token) + "\"");
  }
  void expect_word(std::string_view word) {
    if (!accept_word(word)) fail("\"" + std::string(word) + "\"");
  }
  std::string_view name() {
    skip_space();
    const size_t start = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    if (at_ == start) fail("a name");
    return text_.substr(start, at_ - start);
  }
  std::string_view rest_of_line() {
    const size_t start = at_;
    at_ = std::min(text_.find('\n', at_), text_.size());
    std::string_view line = text_.substr(start, at_ - start);
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.remove_suffix(1);
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.front()))) line.remove_prefix(1);
    return line;
  }
  std::string quoted() {
    expect("\"");
    std::string out;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        ++at_;
        out += text_[at_] == 'n' ? '\n' : text_[at_];
      } else {
        out += text_[at_];
      }
    }
    expect("\"");
    return out;
  }
  int64_t integer() {
    skip_space();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("an integer");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  // ---- Header ----
  int64_t bound() {
    if (accept_word("inf")) return sym::kInf;
    if (accept("-inf")) return -sym::kInf;
    return integer();
  }
  void parse_symbol() {
    const std::string symbol(name());
    expect_word("in");
    expect("[");
    sym::Range range;
    range.low = bound();
    expect(",");
    range.high = bound();
    expect("]");
    const size_t place = at_;
    int64_t hint = range.low < 2 && range.high >= 2 ? 2 : range.low;
    if (accept("=")) hint = integer();
    std::string about;
    if (peek() == '"') about = quoted();
    if (range.low > hint || hint > range.high || symbols_.contains(symbol))
      fail_at(place, "symbol " + symbol + " is declared twice, or its hint is out of range");
    symbols_.emplace(symbol, env_->declare(symbol, range, hint, about));
  }
  void parse_guard() {
    const Expr predicate = expression("\"\n");
    sym::Reason reason;
    if (at_ < text_.size() && text_[at_] == '"') reason.text = quoted();
    env_->assume(predicate, std::move(reason));
  }
  void parse_op() {
    const size_t place = at_;
    std::string_view line = rest_of_line();
    uint32_t flags = 0;
    const std::pair<std::string_view, uint32_t> marks[] = {
        {" !random", kRandom}, {" !side_effect", kSideEffect}, {" !may_alias", kMayAlias}, {" !view", kView}};
    for (bool found = true; found;) {
      found = false;
      for (const auto& [mark, flag] : marks)
        if (line.ends_with(mark)) {
          line.remove_suffix(mark.size());
          flags |= flag;
          found = true;
        }
    }
    try {
      intern_op(line, flags);
    } catch (const std::invalid_argument& e) {
      fail_at(place, e.what());
    }
  }

  // ---- Expressions and types ----
  // The expression up to the next stop character outside of parentheses.
  Expr expression(std::string_view stops) {
    skip_space();
    const size_t start = at_;
    for (int depth = 0; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (depth == 0 && stops.find(c) != std::string_view::npos) break;
      if (c == '(') ++depth;
      if (c == ')') --depth;
    }
    std::string_view text = text_.substr(start, at_ - start);
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
    try {
      return sym::parse(text, [&](std::string_view symbol) {
        const auto it = symbols_.find(std::string(symbol));
        if (it == symbols_.end()) throw std::invalid_argument("no size symbol " + std::string(symbol));
        return it->second;
      });
    } catch (const std::invalid_argument& e) {
      fail_at(start, e.what());
    }
  }
  Shape shape(std::string_view close) {
    Shape out;
    if (accept(close)) return out;
    do {
      out.push_back(expression(std::string(",") + std::string(close)));
    } while (accept(","));
    expect(close);
    return out;
  }
  Device device() {
    Device d;
    if (accept_word("cpu"))
      d.kind = Device::Kind::Cpu;
    else if (accept_word("cuda"))
      d.kind = Device::Kind::Cuda;
    else if (accept_word("meta"))
      d.kind = Device::Kind::Meta;
    else if (accept_word("other"))
      d.kind = Device::Kind::Other;
    else
      fail("a device");
    if (at_ < text_.size() && text_[at_] == ':') {
      ++at_;
      d.index = static_cast<int8_t>(integer());
    }
    return d;
  }
  TensorType type() {
    TensorType t;
    if (accept_word("undef")) {
      t.defined = false;
      return t;
    }
    const size_t place = at_;
    const std::optional<DType> dtype = dtype_from_text(name());
    if (!dtype) fail_at(place, "expected an element type");
    t.dtype = *dtype;
    expect("[");
    t.sizes = shape("]");
    t.strides = accept("{") ? shape("}") : contiguous_strides(t.sizes);
    if (t.strides.size() != t.sizes.size()) fail("as many strides as sizes");
    if (accept_word("offset")) t.offset = expression("@,: )!#\n");
    if (accept("@")) t.device = device();
    if (accept_word("grad")) t.requires_grad = true;
    if (accept_word("weak")) t.wrapped_number = true;
    if (accept_word("unstrided")) t.is_strided = false;
    return t;
  }

  // ---- Values ----
  // The largest number that names a value anywhere.
  int32_t largest_id() const {
    int32_t largest = -1;
    for (size_t i = at_; i + 1 < text_.size(); ++i) {
      if (text_[i] != '%') continue;
      int32_t id = 0;
      const auto [end, error] = std::from_chars(text_.data() + i + 1, text_.data() + text_.size(), id);
      if (error == std::errc() && (end == text_.data() + text_.size() || !is_name_char(*end)))
        largest = std::max(largest, std::min(id, std::numeric_limits<int32_t>::max() - 1'000'000));
    }
    return largest;
  }
  static bool is_number(std::string_view word) {
    return word.find_first_not_of("0123456789") == std::string_view::npos;
  }
  void define(std::string_view word, Value* value) {
    if (!values_.emplace(std::string(word), value).second) fail_at(at_, "%" + std::string(word) + " is defined twice");
    if (is_number(word)) {
      int32_t id = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (error != std::errc() || end != word.data() + word.size())
        fail_at(at_, "%" + std::string(word) + " is too large");
      graph_->set_id(value, id);
      value->name.clear();
    } else {
      value->name = word;
    }
  }
  Value* use() {
    const size_t place = at_;
    expect("%");
    const std::string word(name());
    const auto it = values_.find(word);
    if (it == values_.end()) fail_at(place, "%" + word + " is not defined");
    return it->second;
  }
  void parse_inputs() {
    expect("(");
    while (!accept(")")) {
      if (accept("%")) {
        const std::string word(name());
        expect(":");
        TensorType t = type();
        Value* value = graph_->add_input(std::move(t), input_kind(), "");
        define(word, value);
      } else {
        const size_t place = at_;
        const auto it = symbols_.find(std::string(name()));
        if (it == symbols_.end()) fail_at(place, "expected an input: %name: type, or a size symbol");
        graph_->size_inputs.push_back(it->second);
      }
      if (!accept(",") && peek() != ')') fail("\",\" or \")\"");
    }
  }
  InputKind input_kind() {
    if (accept_word("parameter")) return InputKind::Parameter;
    if (accept_word("buffer")) return InputKind::Buffer;
    if (accept_word("constant")) return InputKind::Constant;
    if (accept_word("tangent")) return InputKind::Tangent;
    if (accept_word("saved")) return InputKind::Saved;
    return InputKind::User;
  }

  // ---- Nodes ----
  Argument argument(std::string_view base_type) {
    const char c = peek();
    if (c == '%') return use();
    if (c == '"') return quoted();
    if (c == '@') {
      ++at_;
      return device();
    }
    if (accept("[")) {
      ArgumentList list;
      while (!accept("]")) {
        list.push_back(argument(base_type));
        if (!accept(",") && peek() != ']') fail("\",\" or \"]\"");
      }
      return list;
    }
    if (accept_word("none")) return None{};
    if (accept_word("undef")) return static_cast<Value*>(nullptr);
    if (accept_word("true")) return true;
    if (accept_word("false")) return false;
    if (accept_word("contiguous_format")) return MemoryFormat{0};
    if (accept_word("preserve_format")) return MemoryFormat{1};
    if (accept_word("channels_last")) return MemoryFormat{2};
    if (accept_word("channels_last_3d")) return MemoryFormat{3};
    if (accept("layout(")) {
      const Layout layout{static_cast<int8_t>(integer())};
      expect(")");
      return layout;
    }
    if (accept("complex(")) {
      const double real = number();
      expect(",");
      const double imaginary = number();
      expect(")");
      return std::complex<double>(real, imaginary);
    }
    if (accept("opaque(")) {
      Opaque object;
      object.slot = static_cast<int32_t>(integer());
      expect(",");
      object.text = quoted();
      expect(")");
      return object;
    }
    return word_or_number(base_type);
  }
  // A dtype, a floating number or a size expression. A dtype wins where the schema asks for one.
  Argument word_or_number(std::string_view base_type) {
    const size_t start = at_;
    size_t end = at_;
    while (end < text_.size() && (is_name_char(text_[end]) || ((text_[end] == '-' || text_[end] == '+') &&
                                                               (end == start || text_[end - 1] == 'e'))))
      ++end;
    const std::string_view word = text_.substr(start, end - start);
    if (const auto dtype = dtype_from_text(word);
        dtype && (base_type == "ScalarType" || !symbols_.contains(std::string(word)))) {
      at_ = end;
      return *dtype;
    }
    if (is_floating_text(word)) return number();
    return expression(",)]\n");
  }
  static bool is_floating_text(std::string_view word) {
    if (word == "inf" || word == "-inf" || word == "nan") return true;
    const size_t digit = word.starts_with("-") ? 1 : 0;
    return word.size() > digit && std::isdigit(static_cast<unsigned char>(word[digit])) &&
           word.find_first_of(".e") != std::string_view::npos;
  }
  double number() {
    skip_space();
    if (accept_word("nan")) return std::numeric_limits<double>::quiet_NaN();
    if (accept_word("inf")) return std::numeric_limits<double>::infinity();
    if (accept("-inf")) return -std::numeric_limits<double>::infinity();
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("a number");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  void parse_node() {
    std::vector<std::string> names;
    if (peek() == '%') {
      do {
        expect("%");
        names.emplace_back(name());
      } while (accept(","));
      expect("=");
    }
    skip_space();
    const size_t place = at_;
    const std::string op_name(name());
    const Op* node_op = find_op(op_name);
    if (node_op == nullptr) fail_at(place, "unknown op " + op_name + " (declare it: op ns::name(...) -> ...)");
    std::vector<Argument> arguments = parse_arguments(*node_op);
    std::vector<TensorType> types;
    if (accept(":")) {
      do {
        types.push_back(type());
      } while (accept(","));
      if (types.size() != names.size()) fail_at(place, "as many types as results are needed");
    } else if (!names.empty()) {
      types = infer(place, node_op, arguments, names.size());
    }
    Node* node = graph_->add_node(node_op, std::move(arguments), std::move(types));
    for (size_t i = 0; i < names.size(); ++i) define(names[i], node->results[i]);
    for (;;) {
      if (accept("!order")) {
        node->order_after = last_ordered_;
        last_ordered_ = node;
      } else if (accept("!recompute")) {
        node->tags |= kRecompute;
        if (accept("(")) {
          node->tags |= static_cast<uint32_t>(integer()) << kRegionShift;
          expect(")");
        }
      } else if (accept("!backward")) {
        node->tags |= kBackward;
      } else if (accept("!no_grad")) {
        node->tags |= kNoGrad;
      } else {
        break;
      }
    }
    if (accept("#")) node->origin = rest_of_line();
  }
  // A node without types gets those of the native rule.
  std::vector<TensorType> infer(size_t place, const Op* node_op, const std::vector<Argument>& arguments, size_t n) {
    Result<std::vector<TensorType>> types = Unsupported{};
    try {
      types = infer_types(node_op, arguments, {env_.get(), DType::F32});
    } catch (const std::exception& e) {  // arguments of a wrong kind
      fail_at(place, node_op->name + ": " + e.what());
    }
    if (!types.ok()) fail_at(place, "no result types are given, and " + types.why().reason);
    if (types->size() != n) fail_at(place, node_op->name + " has " + std::to_string(types->size()) + " results");
    return std::move(types).value();
  }
  std::vector<Argument> parse_arguments(const Op& node_op) {
    std::vector<Argument> arguments(node_op.arguments.size());
    std::vector<bool> given(arguments.size());
    size_t next = 0;
    expect("(");
    while (!accept(")")) {
      const size_t place = at_;
      size_t i = next;
      if (const int named = keyword(node_op); named >= 0) i = static_cast<size_t>(named);
      if (i >= arguments.size() || given[i]) fail_at(place, "too many arguments, or one twice");
      arguments[i] = argument(node_op.arguments[i].base_type());
      given[i] = true;
      next = i + 1;
      if (!accept(",") && peek() != ')') fail("\",\" or \")\"");
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (given[i]) continue;
      std::optional<Argument> value = default_of(node_op.arguments[i]);
      if (!value) fail("argument " + node_op.arguments[i].name + " of " + node_op.name);
      arguments[i] = std::move(*value);
    }
    return arguments;
  }
  // The number of the argument if "name=" stands here, else -1.
  int keyword(const Op& node_op) {
    skip_space();
    size_t end = at_;
    while (end < text_.size() && is_name_char(text_[end])) ++end;
    size_t equals = end;
    while (equals < text_.size() && text_[equals] == ' ') ++equals;
    if (end == at_ || equals + 1 >= text_.size() || text_[equals] != '=' || text_[equals + 1] == '=') return -1;
    const std::string_view word = text_.substr(at_, end - at_);
    const int i = node_op.argument_index(word);
    if (i < 0) fail("an argument of " + node_op.name + ", not " + std::string(word));
    at_ = equals + 1;
    return i;
  }

  void parse_return() {
    while (peek() == '%' || peek() == 'u') {
      graph_->outputs.push_back(accept_word("undef") ? nullptr : use());
      if (!accept(",")) break;
    }
    if (accept("mutates(")) {
      do {
        const size_t place = at_;
        Value* input = use();
        if (input->producer != nullptr) fail_at(place, "expected an input");
        expect("=");
        Mutation mutation{input->index, use(), true};
        mutation.under_no_grad = !accept_word("with_grad");
        graph_->mutations.push_back(mutation);
      } while (accept(","));
      expect(")");
    }
    if (accept("aliases(")) {
      do {
        parse_alias();
      } while (accept(","));
      expect(")");
    }
  }
  void parse_alias() {
    OutputAlias alias;
    alias.output = static_cast<int32_t>(integer());
    expect("=");
    if (accept_word("output"))
      alias.base_output = static_cast<int32_t>(integer());
    else
      alias.input = use()->index;
    alias.same_object = !accept_word("as");
    if (!alias.same_object) {
      expect("[");
      alias.sizes = shape("]");
      expect("{");
      alias.strides = shape("}");
      alias.conj = accept_word("conj");
      alias.neg = accept_word("neg");
      alias.detached = accept_word("detached");
      if (accept_word("offset")) alias.offset = expression(",)");
    }
    graph_->aliases.push_back(std::move(alias));
  }

  std::string_view text_;
  size_t at_ = 0;
  std::shared_ptr<sym::ShapeEnv> env_;
  std::unique_ptr<Graph> graph_;
  std::unordered_map<std::string, Expr> symbols_;
  std::unordered_map<std::string, Value*> values_;
  Node* last_ordered_ = nullptr;
};

}  // namespace

std::unique_ptr<Graph> parse(std::string_view text) { return Parser(text).parse(); }

}  // namespace braze::graph
