// Result<T>: a value, or the reason why this program part can't be compiled.
// `Unsupported` is an answer, not an error: capture turns it into a graph break or an eager call.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace braze {

struct Unsupported {
  std::string reason;  // what was met: "call of unknown native function random.random"
  std::string remedy;  // what the user can do; may be empty
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Unsupported why) : state_(std::in_place_index<1>, std::move(why)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Unsupported& why() const { return std::get<1>(state_); }

 private:
  std::variant<T, Unsupported> state_;
};

struct Ok {};
using Status = Result<Ok>;

}  // namespace braze

// TRY(x, f()): declares x from a Result, or returns its Unsupported from the enclosing function.
#define BRAZE_CONCAT_(a, b) a##b
#define BRAZE_CONCAT(a, b) BRAZE_CONCAT_(a, b)
#define TRY(declaration, expression) TRY_(BRAZE_CONCAT(try_result_, __LINE__), declaration, expression)
#define TRY_(name, declaration, expression)  \
  auto name = (expression);                  \
  if (!name.ok()) return name.why();         \
  declaration = std::move(name).value()
#define TRY_STATUS(expression) \
  if (auto try_status = (expression); !try_status.ok()) return try_status.why()
