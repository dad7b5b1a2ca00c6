// Work: the state of one schedule() call, handed from phase to phase.
//
//   prepare      small windows unrolled, long reductions split       -> buffers
//   choose       which buffers are computed on their own             -> info[].real
//   flatten      their bodies with all other buffers written in      -> statements
//   fuse         statements that share a kernel                      -> groups
//   nest, shape  each group as a loop nest, then as a Kernel
//   plan_memory  where each remaining buffer lives
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "braze/loop/index.h"
#include "braze/schedule/program.h"
#include "braze/support/arena.h"

namespace braze::schedule {

using loop::Binding;
using loop::Buffer;
using loop::BufferKind;
using loop::ScalarBuilder;
using loop::ScalarOp;
using loop::Substitution;

struct BufferInfo {
  int32_t rank = 0;                 // place in Work::order
  bool required = false;            // an output, an operand of a call or the new value of an input: must be in memory
  bool real = false;                // computed by a statement; else written into its users' bodies
  bool holds_row_results = false;   // a reduction, or computed from one with as many elements
  bool finishes_rows = false;       // reads such a result for each of many elements: the end of a norm or softmax
  bool has_index = false, has_division = false;   // a body with an index value, or an integer division that may fail
  std::vector<int32_t> reads;       // buffers that its bodies load, each once, in order of appearance
  std::vector<size_t> loads;        // of each read: at how many places, with indices of their own
  std::vector<double> shares;       // of each read: loads per element; less than 1 if the innermost loop does not move it
  std::vector<int32_t> users;       // computed buffers that load it, each once
  double elements = 0;              // by the hints
  double iterations = 0;            // elements times the iterations of its reduce axes
  double weight = 0;                // per element, of its bodies and those written into them; see weight_of
  size_t nodes = 0;                 // size of its bodies, likewise
};

struct Read {
  int32_t buffer;
  const Scalar* load;
};

// What a real buffer computes, reading real buffers, inputs and call results only. `bodies` in the order of
// bodies_of(buffer).
struct Statement {
  std::vector<const Scalar*> bodies;
  std::vector<Read> reads;
};

struct Work {
  Work(std::shared_ptr<loop::LoopProgram> program, const Target& machine, const ScheduleOptions& choices);

  std::shared_ptr<loop::LoopProgram> loops;
  const Target& target;
  const ScheduleOptions& options;
  sym::ShapeEnv& env;
  sym::Context& context;
  ScalarBuilder& scalars;

  Arena arena;                                  // buffers made by the scheduler
  std::vector<const Buffer*> buffers;           // by id; the program's, some replaced, then the scheduler's own
  std::vector<int32_t> order;                   // ids, producers before consumers
  std::vector<BufferInfo> info;
  std::vector<Statement> statements;            // by id; of real buffers
  std::unordered_map<Expr, Expr> inner_symbols;
  std::unordered_map<Expr, int64_t> size_hints; // by size symbol
  std::unordered_map<int32_t, int64_t> running; // by id: buffers to which so many rows after each other add
  std::string* log = nullptr;                   // decisions, if wanted

  const Buffer& buffer(int32_t id) const { return *buffers[static_cast<size_t>(id)]; }
  BufferInfo& at(int32_t id) { return info[static_cast<size_t>(id)]; }
  const BufferInfo& at(int32_t id) const { return info[static_cast<size_t>(id)]; }
  Statement& statement(int32_t id) { return statements[static_cast<size_t>(id)]; }
  const Statement& statement(int32_t id) const { return statements[static_cast<size_t>(id)]; }
  bool is_computed(int32_t id) const {
    return buffer(id).kind != BufferKind::Input && buffer(id).kind != BufferKind::Extern;
  }

  // The value under the sizes' hints, and at index 0 of axes: the greatest value of a cut axis' extent.
  int64_t hint(Expr e) const { return e.is_constant() ? e.constant() : hint_of_node(e); }
  double hint_numel(std::span<const loop::Axis> axes) const;
  Expr address(const Scalar& load) const { return loop::address(load.indices, buffer(load.buffer).strides); }
  // The symbol for a row axis that has become an inner one.
  Expr inner_symbol(Expr row, Expr extent);
  // Equal for all sizes that the guards allow.
  bool equal(Expr a, Expr b) const;
  void note(const std::string& text) {
    if (log != nullptr) log->append(text).push_back('\n');
  }
  bool is_size(Expr e) const;                   // of size symbols only

 private:
  int64_t hint_of_node(Expr e) const;
};

// Every scalar that the buffer's kind evaluates: the body; the pieces' bodies; body and update of a Scatter.
std::vector<const Scalar*> bodies_of(const Buffer& buffer);

// A computed index that the producer's body does not look at would not be checked any more, were the body written in.
bool loses_check(const Scalar& load, const Buffer& producer);
// A value that took the place of a load still checks the load's computed indices.
bool keeps_checks(const Scalar* value, const std::vector<Binding>& bindings);

void prepare(Work& work);
void choose(Work& work);
void flatten(Work& work);

}  // namespace braze::schedule
