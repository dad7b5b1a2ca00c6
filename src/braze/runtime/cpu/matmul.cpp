#include "braze/runtime/cpu/matmul.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "braze/runtime/cpu/isa.h"
#include "braze/runtime/cpu/scratch.h"
#include "braze/runtime/parallel.h"

namespace braze::runtime {
namespace {

using cpu::Isa;
using cpu::isa;
using cpu::Products;

constexpr int64_t kColumns = cpu::kFinishColumns;
// Packed rows that one run of the tiles reads: 128 KB, which stays in L2 beside A.
constexpr int64_t kBlockRows = 512;
// All of K is packed at once if it takes no more packed rows than these (384 KB).
constexpr int64_t kMostPackedRows = 1536;
// Else each block of K adds to the sums of so many rows (128 KB) before the next is packed.
constexpr int64_t kSplitRows = 512;
// With so many columns that takes 512 KB, and half a megabyte for the sums of kSplitRows.
constexpr int64_t kMostColumns = 4 * kColumns;
// Rows whose sums (12 KB) are finished while they are in L1.
constexpr int64_t kSumRows = 48;
// Multiply-adds below which a second thread costs more than it gives (about 3 us).
constexpr int64_t kSerialWork = 150'000;

// Bytes of A that are made contiguous rows at a time.
constexpr int64_t kTakenBytes = int64_t{8} << 20;
// Elements of a row of A in one task of that.
constexpr int64_t kTakenK = 64;

thread_local Scratch pack_scratch, sum_scratch, a_scratch;

struct Problem {
  const Isa& isa;
  const Products& products;
  int64_t m, n, k;
  MatmulOperand a;
  MatmulOperand b;
  void* c;
  int64_t c_stride;
  const void* bias;
  MatmulForm form;
  bool keeps_sums() const { return products.bytes == static_cast<int64_t>(sizeof(float)); }
};

const void* at(const void* data, int64_t elements, int64_t bytes) { return static_cast<const char*>(data) + elements * bytes; }
void* at(void* data, int64_t elements, int64_t bytes) { return static_cast<char*>(data) + elements * bytes; }

// Rows [first, first + rows) of a block of at most kColumns columns: sums to C.
void finish(const Problem& p, const float* sums, int64_t stride, int64_t first, int64_t rows, int64_t column, int64_t width) {
  const Products& products = p.products;
  float wide[kColumns];
  const float* bias = nullptr;
  if (p.bias != nullptr) {
    products.to_floats(at(p.bias, column, products.bytes), width, wide);
    bias = wide;
  }
  products.finish(sums, stride, rows, width, bias, at(p.c, first * p.c_stride + column, products.bytes), p.c_stride);
}

bool packs_whole(const Problem& p) { return p.k <= kMostPackedRows * p.products.per_lane; }

// Columns of a block, of `width` that one thread has. A long K is packed piece by piece, and each piece of A is read once
// a block: then wide ones are better.
int64_t block_columns(const Problem& p, int64_t width) {
  if (packs_whole(p) || width <= kColumns) return kColumns;
  const int64_t blocks = (width + kMostColumns - 1) / kMostColumns;
  return rounded_up((width + blocks - 1) / blocks, kColumns);
}

// One block of columns and rows [first, last). Its panels are packed one after the other, so that a row of B, which may
// be alone on its page, is read whole.
void column_block(const Problem& p, int64_t column, int64_t width, int64_t first, int64_t last) {
  const Products& products = p.products;
  const int64_t panel = p.isa.panel, block_k = kBlockRows * products.per_lane;
  const int64_t rows = last - first;
  const int64_t packed_k = packs_whole(p) ? p.k : block_k, sum_rows = packs_whole(p) ? std::min(kSumRows, rows) : rows;
  const auto packed_rows = [&](int64_t k) { return (k + products.per_lane - 1) / products.per_lane; };
  float* packed = pack_scratch.at_least(packed_rows(packed_k) * rounded_up(width, kColumns));
  // Sums of whole vectors that need no rounding are made where the results belong: the tiles' stores wait for memory
  // while the next tile is computed, which those of a copy would not.
  const bool direct = packs_whole(p) && p.keeps_sums() && width % p.isa.lanes == 0;
  const int64_t sum_stride = direct ? p.c_stride : rounded_up(width, kColumns);
  float* sums = direct ? nullptr : sum_scratch.at_least(sum_rows * sum_stride);
  for (int64_t start = 0; start < p.k; start += packed_k) {
    const int64_t end = std::min(p.k, start + packed_k), panel_floats = packed_rows(end - start) * panel;
    for (int64_t j = 0; j < width; j += panel)
      products.pack(at(p.b.data, start * p.b.row_stride + (column + j) * p.b.column_stride, products.bytes), p.b.row_stride,
                    p.b.column_stride, end - start, std::min(panel, width - j), packed + j / panel * panel_floats);
    for (int64_t row = 0; row < rows; row += sum_rows) {
      const int64_t count = std::min(sum_rows, rows - row);
      if (direct) sums = static_cast<float*>(p.c) + (first + row) * p.c_stride + column;
      for (int64_t k = start; k < end; k += block_k)
        for (int64_t j = 0; j < width; j += panel)
          products.multiply(count, std::min(panel, width - j), std::min(block_k, end - k), at(p.a.data, (first + row) * p.a.row_stride + k, products.a_bytes),
                            p.a.row_stride, packed + j / panel * panel_floats + packed_rows(k - start) * panel, sums + j,
                            sum_stride, k > 0);
      if (end < p.k || (direct && p.bias == nullptr)) continue;
      for (int64_t j = 0; j < width; j += kColumns)
        finish(p, sums + j, sum_stride, first + row, count, column + j, std::min(kColumns, width - j));
    }
  }
}

void empty_product(const Problem& p) {   // K == 0
  const float zeros[kColumns] = {};
  for (int64_t j = 0; j < p.n; j += kColumns)
    for (int64_t i = 0; i < p.m; ++i) finish(p, zeros, 0, i, 1, j, std::min(kColumns, p.n - j));
}

// Columns that one thread takes at a time: with K = 768 about 150 KB of B, which stays in L2 for all row tiles.
constexpr int64_t kDotBlock = 48;
// Elements of K whose A tile (6 rows) stays in L1.
constexpr int64_t kDotBlockK = 1024;

// Columns [column, column + width) of rows [first, last), width <= kDotBlock.
void dot_block(const Problem& p, int64_t column, int64_t width, int64_t first, int64_t last) {
  const Products& products = p.products;
  const int64_t rows = last - first;
  float* sums = sum_scratch.at_least(rows * kDotBlock);
  for (int64_t k = 0; k < p.k; k += kDotBlockK)
    products.dot(rows, width, std::min(kDotBlockK, p.k - k), at(p.a.data, first * p.a.row_stride + k, products.a_bytes),
                 p.a.row_stride, at(p.b.data, column * p.b.column_stride + k, products.bytes), p.b.column_stride, sums, kDotBlock,
                 k > 0);
  finish(p, sums, kDotBlock, first, rows, column, width);
}

// Columns that are worth a task of their own.
constexpr int64_t kDotPart = 4;

void run_dot(const Problem& p, int64_t threads) {
  const int64_t parts = (p.n + kDotPart - 1) / kDotPart;
  const auto task = [&](int64_t begin, int64_t end) {
    const int64_t last = std::min(p.n, end * kDotPart);
    for (int64_t j = begin * kDotPart; j < last; j += kDotBlock) dot_block(p, j, std::min(kDotBlock, last - j), 0, p.m);
  };
  if (threads == 1) return task(0, parts);
  run_parallel_tasks(parts, task);
}

// Columns whose sums stay in L1 while the rows of B are added to them.
constexpr int64_t kSummedColumns = 1024;
// With so many rows of A it is worth it to read B once for each kMostSummedRows of them (measured).
constexpr int64_t kMostRowsOfSums = 8;

void run_sums(const Problem& p, int64_t threads) {
  const Products& products = p.products;
  const int64_t vectors = (p.n + p.isa.lanes - 1) / p.isa.lanes;
  const auto task = [&](int64_t begin, int64_t end) {
    float* sums = sum_scratch.at_least(cpu::kMostSummedRows * kSummedColumns);
    const int64_t last = std::min(p.n, end * p.isa.lanes);
    for (int64_t j = begin * p.isa.lanes; j < last; j += kSummedColumns) {
      const int64_t width = std::min(kSummedColumns, last - j);
      for (int64_t row = 0; row < p.m; row += cpu::kMostSummedRows) {
        const int64_t rows = std::min(cpu::kMostSummedRows, p.m - row);
        products.sum_rows(rows, width, p.k, at(p.a.data, row * p.a.row_stride, products.a_bytes), p.a.row_stride,
                          at(p.b.data, j, products.bytes), p.b.row_stride, sums, kSummedColumns);
        for (int64_t i = 0; i < width; i += kColumns)
          finish(p, sums + i, kSummedColumns, row, rows, j + i, std::min(kColumns, width - i));
      }
    }
  };
  if (threads == 1) return task(0, vectors);
  run_parallel_tasks(vectors, task);
}

// So many rows of A, and fewer for a short K, are multiplied by `dot`.
int64_t most_dot_rows(const Products& products, int64_t k) {
  return std::clamp<int64_t>(k / products.k_per_dot_row, 1, products.most_dot_rows);
}

MatmulForm form_of(const Products& products, int64_t m, int64_t k, const MatmulOperand& b) {
  if (b.row_stride == 1) return m <= most_dot_rows(products, k) ? MatmulForm::Dot : MatmulForm::Packed;
  return b.column_stride == 1 && m <= kMostRowsOfSums ? MatmulForm::Sums : MatmulForm::Packed;
}

struct Way {
  const Products& products;
  MatmulForm form;
};

Way way_of(Element element, int64_t m, int64_t k, const MatmulOperand& b, std::optional<MatmulForm> form) {
  const Products& general = cpu::products(*isa(), element);
  const Products& few_rows = element == Element::BF16 && isa()->few_rows_bfloat != nullptr ? *isa()->few_rows_bfloat : general;
  const MatmulForm chosen = form.value_or(form_of(few_rows, m, k, b));
  return {chosen == MatmulForm::Packed ? general : few_rows, chosen};
}

// Columns at the end of a block that are not worth packing: a vector of them would be empty for the most part.
int64_t few_columns(const Problem& p, int64_t width) {
  const int64_t rest = width % p.isa.lanes;
  return p.b.row_stride == 1 && rest <= p.isa.lanes / 2 ? rest : 0;
}

// Rows of A whose products with a row of B take as long as packing it (measured): by transposing blocks, by copying.
constexpr int64_t kTransposeCost = 8, kCopyCost = 2;

// The parts that the threads take: ranges of rows times ranges of columns. Parts of the same columns pack them each for
// itself.
struct Grid {
  int64_t row_parts, rows, column_parts, vectors;    // `rows` to a part; `vectors` in all

