// Contiguous slices of a range over torch's own intra-op pool, so that torch.set_num_threads and OpenMP settings hold.
#pragma once

#include <cstdint>
#include <functional>

#include "braze/jit/jit.h"

namespace braze::runtime {

int thread_count();

// Runs the kernel over [0, range), split at multiples of `grain`.
void run_parallel(jit::KernelFunction kernel, void* const* buffers, const int64_t* sizes, int64_t range, int64_t grain);

// task(begin, end) over contiguous slices of [0, count), one slice a thread.
void run_parallel_tasks(int64_t count, const std::function<void(int64_t begin, int64_t end)>& task);

}  // namespace braze::runtime
