// Random chains of views over a symbolic size, lowered once and evaluated at several sizes, against the same steps done
// element by element.
#include <algorithm>
#include <functional>
#include <random>

#include "programs.h"

namespace braze::loop {
namespace {

struct Dim {
  int64_t constant = 1;
  bool symbolic = false;   // constant * s0
  std::string text() const {
    if (!symbolic) return std::to_string(constant);
    return constant == 1 ? "s0" : "s0*" + std::to_string(constant);
  }
  int64_t value(int64_t s0) const { return symbolic ? constant * s0 : constant; }
};

using Dims = std::vector<Dim>;

std::string text_of(const Dims& dims) {
  std::string out = "[";
  for (const Dim& d : dims) out += (out.size() > 1 ? ", " : "") + d.text();
  return out + "]";
}

using Place = std::vector<int64_t>;
// A step's text (its result takes `dims` as sizes), and where an element of the result comes from.
struct Step {
  std::string call;
  Dims dims;
  std::function<Place(const Place& at, int64_t s0)> source;
};

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  Step step(const Dims& from) {
    for (;;) {
      switch (pick(0, 6)) {
        case 0: return transpose(from);
        case 1: if (auto s = merge(from)) return *s; break;
        case 2: if (auto s = split(from)) return *s; break;
        case 3: if (auto s = slice(from)) return *s; break;
        case 4: if (auto s = expand(from)) return *s; break;
        case 5: if (auto s = select(from)) return *s; break;
        case 6: if (auto s = unfold(from)) return *s; break;
      }
    }
  }

 private:
  size_t any(const Dims& dims) { return static_cast<size_t>(pick(0, static_cast<int64_t>(dims.size()) - 1)); }

  Step transpose(const Dims& from) {
    const size_t a = any(from), b = any(from);
    Dims to = from;
    std::swap(to[a], to[b]);
    return {"transpose.int(%, " + std::to_string(a) + ", " + std::to_string(b) + ")", to,
            [=](const Place& at, int64_t) {
              Place out = at;
              std::swap(out[a], out[b]);
              return out;
            }};
  }

  std::optional<Step> merge(const Dims& from) {
    if (from.size() < 2) return std::nullopt;
    const size_t a = static_cast<size_t>(pick(0, static_cast<int64_t>(from.size()) - 2));
    if (from[a].symbolic && from[a + 1].symbolic) return std::nullopt;
    Dims to = from;
    to[a] = {from[a].constant * from[a + 1].constant, from[a].symbolic || from[a + 1].symbolic};
    to.erase(to.begin() + static_cast<ptrdiff_t>(a) + 1);
    const Dim inner = from[a + 1];
    return Step{"view(%, " + text_of(to) + ")", to, [=](const Place& at, int64_t s0) {
                  Place out = at;
                  out.insert(out.begin() + static_cast<ptrdiff_t>(a) + 1, at[a] % inner.value(s0));
                  out[a] = at[a] / inner.value(s0);
                  return out;
                }};
  }

  // A constant factor goes to the front or to the back.
  std::optional<Step> split(const Dims& from) {
    const size_t a = any(from);
    std::vector<int64_t> factors;
    for (int64_t f = 2; f <= from[a].constant; ++f)
      if (from[a].constant % f == 0) factors.push_back(f);
    if (factors.empty() || from.size() > 4) return std::nullopt;
    const int64_t f = factors[static_cast<size_t>(pick(0, static_cast<int64_t>(factors.size()) - 1))];
    const Dim rest{from[a].constant / f, from[a].symbolic}, factor{f, false};
    const bool front = pick(0, 1) == 0;
    Dims to = from;
    to[a] = front ? factor : rest;
    to.insert(to.begin() + static_cast<ptrdiff_t>(a) + 1, front ? rest : factor);
    const Dim inner = to[a + 1];
    return Step{"view(%, " + text_of(to) + ")", to, [=](const Place& at, int64_t s0) {
                  Place out = at;
                  out[a] = at[a] * inner.value(s0) + at[a + 1];
                  out.erase(out.begin() + static_cast<ptrdiff_t>(a) + 1);
                  return out;
                }};
  }

