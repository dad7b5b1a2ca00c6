#include "braze/support/check.h"

namespace braze::check_detail {

void fail(const char* expression, const std::string& sides, const char* file, int line,
          const std::string& message) {
  std::ostringstream os;
  os << file << ":" << line << ": " << expression << sides;
  if (!message.empty()) os << ": " << message;
  throw InternalError(os.str());
}

}  // namespace braze::check_detail
