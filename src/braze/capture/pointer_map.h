// A hash map from object addresses, for the executor's side tables: open addressing, no erasure.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace braze::capture {

template <class T>
class PointerMap {
 public:
  T* find(const void* key) {
    if (size_ == 0) return nullptr;
    for (size_t i = slot_of(key);; i = (i + 1) & (table_.size() - 1)) {
      if (table_[i].first == key) return &table_[i].second;
      if (table_[i].first == nullptr) return nullptr;
    }
  }
  const T* find(const void* key) const { return const_cast<PointerMap*>(this)->find(key); }

  // The entry of the key, made if missing. Invalid after the next insertion.
  T& operator[](const void* key) {
    if (T* found = find(key)) return *found;
    if (2 * (size_ + 1) > table_.size()) grow();
    return insert(key, T());
  }

  size_t size() const { return size_; }

  template <class F>
  void for_each(F f) {
    for (auto& entry : table_) {
      if (entry.first != nullptr) f(entry.first, entry.second);
    }
  }

 private:
  size_t slot_of(const void* key) const {
    const auto bits = reinterpret_cast<uintptr_t>(key) * 0x9e3779b97f4a7c15u;
    return static_cast<size_t>(bits >> 20) & (table_.size() - 1);
  }

  T& insert(const void* key, T value) {
    size_t i = slot_of(key);
    while (table_[i].first != nullptr) i = (i + 1) & (table_.size() - 1);
    table_[i].first = key;
    table_[i].second = std::move(value);
    size_++;
    return table_[i].second;
  }

  void grow() {
    auto old = std::exchange(table_, std::vector<std::pair<const void*, T>>(table_.empty() ? 64 : 2 * table_.size()));
    size_ = 0;
    for (auto& entry : old) {
      if (entry.first != nullptr) insert(entry.first, std::move(entry.second));
    }
  }

  std::vector<std::pair<const void*, T>> table_;
  size_t size_ = 0;
};

}  // namespace braze::capture
