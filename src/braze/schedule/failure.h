// A fault of the scheduler's own, told with the buffers that it concerns.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "braze/support/check.h"

namespace braze::schedule {

// Thrown by schedule() where no kernel can be made of some buffers.
class KernelFailure : public InternalError {
 public:
  KernelFailure(const std::string& why, std::vector<int32_t> which) : InternalError(why), buffers(std::move(which)) {}
  std::vector<int32_t> buffers;
};

}  // namespace braze::schedule
