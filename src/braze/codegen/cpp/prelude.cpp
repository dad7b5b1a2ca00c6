#include "braze/codegen/cpp/prelude.h"

#include <cctype>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "braze/support/check.h"

namespace braze::codegen {

namespace {

constexpr std::string_view kTypes = R"(typedef float VF __attribute__((vector_size(@4)));
typedef double VD __attribute__((vector_size(@8)));
typedef int VI __attribute__((vector_size(@4)));
typedef unsigned VU __attribute__((vector_size(@4)));
typedef long VL __attribute__((vector_size(@8)));
typedef unsigned long VK __attribute__((vector_size(@8)));
typedef unsigned short VH __attribute__((vector_size(@2)));
typedef short VS __attribute__((vector_size(@2)));
typedef unsigned char VB __attribute__((vector_size(@1)));
typedef signed char VC __attribute__((vector_size(@1)));
)";

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

template <class F>
void for_each_word(std::string_view text, const F& f) {
  for (size_t i = 0; i < text.size();) {
    if (!is_word(text[i])) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && is_word(text[end])) ++end;
    f(text.substr(i, end - i));
    i = end;
  }
}

std::string numbers(int from, int to, int step = 1) {
  std::string text;
  for (int i = from; step > 0 ? i < to : i > to; i += step) text += (text.empty() ? "" : ", ") + std::to_string(i);
  return text;
}

// One statement a power of two: x = op(x, x shifted up by k lanes).
std::string shifts(int lanes) {
  std::string text;
  for (int k = 1; k < lanes; k *= 2)
    text += "x = op(x, __builtin_shufflevector(fill, x, " + numbers(0, k) + ", " + numbers(lanes, 2 * lanes - k) + ")); ";
  return text;
}

// One lane after the other meets the running value.
std::string steps(int lanes) {
  std::string text;
  for (int i = 0; i < lanes; ++i) text += "running = op(running, x[" + std::to_string(i) + "]); x[" + std::to_string(i) + "] = running; ";
  return text;
}

std::string gathered(int lanes) {
  std::string text;
  for (int i = 0; i < lanes; ++i) text += (i == 0 ? "p[k[" : ", p[k[") + std::to_string(i) + "]]";
  return text;
}

// op over the halves, down to two lanes.
std::string fold(int lanes) {
  std::string text, name = "v";
  for (int half = lanes / 2; half > 1; half /= 2) {
    const std::string next = "w" + std::to_string(half), pair = "__builtin_shufflevector(" + name + ", " + name + ", ";
    text += "auto " + next + " = op(" + pair + numbers(0, half) + "), " + pair + numbers(half, 2 * half) + ")); ";
    name = next;
  }
  return text + "return op(" + name + "[0], " + name + "[1]);";
}

// Rows of a square tile, loaded from q, to columns, stored to t: in step s, rows a and a + s exchange the lanes that
// differ in bit s.
std::string transpose(int lanes) {
  std::string text;
  auto row = [](int step, int k) { return "r" + std::to_string(step) + "_" + std::to_string(k); };
  for (int k = 0; k < lanes; ++k) text += "V " + row(1, k) + " = ldu<V>(q + " + std::to_string(k) + " * stride); ";
  for (int step = 1; step < lanes; step *= 2)
    for (int k = 0; k < lanes; ++k) {
      const bool upper = (k & step) != 0;
      const int a = upper ? k - step : k;
      std::string order;
      for (int lane = 0; lane < lanes; ++lane) {
        const bool from_b = (lane & step) != 0;
        const int source = upper ? (from_b ? lanes + lane : lane + step) : (from_b ? lanes + lane - step : lane);
        order += ", " + std::to_string(source);
      }
      text += "V " + row(2 * step, k) + " = __builtin_shufflevector(" + row(step, a) + ", " + row(step, a + step) + order + "); ";
    }
  for (int k = 0; k < lanes; ++k) text += "stu(t + " + std::to_string(k * lanes) + ", " + row(lanes, k) + "); ";
  return text;
}

std::string fill_in(std::string_view text, int lanes, int vector_bytes) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '@') {
      result += text[i];
      continue;
    }
    const std::string_view rest = text.substr(i + 1);
    auto take = [&](std::string_view word, const std::string& value) {
      if (!rest.starts_with(word)) return false;
      result += value;
      i += word.size();
      return true;
    };
    const bool known = take("iota", numbers(0, lanes)) || take("low", numbers(0, lanes / 2)) ||
                       take("high", numbers(lanes / 2, lanes)) || take("shifts", shifts(lanes)) || take("steps", steps(lanes)) || take("fold", fold(lanes)) ||
                       take("pairs", numbers(0, lanes, 2) + ", " + numbers(lanes + 1, 2 * lanes, 2)) ||
                       take("backwards", numbers(lanes - 1, -1, -1)) || take("gathered", gathered(lanes)) ||
                       take("transpose", transpose(lanes)) ||
                       take("L", std::to_string(lanes)) || take("W", std::to_string(vector_bytes)) ||
                       take("1", std::to_string(lanes)) || take("2", std::to_string(2 * lanes)) ||
                       take("4", std::to_string(4 * lanes)) || take("8", std::to_string(8 * lanes));
    CHECK(known, "unknown mark in a prelude snippet: " << rest.substr(0, 8));
  }
  return result;
}

bool applies(uint32_t when, const schedule::Target& target, int lanes) {
  const bool wide = target.vector_bytes == 64;
  uint32_t have = wide ? k512 : kNot512;
  have |= lanes >= 16 ? kLanes16 : lanes >= 8 ? kLanes8 : kFewLanes;
  have |= target.has_fma ? kFma : kNoFma;
  return (when & ~have) == 0;
}

}  // namespace

std::string prelude_for(std::string_view body, const schedule::Target& target, int lanes) {
  std::vector<const Snippet*> snippets;
  std::unordered_map<std::string_view, size_t> defined;
  for (auto table : {memory_snippets(), arithmetic_snippets(), reduction_snippets(), libm_snippets(),
                     math64_snippets(), math_snippets()})
    for (const Snippet& snippet : table) {
      if (!applies(snippet.when, target, lanes)) continue;
      for_each_word(snippet.names, [&](std::string_view name) { defined.emplace(name, snippets.size()); });
      snippets.push_back(&snippet);
    }
  std::unordered_set<size_t> wanted;
  std::vector<std::string_view> queue = {body};
  while (!queue.empty()) {
    const std::string_view text = queue.back();
    queue.pop_back();
    for_each_word(text, [&](std::string_view word) {
      auto found = defined.find(word);
      if (found != defined.end() && wanted.insert(found->second).second)
        queue.push_back(snippets[found->second]->text);
    });
  }
  std::string result = fill_in(kTypes, lanes, target.vector_bytes);
  for (size_t i = 0; i < snippets.size(); ++i)
    if (wanted.contains(i)) result += fill_in(snippets[i]->text, lanes, target.vector_bytes);
  return result;
}

}  // namespace braze::codegen
