// BlockCache: memory of 1 MB and more for outputs and arenas, kept for reuse. A first touch of fresh pages costs
// 0.19 ms/MB, more than most kernels; blocks are aligned to 2 MB and ask for huge pages.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

namespace braze::runtime {

inline constexpr size_t kLargeBlock = 1 << 20;   // bytes from which the cache is used

// For tensors of kLargeBlock bytes and more.
c10::Allocator* block_cache();

void* acquire_block(size_t bytes);               // 64-byte aligned; throws std::bad_alloc
void release_block(void* block);

struct BlockCacheUse { size_t cached_bytes, live_bytes; };
BlockCacheUse block_cache_use();
void trim_block_cache();                         // gives all cached blocks back to the system

}  // namespace braze::runtime
