// Scratch: per-thread memory that grows to the largest request and stays.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

namespace braze::runtime {

inline int64_t rounded_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(data_); }

  // 64-byte aligned; the contents of an earlier request are lost when it grows.
  float* at_least(int64_t floats) {
    if (floats <= size_) return data_;
    std::free(data_);
    size_ = 0;
    data_ = static_cast<float*>(std::aligned_alloc(64, (static_cast<size_t>(floats) * sizeof(float) + 63) / 64 * 64));
    if (data_ == nullptr) throw std::bad_alloc();
    size_ = floats;
    return data_;
  }

 private:
  float* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace braze::runtime
