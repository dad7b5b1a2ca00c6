#include "braze/runtime/cpu/matmul.h"

#include <algorithm>
#include <cstring>

#include "braze/runtime/cpu/isa.h"
#include "braze/runtime/cpu/scratch.h"
#include "braze/runtime/parallel.h"

namespace braze::runtime {
namespace {

using cpu::Isa;
using cpu::isa;

// A packed block of B: 128 KB, which stays in L2 beside A.
constexpr int64_t kBlockK = 512, kBlockColumns = 64;
// Multiply-adds below which a second thread costs more than it gives (about 3 us).
constexpr int64_t kSerialWork = 150'000;

// Floats of A that are transposed at a time: 8 MB.
constexpr int64_t kTransposed = int64_t{2} << 20;
// Rows of K in one task of a transposition.
constexpr int64_t kTransposeK = 64;

thread_local Scratch pack_scratch, edge_scratch, transpose_scratch;

struct Problem {
  int64_t m, n, k;
  MatmulOperand a;
  MatmulOperand b;
  float* c;
  int64_t c_stride;
  MatmulEpilogue epilogue;
};

// One block of columns and rows [first, last). Its panels are packed one after the other, so that a row of B, which may
// be alone on its page, is read whole.
void column_block(const Isa& isa, const Problem& p, int64_t number, int64_t first, int64_t last) {
  const int64_t column = number * kBlockColumns, width = std::min(kBlockColumns, p.n - column), rows = last - first;
  const int64_t edge = width % isa.panel;       // columns of a last panel that is narrower than a tile
  // That one is computed whole beside C and then copied.
  float* beside = edge == 0 ? nullptr : edge_scratch.at_least((rows + 1) * isa.panel);
  float* padded_bias = beside + rows * isa.panel;
  if (edge != 0 && p.epilogue.bias != nullptr) {
    std::fill_n(padded_bias, isa.panel, 0.0f);
    std::copy_n(p.epilogue.bias + column + width - edge, edge, padded_bias);
  }
  const float* a = p.a.data + first * p.a.row_stride;
  float* packed = pack_scratch.at_least(kBlockK * std::max(kBlockColumns, isa.panel));
  for (int64_t k = 0; k < p.k; k += kBlockK) {
    const int64_t block = std::min(kBlockK, p.k - k);
    const bool ends = k + block == p.k;
    const float* b = p.b.data + k * p.b.row_stride + column * p.b.column_stride;
    for (int64_t j = 0; j < width; j += isa.panel)
      isa.pack(b + j * p.b.column_stride, p.b.row_stride, p.b.column_stride, block, std::min(isa.panel, width - j), packed + j * block);
    for (int64_t j = 0; j < width; j += isa.panel) {
      const bool whole = width - j >= isa.panel;
      float* c = whole ? p.c + first * p.c_stride + column + j : beside;
      const float* bias = p.epilogue.bias == nullptr ? nullptr : whole ? p.epilogue.bias + column + j : padded_bias;
      isa.multiply(rows, block, a + k, p.a.row_stride, packed + j * block, c, whole ? p.c_stride : isa.panel, k > 0,
                   ends ? bias : nullptr, ends && p.epilogue.relu);
    }
  }
  for (int64_t i = 0; edge != 0 && i < rows; ++i)
    std::memcpy(p.c + (first + i) * p.c_stride + column + width - edge, beside + i * isa.panel, static_cast<size_t>(edge) * sizeof(float));
}

void empty_product(const Problem& p) {   // K == 0
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      const float x = p.epilogue.bias == nullptr ? 0.0f : p.epilogue.bias[j];
      p.c[i * p.c_stride + j] = p.epilogue.relu && x < 0 ? 0.0f : x;
    }
}

// Columns that one thread takes at a time: with K = 768 about 150 KB of B, which stays in L2 for all row tiles.
constexpr int64_t kDotBlock = 48;
// Rows of K whose A tile (6 rows) stays in L1.
constexpr int64_t kDotBlockK = 1024;

void run_dot(const Isa& isa, const Problem& p, int64_t threads) {
  const int64_t blocks = (p.n + kDotBlock - 1) / kDotBlock;
  const auto task = [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kDotBlock, last = std::min(p.n, end * kDotBlock);
    for (int64_t j = first; j < last; j += kDotBlock)
      for (int64_t k = 0; k < p.k; k += kDotBlockK) {
        const int64_t block = std::min(kDotBlockK, p.k - k);
        const bool ends = k + block == p.k;
        isa.dot(p.m, std::min(kDotBlock, last - j), block, p.a.data + k, p.a.row_stride,
                p.b.data + j * p.b.column_stride + k, p.b.column_stride, p.c + j, p.c_stride, k > 0,
                ends && p.epilogue.bias != nullptr ? p.epilogue.bias + j : nullptr, ends && p.epilogue.relu);
      }
  };
  if (threads == 1) return task(0, blocks);
  run_parallel_tasks(blocks, task);
}

// A with contiguous rows.
void run_rows(const Isa& isa, const Problem& p, int64_t threads) {
  if (p.b.row_stride == 1 && p.m <= isa.most_dot_rows) return run_dot(isa, p, threads);
  const int64_t blocks = (p.n + kBlockColumns - 1) / kBlockColumns;
  // Blocks are shared out first: each is packed once. Few blocks are split by rows too.
  int64_t row_parts = 1;
  while (blocks * row_parts < threads * 4 && blocks % threads != 0 && p.m / (row_parts * 2) >= 4 * isa.tile_rows)
    row_parts *= 2;
  const int64_t rows_each = ((p.m + row_parts - 1) / row_parts + isa.tile_rows - 1) / isa.tile_rows * isa.tile_rows;
  const auto task = [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t first = t % row_parts * rows_each;
      const int64_t last = std::min(p.m, first + rows_each);
      if (first < last) column_block(isa, p, t / row_parts, first, last);
    }
  };
  if (threads == 1) return task(0, blocks * row_parts);
  run_parallel_tasks(blocks * row_parts, task);
}

