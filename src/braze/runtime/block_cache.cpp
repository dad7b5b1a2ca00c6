#include "braze/runtime/block_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>

namespace braze::runtime {
namespace {

constexpr size_t kHuge = 2 << 20, kPage = 64 << 10;
// Blocks above this stay with the system's allocator when freed: caching them could hold more than eager would.
constexpr size_t kMostCached = size_t{512} << 20;

size_t rounded(size_t bytes) {
  // Sixteenth steps keep the waste under 7% and let sizes that differ a little share blocks.
  size_t step = kPage;
  while (step * 16 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

class Cache final : public c10::Allocator {
 public:
  void* acquire(size_t bytes) {
    const size_t size = rounded(std::max<size_t>(bytes, 1));
    void* block = take(size);
    report(block, static_cast<int64_t>(size));
    return block;
  }

  void release(void* block) {
    const size_t size = give_back(block);
    report(block, -static_cast<int64_t>(size));
  }

  void trim() {
    std::multimap<size_t, void*> blocks;
    {
      std::lock_guard lock(mutex_);
      blocks.swap(free_);
      cached_ = 0;
    }
    for (auto [size, block] : blocks) ::munmap(block, size);
  }

  BlockCacheUse use() {
    std::lock_guard lock(mutex_);
    return {cached_, live_bytes_};
  }

  c10::DataPtr allocate(size_t bytes) override {
    void* block = acquire(bytes);
    return {block, block, &free_block, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }

 private:
  static void free_block(void* block) { release_block(block); }

  // torch.profiler counts these blocks as it does those of libtorch's own allocator.
  void report(void* block, int64_t bytes) {
    if (!c10::memoryProfilingEnabled()) return;
    const BlockCacheUse now = use();
    c10::reportMemoryUsageToProfiler(block, bytes, now.live_bytes, now.live_bytes + now.cached_bytes, c10::Device(c10::kCPU));
  }

  void* take(size_t size) {
    {
      std::lock_guard lock(mutex_);
      // The block that was freed last: its lines may still be in a cache.
      if (auto it = free_.upper_bound(size); it != free_.begin() && (--it)->first == size) {
        void* block = it->second;
        free_.erase(it);
        cached_ -= size;
        live_bytes_ += size;
        live_[block] = size;
        return block;
      }
    }
    void* block = map_aligned(size);
    std::lock_guard lock(mutex_);
    live_[block] = size;
    live_bytes_ += size;
    return block;
  }

  // The size of the block.
  size_t give_back(void* block) {
    size_t size = 0;
    {
      std::lock_guard lock(mutex_);
      auto it = live_.find(block);
      size = it->second;
      live_.erase(it);
      live_bytes_ -= size;
      if (cached_ + size <= kMostCached) {
        free_.emplace(size, block);
        cached_ += size;
        return size;
      }
    }
    ::munmap(block, size);
    return size;
  }

  static void* map_aligned(size_t size) {
    void* raw = ::mmap(nullptr, size + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) throw std::bad_alloc();
    const auto begin = reinterpret_cast<uintptr_t>(raw);
    const uintptr_t aligned = (begin + kHuge - 1) / kHuge * kHuge;
    if (aligned != begin) ::munmap(raw, aligned - begin);
    const uintptr_t end = begin + size + kHuge;
    if (end != aligned + size) ::munmap(reinterpret_cast<void*>(aligned + size), end - aligned - size);
    ::madvise(reinterpret_cast<void*>(aligned), size, MADV_HUGEPAGE);
    return reinterpret_cast<void*>(aligned);
  }

  std::mutex mutex_;
  std::multimap<size_t, void*> free_;
  std::unordered_map<void*, size_t> live_;
  size_t cached_ = 0;
  size_t live_bytes_ = 0;
};

Cache& cache() {
  static auto* the_cache = new Cache;   // tensors may outlive static destructors
  return *the_cache;
}

}  // namespace

c10::Allocator* block_cache() { return &cache(); }
void* acquire_block(size_t bytes) { return cache().acquire(bytes); }
void release_block(void* block) { cache().release(block); }
BlockCacheUse block_cache_use() { return cache().use(); }
void trim_block_cache() { cache().trim(); }

}  // namespace braze::runtime
