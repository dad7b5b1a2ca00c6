// The element types of products and attention.
#pragma once

#include <cstdint>

namespace braze::runtime {

enum class Element : uint8_t { F32, BF16, F16 };

constexpr int64_t size_of(Element element) { return element == Element::F32 ? 4 : 2; }

}  // namespace braze::runtime
