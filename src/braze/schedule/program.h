// Program: the scheduler's answer. A list of steps over planned buffers. Code generation prints each Kernel as text and
// makes no choice of its own; runtime runs the steps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "braze/loop/loop_ir.h"
#include "braze/schedule/target.h"

namespace braze::schedule {

using loop::Axis;
using loop::Expr;
using loop::ReduceOp;
using loop::Scalar;
using loop::View;
using graph::Shape;

// ---- Kernel: one function over [begin, end) of its parallel range --------------------------------------------------
//
//   for each p in [begin, end): split into the parallel axes (row-major over Kernel::parallel)
//     for each stage in order: loops, statements
//
// Index expressions in a kernel use the axes' symbols and the kernel's size parameters only. A Scalar Load inside a
// kernel has ONE index: the address in elements from the parameter's pointer (already multiplied by strides);
// Load::buffer is the parameter number, or -1 - n for scratch n. Reduced(n) reads accumulator n after its stage.
//
// What a generator may rely on, and must do:
//  - Axes start at 0. Extents may mention size parameters and the symbols of parallel axes and of loops further out
//    (the last chunk of a split axis: min(64, k0 - 64*p1)). An extent is never negative; it may be 0.
//  - A vector axis in `parallel` makes every stage's values vectors along it. [begin, end) may then start and end in
//    the middle of a row of it: the generator walks the pieces.
//  - Values are shared DAGs: a node stands for one computation per element. Parts that depend on no symbol of the
//    inner loops (1 / sqrt(Reduced(1) / k0 + eps)) are to be computed once outside of them; the scheduler counts on it.
//  - Stores of one statement list are evaluated from the memory before any of them: all loads, then all stores.
//  - Two parameters may be the same memory (in-place reuse), but then an element is read only before it is written by
//    the same iteration of the same stage or by earlier stages of the same parallel index: no restrict qualifiers.
//  - Scratch is per thread, 64-byte aligned, with room for one vector beyond `elements`, so that tails may be written
//    in full; its contents do not outlive a parallel index.
//  - Load bindings: each symbol in the address has its value computed first and is checked: 0 <= value < extent.

enum class NestKind : uint8_t {   // how it was shaped; the generator reads the axes, this is for logs and tests
  Flat,          // one parallel vector loop
  Tile2D,        // two axes, tiles transposed through registers: one stage whose last two loops are i (Serial, at most
                 // kTile long) and j (Vector). Stores and some loads are contiguous along j; other loads have
                 // coefficient 1 along i and a stride along j: these tiles are loaded along i and transposed
  RowStages,     // parallel rows; stages run along the row
  ColumnReduce,  // reduction along an outer axis, vectors along a kept axis
  FullReduce,    // everything to one value: partials per chunk, then combine
  Scan, GatherRows, ScatterAdd, Window, Cat, Scalarised,
};

enum class AxisRole : uint8_t { Serial, Vector, Unrolled };   // Unrolled: a constant small extent, printed out

struct LoopAxis {
  Expr symbol, extent;
  AxisRole role = AxisRole::Serial;
};

struct Store {
  int32_t buffer;          // parameter number, or -1 - n: scratch n
  Expr address;            // in elements
  const Scalar* value;     // of the buffer's dtype
  bool non_temporal = false;
  std::vector<loop::Binding> bindings;   // computed symbols in the address (scatter)
  enum class Combine : uint8_t { Overwrite, Add, Max, Min, Mul } combine = Combine::Overwrite;
};

struct Accumulator {
  int32_t number;          // Reduced(number) reads it in later stages and after
  ReduceOp op;
  DType dtype;             // of the running value
  const Scalar* value;     // of `dtype`; combined in each iteration of the stage's loops. ArgMax, ArgMin: the compared
                           // value
  Expr index;              // ArgMax, ArgMin: the index recorded; it grows in the order of the loops. Reduced is I64
};

// A loop nest inside the parallel axes. With accumulators: they start at the neutral element, the loops run, and the
// results are one value per element of the enclosing axes - or one per lane, if the vector axis is not reduced
// (a column reduction: the vector axis then stands in the last place of Kernel::parallel or of `kept`).
// Results of a stage with `kept` loops are read by its own `stores` only; else by all later stages too.
// A stage without loops runs once per parallel index (per lane of a parallel vector axis).
struct Stage {
  std::vector<LoopAxis> kept;        // loops outside the accumulators; their results are per iteration of these
  std::vector<LoopAxis> loops;       // the loops that accumulate (or just compute); the last may be the vector axis
  std::vector<Accumulator> accumulators;
  std::vector<Store> stores;         // inside `loops` if there are no accumulators, else after them (inside `kept`)
  std::vector<Store> inner_stores;   // inside `loops` beside accumulators: a scratch row that is filled while summing
  // Scan: Reduced(number) in inner_stores is the running value at this iteration of the last loop, the current element
  // included (exclusive: left out; the first one is then the neutral element). It starts anew for each iteration of the
  // loops further out.
  bool scan = false, exclusive = false;
};

inline constexpr int64_t kTile = 64;   // rows of a Tile2D block

struct Scratch {           // per thread, reused for each parallel index
  DType dtype;
  Expr elements;
};

struct KernelParam {
  DType dtype;
  bool read = false, written = false;
};

struct Kernel {
  NestKind kind = NestKind::Flat;
  std::vector<KernelParam> params;
  std::vector<Expr> size_params;      // symbols k0, k1, ...: trailing int64 arguments, in order
  std::vector<LoopAxis> parallel;     // outermost first; the last may have role Vector (then begin..end counts whole
                                      // vectors' worth of elements: the runtime splits at multiples of 64)
  std::vector<Stage> stages;
  std::vector<Scratch> scratch;
  // FullReduce and split reductions: the kernel writes one partial per chunk to a parameter, a second kernel combines.
  std::shared_ptr<sym::Context> context;   // owns the kernel's symbols
  std::shared_ptr<loop::ScalarBuilder> scalars;
  double cost_ns = 0;                 // of the whole range on one thread, for the decision to use threads
  std::string note;                   // "softmax row: %3, %4, %5", for logs and as a comment in the text
};

std::string print(const Kernel& kernel);      // grammar: docs/program.md
std::string verify(const Kernel& kernel);     // "" or one problem a line

// ---- Steps ---------------------------------------------------------------------------------------------------------

struct LaunchStep {
  int32_t kernel;                     // index in Program::kernels
  std::vector<View> params;           // one per Kernel param; the view's offset is added to the pointer
  std::vector<Expr> sizes;            // values of the kernel's size_params, over the graph's symbols
  Expr range;                         // the parallel range is [0, range)
  Expr grain = 1;                     // split only at multiples of this
  bool parallel = false;              // worth more than one thread
};

struct CallStep {                     // ATen or a library
  int32_t call;                       // index in LoopProgram::calls
  std::vector<View> operands;
  std::vector<int32_t> results;       // buffers
  bool into_planned = false;          // results are written into planned memory (out= form or library row)
  std::string library;                // a row of runtime's table ("addmm", "linear+gelu"); "": plain ATen call
  std::vector<View> epilogue_operands;
};

struct CopyStep { View from, to; };   // mutation write-back

using Step = std::variant<LaunchStep, CallStep, CopyStep>;

// ---- Memory --------------------------------------------------------------------------------------------------------

enum class Place : uint8_t {
  Input,       // given by the caller
  Output,      // allocated for this call and returned
  Arena,       // at `arena_offset` of the program's arena
  Call,        // allocated by an ATen call, freed after its last use
  Block,       // memory of its own from its first step to its last
  Constant,    // kept by the program
  Alias,       // shares the memory of `alias_of` (in-place reuse, or an output that is a view)
};

struct BufferPlan {
  Place place = Place::Arena;
  DType dtype = DType::F32;
  Shape sizes, strides;
  Expr offset = 0;
  Expr bytes = 0;                     // of the dense storage behind it
  Expr arena_offset = 0;              // 64-byte aligned
  int32_t alias_of = -1;
  int32_t input = -1, output = -1;
  int32_t last_step = -1;             // the step after which it is dead
};

struct Program {
  std::shared_ptr<sym::ShapeEnv> env;
  std::vector<BufferPlan> buffers;    // same numbering as LoopProgram::buffers, then scheduler's own (partials)
  std::vector<Kernel> kernels;        // equal kernels (by printed form) stand once
  std::vector<Step> steps;
  Expr arena_bytes = 0;
  std::vector<View> outputs;          // one per graph output
  std::shared_ptr<loop::LoopProgram> loops;   // calls and mutations
  std::string decisions;              // the fusion log, when Topic::kSchedule is on
};

struct ScheduleOptions {
  bool fusion = true;
  bool horizontal = true;
  // Temporaries of this many bytes and more get memory of their own instead of a place in the arena, which is held for
  // the whole call; 0: none do. For programs whose inputs are freed while they run.
  int64_t block_bytes = 0;
};

Result<Program> schedule(std::shared_ptr<loop::LoopProgram> loops, const Target& target,
                         const ScheduleOptions& options = {});
std::string print(const Program& program);
std::string verify(const Program& program);   // its kernels too

}  // namespace braze::schedule