  int64_t column(int64_t part, const Problem& p) const { return std::min(p.n, vectors * part / column_parts * p.isa.lanes); }
};

// The grid whose largest part is the least work.
Grid share_out(const Problem& p, int64_t threads) {
  const int64_t vectors = (p.n + p.isa.lanes - 1) / p.isa.lanes, packing = p.b.row_stride == 1 ? kTransposeCost : kCopyCost;
  Grid best{};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t columns = std::min(threads, vectors); columns > 0; --columns) {
    const int64_t most_row_parts = threads / columns;
    const int64_t rows = rounded_up((p.m + most_row_parts - 1) / most_row_parts, p.isa.tile_rows);
    const int64_t cost = (rows + packing) * ((vectors + columns - 1) / columns);
    if (cost >= least) continue;
    least = cost;
    best = {(p.m + rows - 1) / rows, rows, columns, vectors};
  }
  return best;
}

// Rows [first, last) of columns [column, end), which one thread computes.
void run_part(const Problem& p, int64_t first, int64_t last, int64_t column, int64_t end) {
  const int64_t few = few_columns(p, end - column), columns = block_columns(p, end - few - column);
  for (int64_t row = first; few > 0 && row < last; row += kSplitRows)
    dot_block(p, end - few, few, row, std::min(last, row + kSplitRows));
  const int64_t step = packs_whole(p) ? last - first : kSplitRows;
  for (int64_t j = column; j < end - few; j += columns)
    for (int64_t row = first; row < last; row += step)
      column_block(p, j, std::min(columns, end - few - j), row, std::min(last, row + step));
}

// A as the tiles read it, with contiguous rows.
void run_rows(const Problem& p, int64_t threads) {
  if (p.form == MatmulForm::Dot) return run_dot(p, threads);
  if (p.form == MatmulForm::Sums) return run_sums(p, threads);
  if (threads == 1) return run_part(p, 0, p.m, 0, p.n);
  const Grid grid = share_out(p, threads);
  run_parallel_tasks(grid.row_parts * grid.column_parts, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t first = t % grid.row_parts * grid.rows, part = t / grid.row_parts;
      run_part(p, first, std::min(p.m, first + grid.rows), grid.column(part, p), grid.column(part + 1, p));
    }
  });
}

