// Defaults of schema arguments: "1", "1e-05", "True", "None", "[0, 1]", "Mean", "contiguous_format", "'none'".
#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "braze/graph/graph.h"

namespace braze::graph {
namespace {

std::optional<Argument> number(std::string_view text, std::string_view base_type) {
  const char *begin = text.data(), *end = begin + text.size();
  int64_t integer = 0;
  if (const auto [p, error] = std::from_chars(begin, end, integer); error == std::errc() && p == end) {
    if (base_type == "float") return Argument(static_cast<double>(integer));
    return Argument(Expr(integer));
  }
  double real = 0;
  if (const auto [p, error] = std::from_chars(begin, end, real); error == std::errc() && p == end)
    return Argument(real);
  return std::nullopt;
}

// Enumerations that schemas name: at::Reduction, memory formats, layouts.
std::optional<Argument> named(std::string_view text) {
  if (text == "None") return Argument();
  if (text == "True") return Argument(true);
  if (text == "False") return Argument(false);
  if (text == "Mean") return Argument(Expr(1));
  if (text == "Sum") return Argument(Expr(2));
  if (text == "contiguous_format") return Argument(MemoryFormat{0});
  if (text == "preserve_format") return Argument(MemoryFormat{1});
  if (text == "strided") return Argument(Layout{0});
  return std::nullopt;
}

}  // namespace

std::optional<Argument> default_of(const OpArgument& argument) {
  std::string_view text = argument.default_text;
  if (text.empty()) return std::nullopt;
  const std::string_view base = argument.base_type();
  if (base == "MemoryFormat" && text == "0") return Argument(MemoryFormat{0});
  if (base == "MemoryFormat" && text == "1") return Argument(MemoryFormat{1});
  if (base == "Layout" && text == "0") return Argument(Layout{0});
  if (base == "ScalarType" && text == "4") return Argument(DType::I64);  // c10::ScalarType::Long
  if (auto value = named(text)) return value;
  if (text.size() >= 2 && (text[0] == '\'' || text[0] == '"'))
    return Argument(std::string(text.substr(1, text.size() - 2)));
  if (text[0] == '[' && text.back() == ']') {
    ArgumentList list;
    text = text.substr(1, text.size() - 2);
    while (!text.empty()) {
      const size_t comma = text.find(',');
      std::string_view item = text.substr(0, comma);
      while (!item.empty() && item[0] == ' ') item.remove_prefix(1);
      std::optional<Argument> value = named(item);
      if (!value) value = number(item, base);
      if (!value) throw std::invalid_argument("default \"" + argument.default_text + "\" of " + argument.name);
      list.push_back(std::move(*value));
      text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    }
    return Argument(std::move(list));
  }
  if (auto value = number(text, base)) {
    // "int[2] stride=1" means that number in each place.
    if (argument.is_list()) return Argument(ArgumentList(static_cast<size_t>(std::max(argument.list_size, 1)), *value));
    return value;
  }
  throw std::invalid_argument("default \"" + argument.default_text + "\" of " + argument.name);
}

}  // namespace braze::graph