// Rows of A that are not contiguous become so, as many at a time as stay in cache.
void run_columns(const Isa& isa, const Problem& p, int64_t threads) {
  const int64_t chunk = std::clamp<int64_t>(kTransposed / p.k, 4 * isa.tile_rows, p.m);
  float* rows = transpose_scratch.at_least(chunk * p.k);
  for (int64_t first = 0; first < p.m; first += chunk) {
    const int64_t n_rows = std::min(chunk, p.m - first);
    const float* from = p.a.data + first * p.a.row_stride;
    const auto task = [&](int64_t begin, int64_t end) {
      const int64_t k = begin * kTransposeK, last = std::min(p.k, end * kTransposeK);
      if (p.a.row_stride == 1) {
        isa.transpose(from + k * p.a.column_stride, p.a.column_stride, last - k, n_rows, rows + k, p.k);
        return;
      }
      for (int64_t i = 0; i < n_rows; ++i)
        for (int64_t j = k; j < last; ++j) rows[i * p.k + j] = from[i * p.a.row_stride + j * p.a.column_stride];
    };
    const int64_t tasks = (p.k + kTransposeK - 1) / kTransposeK;
    if (threads == 1) task(0, tasks);
    else run_parallel_tasks(tasks, task);
    Problem part = p;
    part.m = n_rows;
    part.a = {rows, p.k, 1};
    part.c = p.c + first * p.c_stride;
    run_rows(isa, part, threads);
  }
}

void run(const Isa& isa, const Problem& p, bool serial) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return empty_product(p);
  const int64_t threads = serial || p.m * p.n * p.k < kSerialWork ? 1 : thread_count();
  if (p.a.column_stride == 1 || p.k == 1) return run_rows(isa, p, threads);
  run_columns(isa, p, threads);
}

}  // namespace

bool matmul_available() { return isa() != nullptr; }

void matmul(int64_t m, int64_t n, int64_t k, MatmulOperand a, MatmulOperand b, float* c, int64_t c_stride,
            const MatmulEpilogue& epilogue) {
  run(*isa(), {m, n, k, a, b, c, c_stride, epilogue}, false);
}

void matmul_batch(int64_t batches, int64_t m, int64_t n, int64_t k, MatmulOperand a, int64_t a_batch, MatmulOperand b,
                  int64_t b_batch, float* c, int64_t c_stride, int64_t c_batch) {
  const auto product = [&](int64_t i, bool serial) {
    run(*isa(), {m, n, k, {a.data + i * a_batch, a.row_stride, a.column_stride},
                 {b.data + i * b_batch, b.row_stride, b.column_stride}, c + i * c_batch, c_stride, {}}, serial);
  };
  // Few large products are shared out each by itself.
  if (batches < 2 * thread_count() || batches * m * n * k < kSerialWork) {
    const bool serial = batches * m * n * k < kSerialWork;
    for (int64_t i = 0; i < batches; ++i) product(i, serial);
    return;
  }
  run_parallel_tasks(batches, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) product(i, true);
  });
}

}  // namespace braze::runtime
