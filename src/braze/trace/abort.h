// Abort: the exception that carries Unsupported through libtorch and CPython, where a Result can't travel.
// Thrown in dispatcher kernels; caught where Session calls native code.
#pragma once

#include <stdexcept>
#include <string>

#include "braze/support/result.h"

namespace braze::trace {

class Abort : public std::runtime_error {
 public:
  explicit Abort(Unsupported reason) : std::runtime_error(reason.reason), why(std::move(reason)) {}
  Unsupported why;
};

[[noreturn]] inline void unsupported(std::string reason, std::string remedy = {}) {
  throw Abort(Unsupported{std::move(reason), std::move(remedy)});
}

}  // namespace braze::trace
