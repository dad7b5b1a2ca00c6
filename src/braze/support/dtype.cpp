#include "braze/support/dtype.h"

#include <array>

#include "braze/support/check.h"

namespace braze {
namespace {

struct Row {
  std::string_view text, torch_name;
  int64_t bytes;
  DTypeKind kind;
};
constexpr auto kRows = std::to_array<Row>({
#define DTYPE(name, text, torch_name, bytes, kind) {text, torch_name, bytes, DTypeKind::kind},
#include "braze/support/dtypes.def"
#undef DTYPE
});
const Row& row(DType d) { return kRows[static_cast<size_t>(d)]; }

bool is_wide_unsigned(DType d) { return d == DType::U16 || d == DType::U32 || d == DType::U64; }
bool is_8_bit_float(DType d) { return kind_of(d) == DTypeKind::Float && size_of(d) == 1; }

// Place within a kind; of two types of one kind the greater wins, except where noted in try_promote().
int rank(DType d) { return static_cast<int>(d); }

DType complex_of(DType floating) {
  if (floating == DType::F64) return DType::C128;
  if (floating == DType::F16) return DType::C32;
  return DType::C64;
}

}  // namespace

int64_t size_of(DType d) { return row(d).bytes; }
DTypeKind kind_of(DType d) { return row(d).kind; }
std::string_view text_of(DType d) { return row(d).text; }
std::string_view torch_name_of(DType d) { return row(d).torch_name; }

std::optional<DType> dtype_from_text(std::string_view text) {
  for (size_t i = 0; i < kRows.size(); ++i)
    if (kRows[i].text == text) return static_cast<DType>(i);
  return std::nullopt;
}

std::optional<DType> try_promote(DType a, DType b) {
  if (a == b) return a;
  const DTypeKind ka = kind_of(a), kb = kind_of(b);
  if (ka == DTypeKind::Opaque || kb == DTypeKind::Opaque || is_8_bit_float(a) || is_8_bit_float(b)) return std::nullopt;
  if (ka < kb) return try_promote(b, a);
  // The wide unsigned types join floating types only.
  if ((is_wide_unsigned(a) || is_wide_unsigned(b)) && ka != DTypeKind::Float) return std::nullopt;
  if (ka > kb) {
    if (ka == DTypeKind::Complex && kb == DTypeKind::Float) return try_promote(a, complex_of(b));
    return a;
  }
  if (ka == DTypeKind::Int && (a == DType::U8 || b == DType::U8)) {
    const DType other = a == DType::U8 ? b : a;
    return other == DType::I8 ? DType::I16 : other;
  }
  if (ka == DTypeKind::Float && size_of(a) == 2 && size_of(b) == 2) return DType::F32;
  return rank(a) > rank(b) ? a : b;
}

DType promote(DType a, DType b) {
  const std::optional<DType> out = try_promote(a, b);
  CHECK(out.has_value(), text_of(a) << " and " << text_of(b));
  return *out;
}

DType compute_type(DType d) {
  if (kind_of(d) == DTypeKind::Float && size_of(d) <= 2) return DType::F32;
  return d;
}

std::string text_of(Device d) {
  std::string out;
  switch (d.kind) {
    case Device::Kind::Cpu: out = "cpu"; break;
    case Device::Kind::Cuda: out = "cuda"; break;
    case Device::Kind::Meta: out = "meta"; break;
    case Device::Kind::Other: out = "other"; break;
  }
  if (d.index >= 0) out += ":" + std::to_string(d.index);
  return out;
}

}  // namespace braze
