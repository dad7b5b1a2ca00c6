// Braze's element types and devices to and from torch's.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "braze/support/dtype.h"

namespace braze::runtime {

c10::ScalarType to_torch(DType dtype);      // CHECKs that torch has it
DType from_torch(c10::ScalarType dtype);    // DType::Other for types without a row
c10::Device to_torch(Device device);

}  // namespace braze::runtime
