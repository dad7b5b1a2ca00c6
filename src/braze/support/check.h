// CHECK(a == b) throws InternalError that shows both values, the expression and the place.
// An InternalError is a bug of ours: the entry points catch it and run the user's code eagerly.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace braze {

class InternalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace check_detail {

template <class T>
void print(std::ostream& os, const T& value) {
  if constexpr (requires { os << value; }) {
    os << value;
  } else {
    os << "<" << sizeof(T) << " bytes>";
  }
}

// Captures the left side of a comparison, then compares and keeps both sides as text.
struct Outcome {
  Outcome(bool is_ok, std::string text = {}) : ok(is_ok), sides(std::move(text)) {}  // NOLINT: conditions convert
  explicit operator bool() const { return ok; }   // for CHECK(a < b && c): compared, but not shown
  bool ok;
  std::string sides;
};

template <class L>
struct Left {
  const L& left;
  template <class R>
  static Outcome outcome(bool ok, const L& l, const char* op, const R& r) {
    if (ok) return true;
    std::ostringstream os;
    os << " (";
    print(os, l);
    os << " " << op << " ";
    print(os, r);
    os << ")";
    return {false, os.str()};
  }
  template <class R> Outcome operator==(const R& r) const { return outcome(left == r, left, "==", r); }
  template <class R> Outcome operator!=(const R& r) const { return outcome(left != r, left, "!=", r); }
  template <class R> Outcome operator<(const R& r) const { return outcome(left < r, left, "<", r); }
  template <class R> Outcome operator<=(const R& r) const { return outcome(left <= r, left, "<=", r); }
  template <class R> Outcome operator>(const R& r) const { return outcome(left > r, left, ">", r); }
  template <class R> Outcome operator>=(const R& r) const { return outcome(left >= r, left, ">=", r); }
  operator Outcome() const { return static_cast<bool>(left); }
  explicit operator bool() const { return static_cast<bool>(left); }
};

struct Split {
  template <class L>
  Left<L> operator<<(const L& left) const { return {left}; }
};

[[noreturn]] void fail(const char* expression, const std::string& sides, const char* file, int line,
                       const std::string& message);

}  // namespace check_detail
}  // namespace braze

// CHECK(condition) or CHECK(condition, "message " << value). torch defines a CHECK too: include torch's headers first.
#undef CHECK
#define CHECK(condition, ...)                                                                          \
  do {                                                                                                 \
    ::braze::check_detail::Outcome check_outcome = ::braze::check_detail::Split{} << condition;        \
    if (!check_outcome.ok) [[unlikely]] {                                                              \
      std::ostringstream check_message;                                                                \
      (void)(check_message __VA_OPT__(<< __VA_ARGS__));                                                \
      ::braze::check_detail::fail(#condition, check_outcome.sides, __FILE__, __LINE__,                 \
                                  check_message.str());                                                \
    }                                                                                                  \
  } while (false)
