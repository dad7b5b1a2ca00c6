#include "braze/support/hash.h"

#include <cstring>

namespace braze {

uint64_t hash_bytes(std::string_view bytes, uint64_t seed) {
  uint64_t h = mix(seed ^ 0x2545f4914f6cdd1dull, bytes.size());
  const char* p = bytes.data();
  size_t n = bytes.size();
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    h = mix(h, word);
  }
  uint64_t tail = 0;
  if (n != 0) std::memcpy(&tail, p, n);
  return mix(h, tail);
}

std::string content_hash(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (uint64_t seed : {0x1f83d9abfb41bd6bull, 0x5be0cd19137e2179ull}) {
    uint64_t h = hash_bytes(bytes, seed);
    for (int i = 60; i >= 0; i -= 4) out += kDigits[(h >> i) & 15];
  }
  return out;
}

}  // namespace braze
