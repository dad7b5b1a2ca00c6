#include "braze/runtime/block_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

namespace braze::runtime {
namespace {

constexpr size_t kHuge = 2 << 20, kPage = 64 << 10;
// What was in use lately, and so much more, is kept: the gradients that one step frees are the next one's. Of what is
// cached beyond this size, the system may take pages as soon as it needs memory.
constexpr size_t kMostCached = size_t{512} << 20;
constexpr std::chrono::seconds kLately{10};

size_t rounded(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
// The largest block that is lent for one of `size`: sizes that differ a little share blocks.
size_t most_for(size_t size) { return size + size / 16; }

class Cache final : public c10::Allocator {
 public:
  void* acquire(size_t bytes) {
    const Block block = take(rounded(std::max<size_t>(bytes, 1)));
    report(block.address, static_cast<int64_t>(block.size));
    return block.address;
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

  struct Block {
    void* address;
    size_t size;
  };

  Block take(size_t size) {
    {
      std::lock_guard lock(mutex_);
      // The smallest that fits, and of equal ones the one that was freed last: its lines may still be in a cache.
      if (auto it = free_.lower_bound(size); it != free_.end() && it->first <= most_for(size)) {
        it = std::prev(free_.upper_bound(it->first));
        const Block block{it->second, it->first};
        free_.erase(it);
        cached_ -= block.size;
        lend(block);
        return block;
      }
    }
    const Block block{map_aligned(size), size};
    std::lock_guard lock(mutex_);
    lend(block);
    return block;
  }

  void lend(const Block& block) {
    live_[block.address] = block.size;
    live_bytes_ += block.size;
    peak_ = std::max(peak_, live_bytes_);
  }

  // The most bytes in use at once during this period and the last.
  size_t recent_peak() {
    const auto now = std::chrono::steady_clock::now();
    if (now - period_start_ > kLately) {
      last_peak_ = now - period_start_ > 2 * kLately ? live_bytes_ : peak_;
      peak_ = live_bytes_;
      period_start_ = now;
    }
    return std::max(peak_, last_peak_);
  }

  // The size of the block.
  size_t give_back(void* block) {
    size_t size = 0;
    std::vector<std::pair<size_t, void*>> surplus;
    {
      std::lock_guard lock(mutex_);
      const auto it = live_.find(block);
      size = it->second;
      if (cached_ + size > kMostCached) ::madvise(block, size, MADV_FREE);
      const size_t most = recent_peak() + kMostCached;
      live_.erase(it);
      live_bytes_ -= size;
      free_.emplace(size, block);
      cached_ += size;
      while (live_bytes_ + cached_ > most) {
        surplus.emplace_back(*std::prev(free_.end()));
        free_.erase(std::prev(free_.end()));
        cached_ -= surplus.back().first;
      }
    }
    for (auto [bytes, unused] : surplus) ::munmap(unused, bytes);
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
  size_t peak_ = 0, last_peak_ = 0;   // of live_bytes_, in this period and the one before
  std::chrono::steady_clock::time_point period_start_ = std::chrono::steady_clock::now();
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
