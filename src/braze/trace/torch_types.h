// Element types and devices of torch to and from Braze's.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "braze/support/dtype.h"

namespace braze::trace {

c10::ScalarType to_torch(DType dtype);
DType from_torch(c10::ScalarType dtype);    // DType::Other for types without a row
c10::Device to_torch(Device device);
Device from_torch(c10::Device device);      // Kind::Other for devices without a name in the IR

}  // namespace braze::trace
