// SmallVector<T, N>: a vector of trivially copyable T whose first N elements need no allocation. For short-lived lists.
#pragma once

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>

namespace braze {

template <class T, size_t N>
class SmallVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  SmallVector() = default;
  SmallVector(std::initializer_list<T> items) {
    for (const T& item : items) push_back(item);
  }
  SmallVector(size_t n, const T& value) { resize(n, value); }
  SmallVector(const SmallVector& other) { append(other.begin(), other.end()); }
  SmallVector& operator=(const SmallVector& other) {
    if (this != &other) {
      size_ = 0;
      append(other.begin(), other.end());
    }
    return *this;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return heap_ ? heap_.get() : inline_data(); }
  const T* data() const { return heap_ ? heap_.get() : inline_data(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }

  void clear() { size_ = 0; }
  void pop_back() { --size_; }
  void push_back(T value) {
    if (size_ == capacity_) grow(capacity_ * 2);
    data()[size_++] = value;
  }
  void resize(size_t n, const T& value = T()) {
    while (size_ < n) push_back(value);
    size_ = n;
  }
  template <class It>
  void append(It first, It last) {
    for (; first != last; ++first) push_back(*first);
  }
  void insert(size_t at, T value) {
    push_back(value);
    for (size_t i = size_ - 1; i > at; --i) std::swap(data()[i], data()[i - 1]);
  }
  void erase(size_t at) {
    for (size_t i = at + 1; i < size_; ++i) data()[i - 1] = data()[i];
    --size_;
  }

 private:
  T* inline_data() { return reinterpret_cast<T*>(bytes_); }
  const T* inline_data() const { return reinterpret_cast<const T*>(bytes_); }
  void grow(size_t capacity) {
    std::unique_ptr<T[]> larger(new T[capacity]);
    for (size_t i = 0; i < size_; ++i) larger[i] = data()[i];
    heap_ = std::move(larger);
    capacity_ = capacity;
  }

  size_t size_ = 0;
  size_t capacity_ = N;
  std::unique_ptr<T[]> heap_;
  alignas(T) std::byte bytes_[N * sizeof(T)];
};

}  // namespace braze
