#include "braze/runtime/parallel.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace braze::runtime {

int thread_count() { return at::get_num_threads(); }

void run_parallel(jit::KernelFunction kernel, void* const* buffers, const int64_t* sizes, int64_t range,
                  int64_t grain) {
  const int64_t blocks = (range + grain - 1) / grain;
  at::parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
    kernel(buffers, sizes, first * grain, std::min(range, last * grain));
  });
}

void run_parallel_tasks(int64_t count, const std::function<void(int64_t, int64_t)>& task) {
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) { task(begin, end); });
}

}  // namespace braze::runtime
