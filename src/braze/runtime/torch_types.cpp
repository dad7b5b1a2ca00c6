#include "braze/runtime/torch_types.h"

#include <array>
#include <utility>

#include "braze/support/check.h"

namespace braze::runtime {
namespace {

constexpr auto kPairs = std::to_array<std::pair<DType, c10::ScalarType>>({
    {DType::Bool, c10::ScalarType::Bool},
    {DType::U8, c10::ScalarType::Byte},
    {DType::I8, c10::ScalarType::Char},
    {DType::I16, c10::ScalarType::Short},
    {DType::I32, c10::ScalarType::Int},
    {DType::I64, c10::ScalarType::Long},
    {DType::U16, c10::ScalarType::UInt16},
    {DType::U32, c10::ScalarType::UInt32},
    {DType::U64, c10::ScalarType::UInt64},
    {DType::F16, c10::ScalarType::Half},
    {DType::BF16, c10::ScalarType::BFloat16},
    {DType::F32, c10::ScalarType::Float},
    {DType::F64, c10::ScalarType::Double},
    {DType::C32, c10::ScalarType::ComplexHalf},
    {DType::C64, c10::ScalarType::ComplexFloat},
    {DType::C128, c10::ScalarType::ComplexDouble},
    {DType::F8E4M3FN, c10::ScalarType::Float8_e4m3fn},
    {DType::F8E5M2, c10::ScalarType::Float8_e5m2},
    {DType::F8E4M3FNUZ, c10::ScalarType::Float8_e4m3fnuz},
    {DType::F8E5M2FNUZ, c10::ScalarType::Float8_e5m2fnuz},
    {DType::F8E8M0FNU, c10::ScalarType::Float8_e8m0fnu},
    {DType::QI8, c10::ScalarType::QInt8},
    {DType::QU8, c10::ScalarType::QUInt8},
    {DType::QI32, c10::ScalarType::QInt32},
});

}  // namespace

c10::ScalarType to_torch(DType dtype) {
  for (auto [ours, theirs] : kPairs)
    if (ours == dtype) return theirs;
  CHECK(dtype != DType::Other, "no torch type");
  return c10::ScalarType::Undefined;
}

DType from_torch(c10::ScalarType dtype) {
  for (auto [ours, theirs] : kPairs)
    if (theirs == dtype) return ours;
  return DType::Other;
}

c10::Device to_torch(Device device) {
  switch (device.kind) {
    case Device::Kind::Cpu: return c10::Device(c10::kCPU, device.index);
    case Device::Kind::Cuda: return c10::Device(c10::kCUDA, device.index);
    case Device::Kind::Meta: return c10::Device(c10::kMeta, device.index);
    case Device::Kind::Other: break;
  }
  CHECK(device.kind != Device::Kind::Other, "no torch device");
  return c10::Device(c10::kCPU);
}

}  // namespace braze::runtime
