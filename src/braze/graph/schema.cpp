#include "braze/graph/schema.h"

#include <cctype>
#include <charconv>
#include <stdexcept>

namespace braze::graph {
namespace {

class SchemaParser {
 public:
  explicit SchemaParser(std::string_view text) : text_(text) {}

  Op parse() {
    Op op{};
    op.id = OpId::Unknown;
    op.schema = text_;
    op.name = printed_name(read_until("("));
    expect('(');
    bool keyword_only = false;
    while (!accept(')')) {
      if (accept('*')) {
        keyword_only = true;
      } else {
        OpArgument argument;
        argument.list_size = read_type(argument.type, argument.alias);
        argument.is_tensor = argument.type == "Tensor" || argument.type == "Tensor?";
        argument.is_scalar = argument.type == "Scalar" || argument.type == "Scalar?";
        argument.name = read_name();
        if (argument.name.empty()) fail("an argument name");
        if (accept('=')) argument.default_text = read_default();
        argument.keyword_only = keyword_only;
        op.arguments.push_back(std::move(argument));
      }
      if (!accept(',') && peek() != ')') fail("\",\" or \")\"");
    }
    if (!accept('-') || !accept('>')) fail("\"->\"");
    if (accept('(')) {
      while (!accept(')')) {
        read_return(op);
        if (!accept(',') && peek() != ')') fail("\",\" or \")\"");
      }
    } else {
      read_return(op);
    }
    skip_space();
    if (at_ != text_.size()) fail("end of schema");
    return op;
  }

 private:
  [[noreturn]] void fail(const std::string& wanted) const {
    throw std::invalid_argument("schema \"" + std::string(text_) + "\", column " + std::to_string(at_ + 1) +
                                ": expected " + wanted);
  }
  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("\"") + c + "\"");
  }
  std::string_view read_until(std::string_view stops) {
    const size_t start = at_;
    while (at_ < text_.size() && stops.find(text_[at_]) == std::string_view::npos) ++at_;
    return text_.substr(start, at_ - start);
  }
  static bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }
  std::string read_name() {
    skip_space();
    const size_t start = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    return std::string(text_.substr(start, at_ - start));
  }

  // "Tensor(a -> *)[]?" gives type "Tensor[]?" and alias "a -> *". Lists lose their sizes: "int[2]" is "int[]".
  // Returns the list size.
  int read_type(std::string& type, std::string& alias) {
    int list_size = 0;
    type = read_name();
    if (type.empty()) fail("a type");
    for (;;) {
      if (at_ < text_.size() && text_[at_] == '(') {
        const size_t start = ++at_;
        int depth = 1;
        for (; at_ < text_.size(); ++at_) {
          if (text_[at_] == '(') ++depth;
          if (text_[at_] == ')' && --depth == 0) break;
        }
        const std::string_view inside = text_.substr(start, at_ - start);
        expect(')');
        // "Dict(str, Tensor)", "Future(t)": a parameter of the type, no alias.
        if (type == "Tensor" || type == "Tensor[]" || type == "Tensor?")
          alias = inside;
        else
          type.append("(").append(inside).append(")");
      } else if (at_ < text_.size() && text_[at_] == '[') {
        ++at_;
        const std::string_view digits = read_until("]");
        std::from_chars(digits.data(), digits.data() + digits.size(), list_size);
        expect(']');
        type += "[]";
      } else if (at_ < text_.size() && text_[at_] == '?') {
        ++at_;
        type += '?';
      } else {
        return list_size;
      }
    }
  }
  void read_return(Op& op) {
    std::string type, alias;
    read_type(type, alias);
    op.returns.push_back(std::move(type));
    read_name();
  }
  std::string read_default() {
    skip_space();
    const size_t start = at_;
    int depth = 0;
    for (char quote = '\0'; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (quote != '\0') {
        if (c == quote) quote = '\0';
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == '(' || c == '[') {
        ++depth;
      } else if (depth > 0 && (c == ')' || c == ']')) {
        --depth;
      } else if (depth == 0 && (c == ',' || c == ')')) {
        break;
      }
    }
    if (at_ == start) fail("a default value");
    return std::string(text_.substr(start, at_ - start));
  }
  std::string printed_name(std::string_view name) {
    const size_t colons = name.find("::");
    if (colons == std::string_view::npos || colons == 0) fail("\"namespace::name\"");
    std::string out(name.substr(0, colons));
    out.append(".").append(name.substr(colons + 2));
    constexpr std::string_view kDefault = ".default";
    if (out.ends_with(kDefault)) out.resize(out.size() - kDefault.size());
    return out;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Op parse_schema(std::string_view text) { return SchemaParser(text).parse(); }

}  // namespace braze::graph
