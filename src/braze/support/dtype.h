// Element types and devices, by PyTorch's names and with PyTorch's promotion order. No torch header is needed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace braze {

enum class DType : uint8_t {
#define DTYPE(name, text, torch_name, bytes, kind) name,
#include "braze/support/dtypes.def"
#undef DTYPE
};

enum class DTypeKind : uint8_t { Bool, Int, Float, Complex, Opaque };

int64_t size_of(DType dtype);                        // bytes of an element
DTypeKind kind_of(DType dtype);
std::string_view text_of(DType dtype);               // "f32", as the IR prints it
std::string_view torch_name_of(DType dtype);         // "float32"
std::optional<DType> dtype_from_text(std::string_view text);

inline bool is_floating(DType d) { return kind_of(d) == DTypeKind::Float; }
inline bool is_complex(DType d) { return kind_of(d) == DTypeKind::Complex; }
inline bool is_integral(DType d, bool include_bool) {
  return kind_of(d) == DTypeKind::Int || (include_bool && d == DType::Bool);
}
// torch.promote_types; nullopt where PyTorch raises: uint16 to uint64 with other integers, 8-bit floats, opaque types.
std::optional<DType> try_promote(DType a, DType b);
DType promote(DType a, DType b);   // of types that have a common one
// The type in which eager computes a pointwise op: f32 for bf16 and f16, itself otherwise.
DType compute_type(DType d);

struct Device {
  enum class Kind : uint8_t { Cpu, Cuda, Meta, Other };
  Kind kind = Kind::Cpu;
  int8_t index = -1;
  bool operator==(const Device&) const = default;
};
std::string text_of(Device device);                  // "cpu", "cuda:0"

}  // namespace braze
