// Loop IR: each tensor that must exist is a Buffer, defined by a computation over an index space. View ops leave no
// trace here: they became index maps in the loads of their users.
//
//   buf3: f32[s0, 768] = reduce sum over r0 < 768 { load buf1[i0, r0] }
//
// Bodies load other buffers by logical indices (one per dimension), never by address.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "braze/graph/graph.h"
#include "braze/loop/scalar.h"
#include "braze/support/result.h"

namespace braze::loop {

using graph::Shape;

enum class BufferKind : uint8_t {
  Input,       // a graph input or constant
  Pointwise,   // body at axes
  Reduction,   // body reduced over reduce_axes
  Scan,        // running reduction along axes[scan_axis]
  Cat,         // pieces along axes[cat_axis], each with its own body and extent
  Scatter,     // initial body, then for each scatter index: combine body into a computed place
  Extern,      // an ATen or library call (graph node); possibly one of several results of it
};

enum class ReduceOp : uint8_t { Sum, Prod, Max, Min, Any, All, ArgMax, ArgMin, Xor };
// Sum accumulates in `accumulate` (f32 for bf16/f16, i64 for integers); Max and Min keep NaN; ArgMax and ArgMin give
// the first index (I64) in row-major order over reduce_axes, and NaN counts as the extreme.

struct Axis {
  Expr symbol;     // index symbol, range [0, extent)
  Expr extent;
};

struct Piece {     // of a Cat: axes[cat_axis] runs from `begin`; the body is written over the buffer's own axes
  Expr begin, extent;
  const Scalar* body;   // uses axes[cat_axis] - begin where it indexes its source
};

// An operand of an Extern call: a strided view of a buffer.
struct View {
  int32_t buffer = -1;
  Shape sizes, strides;
  Expr offset = 0;       // elements from the buffer's first element
  bool operator==(const View&) const = default;
};

struct ExternCall {
  const graph::Node* node = nullptr;             // op and non-tensor arguments
  std::vector<View> operands;                    // the node's tensors in order of appearance (undefined ones left out)
  std::vector<int32_t> results;                  // buffer of each result; -1: unused or undefined
  std::vector<int32_t> order_after;              // effectful calls that must run before (indices in LoopProgram::calls)
};

struct Buffer {
  int32_t id = -1;
  std::string name;                 // "buf3", "arg0"
  BufferKind kind = BufferKind::Pointwise;
  DType dtype = DType::F32;
  Device device;
  Shape sizes, strides;             // strides as eager has them; `flexible` ones may be changed by the scheduler
  Expr offset = 0;                  // Input: elements before the first one
  bool flexible = true;             // false: an output, or an operand of a call that needs this layout

  std::vector<Axis> axes;           // one per dimension; not of Input and Extern
  std::vector<Axis> reduce_axes;    // Reduction
  const Scalar* body = nullptr;     // Pointwise, Reduction, Scan, Scatter (the initial value)
  ReduceOp reduce = ReduceOp::Sum;  // Reduction, Scan, Scatter
  DType accumulate = DType::F32;    // type of the running value
  int32_t scan_axis = -1, cat_axis = -1;
  bool exclusive = false;           // Scan
  std::vector<Piece> pieces;        // Cat
  // Scatter: over update_axes, value `update` goes to place `update_at` (one per dimension, may use update_bindings).
  std::vector<Axis> update_axes;
  const Scalar* update = nullptr;
  std::vector<Expr> update_at;
  std::vector<Binding> update_bindings;
  bool accumulate_updates = false;  // combine with `reduce`, else overwrite

  int32_t call = -1;                // Extern: index in LoopProgram::calls
  int32_t input = -1;               // Input: graph input number
  std::vector<std::string> origins; // "%12 = aten.relu", in graph order
};

struct OutputRef {                  // a graph output or the new contents of a mutated input
  View view;                        // buffer -1: undefined
};

struct LoopProgram {
  std::shared_ptr<sym::ShapeEnv> env;
  std::unique_ptr<ScalarBuilder> scalars;
  std::vector<Buffer> buffers;      // producers before consumers
  std::vector<ExternCall> calls;
  std::vector<OutputRef> outputs;   // one per graph output
  struct Mutation { int32_t input_buffer; View value; };
  std::vector<Mutation> mutations;
  const graph::Graph* graph = nullptr;   // must outlive the program; aliases are read from it
  std::shared_ptr<const graph::Graph> owned_graph;   // of a parsed program: holds the nodes of its calls
};

// Lowers a graph whose ops are all primitive or opaque. A primitive op whose types no kernel supports becomes an
// Extern call (and is counted in fallback_report).
Result<LoopProgram> lower(const graph::Graph& graph);

std::string print(const LoopProgram& program);       // grammar: docs/loop_ir.md
LoopProgram parse(std::string_view text);            // throws graph::ParseError
std::string verify(const LoopProgram& program);      // "" or one problem a line

}  // namespace braze::loop