  std::optional<Step> slice(const Dims& from) {
    const size_t a = any(from);
    if (from[a].symbolic || from[a].constant < 3) return std::nullopt;
    const int64_t n = from[a].constant, start = pick(0, n - 2), by = pick(1, 2);
    const bool from_end = pick(0, 1) == 0;
    Dims to = from;
    to[a].constant = (n - start + by - 1) / by;
    return Step{"slice.Tensor(%, " + std::to_string(a) + ", " + std::to_string(from_end ? start - n : start) +
                    ", 9223372036854775807, " + std::to_string(by) + ")",
                to, [=](const Place& at, int64_t) {
                  Place out = at;
                  out[a] = start + by * at[a];
                  return out;
                }};
  }

  std::optional<Step> expand(const Dims& from) {
    if (from.size() > 4) return std::nullopt;
    Dims to = from;
    to.insert(to.begin(), {pick(2, 3), false});
    return Step{"expand(%, " + text_of(to) + ")", to,
                [](const Place& at, int64_t) { return Place(at.begin() + 1, at.end()); }};
  }

  std::optional<Step> select(const Dims& from) {
    const size_t a = any(from);
    if (from.size() < 3) return std::nullopt;
    const bool last = pick(0, 1) == 0;
    const Dim gone = from[a];
    Dims to = from;
    to.erase(to.begin() + static_cast<ptrdiff_t>(a));
    return Step{"select.int(%, " + std::to_string(a) + ", " + (last ? "-1" : "0") + ")", to,
                [=](const Place& at, int64_t s0) {
                  Place out = at;
                  out.insert(out.begin() + static_cast<ptrdiff_t>(a), last ? gone.value(s0) - 1 : 0);
                  return out;
                }};
  }

  std::optional<Step> unfold(const Dims& from) {
    const size_t a = any(from);
    if (from[a].symbolic || from[a].constant < 4 || from.size() > 4) return std::nullopt;
    Dims to = from;
    to[a].constant = (from[a].constant - 3) / 1 + 1;
    to.push_back({3, false});
    return Step{"unfold(%, " + std::to_string(a) + ", 3, 1)", to, [=](const Place& at, int64_t) {
                  Place out(at.begin(), at.end() - 1);
                  out[a] += at.back();
                  return out;
                }};
  }

  std::mt19937 random_;
};

}  // namespace

TEST_CASE("random chains of views") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    Generator generate(seed);
    const Dims input{{1, true}, {6, false}, {4, false}};
    std::vector<Step> steps;
    std::string text = "sym s0 in [2, inf] = 5\ngraph @main(%x: i64[s0, 6, 4]) {\n";
    Dims dims = input;
    std::string value = "%x";
    for (int k = 0; k < 6; ++k) {
      Step step = generate.step(dims);
      std::string call = step.call;
      call.replace(call.find('%'), 1, value);
      value = "%" + std::to_string(k);
      text += "  " + value + " = aten." + call + " : i64" + text_of(step.dims) + "\n";
      dims = step.dims;
      steps.push_back(std::move(step));
    }
    text += "  %99 = aten.neg(" + value + ") : i64" + text_of(dims) + "\n  return %99\n}\n";
    INFO("seed ", seed, "\n", text);
    const Lowered l = lowered(text);
    CHECK(l.computed() == 1);
    for (const int64_t s0 : {2, 3, 7}) {
      const HostTensor out = run(l, {counting(DType::I64, {s0, 6, 4})}, {s0}).outputs[0];
      Place at(dims.size(), 0);
      bool equal = true;
      for (const Number& got : out.data) {
        Place place = at;
        for (size_t k = steps.size(); k-- > 0;) place = steps[k].source(place, s0);
        equal = equal && got.integer == -((place[0] * 6 + place[1]) * 4 + place[2]);
        for (size_t k = dims.size(); k-- > 0;) {
          if (++at[k] < dims[k].value(s0)) break;
          at[k] = 0;
        }
      }
      CHECK(equal);
    }
  }
}

}  // namespace braze::loop
