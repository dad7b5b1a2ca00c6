#include "braze/trace/torch_types.h"

#include <array>

namespace braze::trace {
namespace {

// Indexed by c10::ScalarType; what is not listed is Other.
constexpr auto kFromTorch = [] {
  std::array<DType, static_cast<size_t>(c10::ScalarType::NumOptions)> table{};
  table.fill(DType::Other);
  const auto row = [&](c10::ScalarType theirs, DType ours) { table[static_cast<size_t>(theirs)] = ours; };
  using c10::ScalarType;
  row(ScalarType::Bool, DType::Bool);
  row(ScalarType::Byte, DType::U8);
  row(ScalarType::Char, DType::I8);
  row(ScalarType::Short, DType::I16);
  row(ScalarType::Int, DType::I32);
  row(ScalarType::Long, DType::I64);
  row(ScalarType::UInt16, DType::U16);
  row(ScalarType::UInt32, DType::U32);
  row(ScalarType::UInt64, DType::U64);
  row(ScalarType::Half, DType::F16);
  row(ScalarType::BFloat16, DType::BF16);
  row(ScalarType::Float, DType::F32);
  row(ScalarType::Double, DType::F64);
  row(ScalarType::ComplexHalf, DType::C32);
  row(ScalarType::ComplexFloat, DType::C64);
  row(ScalarType::ComplexDouble, DType::C128);
  row(ScalarType::Float8_e4m3fn, DType::F8E4M3FN);
  row(ScalarType::Float8_e5m2, DType::F8E5M2);
  row(ScalarType::Float8_e4m3fnuz, DType::F8E4M3FNUZ);
  row(ScalarType::Float8_e5m2fnuz, DType::F8E5M2FNUZ);
  row(ScalarType::Float8_e8m0fnu, DType::F8E8M0FNU);
  row(ScalarType::QInt8, DType::QI8);
  row(ScalarType::QUInt8, DType::QU8);
  row(ScalarType::QInt32, DType::QI32);
  return table;
}();

constexpr auto kToTorch = [] {
  std::array<c10::ScalarType, static_cast<size_t>(DType::Other) + 1> table{};
  table.fill(c10::ScalarType::Undefined);
  for (size_t i = 0; i < kFromTorch.size(); ++i)
    if (kFromTorch[i] != DType::Other) table[static_cast<size_t>(kFromTorch[i])] = static_cast<c10::ScalarType>(i);
  return table;
}();

}  // namespace

c10::ScalarType to_torch(DType dtype) { return kToTorch[static_cast<size_t>(dtype)]; }

DType from_torch(c10::ScalarType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return index < kFromTorch.size() ? kFromTorch[index] : DType::Other;
}

c10::Device to_torch(Device device) {
  switch (device.kind) {
    case Device::Kind::Cuda: return c10::Device(c10::kCUDA, device.index);
    case Device::Kind::Meta: return c10::Device(c10::kMeta, device.index);
    case Device::Kind::Cpu:
    case Device::Kind::Other: break;
  }
  return c10::Device(c10::kCPU);
}

Device from_torch(c10::Device device) {
  switch (device.type()) {
    case c10::kCPU: return {Device::Kind::Cpu, -1};
    case c10::kCUDA: return {Device::Kind::Cuda, device.index()};
    case c10::kMeta: return {Device::Kind::Meta, -1};
    default: return {Device::Kind::Other, device.index()};
  }
}

}  // namespace braze::trace