// Rows of A are copied to such as the tiles read, as many at a time as stay in cache.
void run_taken(const Problem& p, int64_t threads) {
  const Products& products = p.products;
  const int64_t row_bytes = p.k * products.a_bytes;
  const int64_t chunk = std::min(p.m, std::max(kTakenBytes / row_bytes, 4 * p.isa.tile_rows));
  void* taken = a_scratch.at_least((chunk * row_bytes + 3) / 4);
  for (int64_t first = 0; first < p.m; first += chunk) {
    const int64_t rows = std::min(chunk, p.m - first);
    const auto task = [&](int64_t begin, int64_t end) {
      const int64_t k = begin * kTakenK, last = std::min(p.k, end * kTakenK);
      products.take_rows(at(p.a.data, first * p.a.row_stride + k * p.a.column_stride, products.bytes), p.a.row_stride,
                         p.a.column_stride, rows, last - k, at(taken, k, products.a_bytes), p.k);
    };
    const int64_t tasks = (p.k + kTakenK - 1) / kTakenK;
    if (threads == 1 || rows * p.k < kSerialWork / 8) task(0, tasks);
    else run_parallel_tasks(tasks, task);
    Problem part = p;
    part.m = rows;
    part.a = {taken, p.k, 1};
    part.c = at(p.c, first * p.c_stride, products.bytes);
    run_rows(part, threads);
  }
}

