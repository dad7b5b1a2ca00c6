// HashIndex: finds the number of a row by its hash, for tables that only grow. Rows stand elsewhere.
#pragma once

#include <cstdint>
#include <vector>

namespace braze::capture {

class HashIndex {
 public:
  // The first row with this hash for which equal(row) holds, or -1.
  template <class Equal>
  int64_t find(uint64_t hash, const Equal& equal) const {
    if (slots_.empty()) return -1;
    for (size_t at = hash & mask();; at = (at + 1) & mask()) {
      const Slot& slot = slots_[at];
      if (slot.row == kEmpty) return -1;
      if (slot.tag == static_cast<uint32_t>(hash >> 32) && equal(slot.row)) return slot.row;
    }
  }

  void insert(uint64_t hash, uint32_t row) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    place(hash, row);
    hashes_.push_back({hash, row});
    count_++;
  }

 private:
  static constexpr uint32_t kEmpty = UINT32_MAX;
  struct Slot { uint32_t tag = 0, row = kEmpty; };
  struct Entry { uint64_t hash; uint32_t row; };

  size_t mask() const { return slots_.size() - 1; }
  void place(uint64_t hash, uint32_t row) {
    size_t at = hash & mask();
    while (slots_[at].row != kEmpty) at = (at + 1) & mask();
    slots_[at] = {static_cast<uint32_t>(hash >> 32), row};
  }
  void grow() {
    slots_.assign(slots_.empty() ? 256 : slots_.size() * 4, Slot{});
    for (const Entry& e : hashes_) place(e.hash, e.row);
  }

  std::vector<Slot> slots_;
  std::vector<Entry> hashes_;
  size_t count_ = 0;
};

}  // namespace braze::capture
