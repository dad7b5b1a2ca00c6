#include "braze/schedule/program.h"

namespace braze::schedule {
std::string verify(const Program&) { return ""; }
}  // namespace braze::schedule
