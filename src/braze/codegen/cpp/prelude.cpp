#include "braze/codegen/cpp/prelude.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>
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

struct Mark {
  std::string_view word;
  std::string (*text)(int lanes, int vector_bytes);
};

// The first that a mark begins with is meant.
constexpr Mark kMarks[] = {
    {"iota", [](int n, int) { return numbers(0, n); }},
    {"odd", [](int n, int) { return numbers(1, 2 * n, 2); }},
    {"low", [](int n, int) { return numbers(0, n / 2); }},
    {"high", [](int n, int) { return numbers(n / 2, n); }},
    {"shifts", [](int n, int) { return shifts(n); }},
    {"steps", [](int n, int) { return steps(n); }},
    {"fold", [](int n, int) { return fold(n); }},
    {"pairs", [](int n, int) { return numbers(0, n, 2) + ", " + numbers(n + 1, 2 * n, 2); }},
    {"backwards", [](int n, int) { return numbers(n - 1, -1, -1); }},
    {"gathered", [](int n, int) { return gathered(n); }},
    {"transpose", [](int n, int) { return transpose(n); }},
    {"L", [](int n, int) { return std::to_string(n); }},
    {"W", [](int, int bytes) { return std::to_string(bytes); }},
    {"1", [](int n, int) { return std::to_string(n); }},
    {"2", [](int n, int) { return std::to_string(2 * n); }},
    {"4", [](int n, int) { return std::to_string(4 * n); }},
    {"8", [](int n, int) { return std::to_string(8 * n); }},
};

std::string fill_in(std::string_view text, int lanes, int vector_bytes) {
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    const size_t at = std::min(text.find('@', begin), text.size());
    result += text.substr(begin, at - begin);
    if (at == text.size()) break;
    const std::string_view rest = text.substr(at + 1);
    const auto mark = std::ranges::find_if(kMarks, [&](const Mark& m) { return rest.starts_with(m.word); });
    CHECK(mark != std::end(kMarks), "unknown mark in a prelude snippet: " << rest.substr(0, 8));
    result += mark->text(lanes, vector_bytes);
    begin = at + 1 + mark->word.size();
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

// The snippets for one kind of machine and number of lanes, filled in when a kernel first needs them.
class Prelude {
 public:
  Prelude(const schedule::Target& target, int lanes)
      : lanes_(lanes), vector_bytes_(target.vector_bytes), types_(fill_in(kTypes, lanes, target.vector_bytes)) {
    for (auto table : {memory_snippets(), arithmetic_snippets(), reduction_snippets(), libm_snippets(),
                       math64_snippets(), math_snippets()})
      for (const Snippet& snippet : table) {
        if (!applies(snippet.when, target, lanes)) continue;
        for_each_word(snippet.names, [&](std::string_view name) { defined_.emplace(name, snippets_.size()); });
        snippets_.push_back({&snippet, {}});
      }
  }

  std::string for_body(std::string_view body) {
    std::vector<bool> wanted(snippets_.size(), false);
    std::vector<std::string_view> queue = {body};
    while (!queue.empty()) {
      const std::string_view text = queue.back();
      queue.pop_back();
      for_each_word(text, [&](std::string_view word) {
        const auto found = defined_.find(word);
        if (found == defined_.end() || wanted[found->second]) return;
        wanted[found->second] = true;
        queue.push_back(snippets_[found->second].snippet->text);
      });
    }
    std::string result = types_;
    for (size_t i = 0; i < snippets_.size(); ++i)
      if (wanted[i]) result += filled(snippets_[i]);
    return result;
  }

 private:
  struct Entry {
    const Snippet* snippet;
    std::string text;
  };

  const std::string& filled(Entry& entry) const {
    if (entry.text.empty()) entry.text = fill_in(entry.snippet->text, lanes_, vector_bytes_);
    return entry.text;
  }

  int lanes_, vector_bytes_;
  std::string types_;
  std::vector<Entry> snippets_;
  std::unordered_map<std::string_view, size_t> defined_;
};

}  // namespace

std::string prelude_for(std::string_view body, const schedule::Target& target, int lanes) {
  static std::mutex mutex;
  static std::map<std::tuple<int, bool, int>, Prelude> preludes;
  const std::lock_guard lock(mutex);
  const auto [it, is_new] = preludes.try_emplace({target.vector_bytes, target.has_fma, lanes}, target, lanes);
  return it->second.for_body(body);
}

}  // namespace braze::codegen