void run(const Problem& p, bool serial) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return empty_product(p);
  const int64_t threads = serial || p.m * p.n * p.k < kSerialWork ? 1 : thread_count();
  if (p.products.a_bytes == p.products.bytes && (p.a.column_stride == 1 || p.k == 1)) return run_rows(p, threads);
  run_taken(p, threads);
}

}  // namespace

bool matmul_available() { return isa() != nullptr; }

bool has_form(MatmulForm form, const MatmulOperand& b) {
  return form == MatmulForm::Packed || (form == MatmulForm::Dot ? b.row_stride == 1 : b.column_stride == 1);
}

MatmulChoice choose_matmul(Element element, int64_t m, int64_t k, const MatmulOperand& b) {
  const auto [products, form] = way_of(element, m, k, b, std::nullopt);
  const int64_t limit = b.row_stride == 1 ? most_dot_rows(products, k) : kMostRowsOfSums;
  const auto rows = [&](const char* name, const char* relation) {
    return std::string(name) + ", since " + std::to_string(m) + " rows are " + relation + " " + std::to_string(limit);
  };
  if (form == MatmulForm::Dot) return {form, rows("dot", "at most")};
  if (form == MatmulForm::Sums) return {form, rows("sums of rows", "at most")};
  if (b.row_stride != 1 && b.column_stride != 1) return {form, "packed, since neither rows nor columns of B are contiguous"};
  return {form, rows("packed", "more than")};
}

void matmul(Element element, int64_t m, int64_t n, int64_t k, MatmulOperand a, MatmulOperand b, void* c, int64_t c_stride,
            const void* bias, std::optional<MatmulForm> form) {
  const auto [products, chosen] = way_of(element, m, k, b, form);
  run({*isa(), products, m, n, k, a, b, c, c_stride, bias, chosen}, false);
}

void matmul_batch(Element element, int64_t batches, int64_t m, int64_t n, int64_t k, MatmulOperand a, int64_t a_batch,
                  MatmulOperand b, int64_t b_batch, void* c, int64_t c_stride, int64_t c_batch, std::optional<MatmulForm> form) {
  const int64_t bytes = size_of(element);
  const auto way = way_of(element, m, k, b, form);
  const auto product = [&](int64_t i, bool serial) {
    run({*isa(), way.products, m, n, k, {at(a.data, i * a_batch, bytes), a.row_stride, a.column_stride},
         {at(b.data, i * b_batch, bytes), b.row_stride, b.column_stride}, at(c, i * c_batch, bytes), c_stride, nullptr, way.form}, serial);
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
