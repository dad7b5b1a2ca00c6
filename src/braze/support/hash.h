// 128-bit content hash (for cache keys: text, flags, machine) and a 64-bit mixer for tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace braze {

inline uint64_t mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ull + (h << 12) + (h >> 4);
  h *= 0xff51afd7ed558ccdull;
  return h ^ (h >> 32);
}

uint64_t hash_bytes(std::string_view bytes, uint64_t seed = 0);

// 32 hex digits; equal for equal content on every machine.
std::string content_hash(std::string_view bytes);

}  // namespace braze
