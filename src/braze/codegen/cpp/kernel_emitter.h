// One kernel as C++ text. State of the walk over its loops: open scopes, the vector axis, values that have names.
//
// A value is computed in the outermost scope that knows all it depends on: text for that scope is appended before the
// inner loop that is being written, so that what does not change in a loop stands before it. Values that vary along the
// vector axis have one name for each vector of a trip (unrolling), others one name with all lanes equal.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "braze/codegen/cpp/index_text.h"
#include "braze/codegen/cpp/registers.h"
#include "braze/schedule/program.h"

namespace braze::codegen {

using loop::Scalar;
using schedule::Accumulator;
using schedule::Kernel;
using schedule::LoopAxis;
using schedule::Stage;
using schedule::Store;
using schedule::Target;
using sym::Expr;

// Lanes of the vectors of a kernel: as many f32 as a register holds, or f64 where most values are 8 bytes wide.
int lanes_of(const Kernel& kernel, const Target& target);

class KernelEmitter {
 public:
  KernelEmitter(const Kernel& kernel, const Target& target);
  // The function `name`; its body uses helpers of the prelude for lanes_of(kernel) lanes.
  std::string emit(const std::string& name);

 private:
  struct Value {
    std::vector<std::string> names;   // one, or one for each vector of a trip
    int depth = 0;                    // scope that it stands in
    bool varying = false;             // along the vector axis
    bool fragile = false;             // reads memory that this kernel writes: holds for one stage only
    const std::string& at(size_t u) const { return names[varying ? u : 0]; }
  };
  struct Symbol {
    std::string text;                 // a long
    int depth = 0;
    std::vector<std::string> vectors; // of a computed index that varies: a VL for each vector of a trip
    bool fragile = false, checked = true;
  };
  struct Scope {
    std::string text;
    std::unordered_map<const Scalar*, Value> values;
    std::map<std::pair<int32_t, size_t>, std::vector<std::pair<Expr, std::string>>> pointers;
    std::map<int64_t, Value> reduced;
    std::vector<Expr> symbols;        // known inside of it only
  };
  struct Vector {                     // the vector loop that is open
    Expr symbol;
    std::string variable;
    int depth;
    int unroll;
    std::string live;                 // name of the number of live lanes; "" if all are
  };
  struct Running {                    // an accumulator while its loops are written
    const Accumulator* accumulator;
    std::vector<std::string> names;   // one a group
    std::vector<std::string> places;  // ArgMax, ArgMin: the indices
    std::vector<std::string> totals;  // sums in blocks
  };
  struct LoopPlan {
    int unroll = 1;
    bool one_body = false;            // one loop with partial vectors instead of a main loop and a tail
    std::function<void()> before_block, after_block;   // around blocks of the last loop, for sums
    int64_t block = 0;                // trips of a block; 0: no blocks
  };

  // kernel_emitter.cpp: scopes and loops
  Scope& scope() { return scopes_.back(); }
  int depth() const { return static_cast<int>(scopes_.size()) - 1; }
  void open();
  void close(const std::string& header);
  void line(int at, const std::string& text);
  std::string fresh(const char* prefix) { return prefix + std::to_string(next_name_++); }
  void declare(Expr symbol, Symbol info);
  void parallel_loops();
  void stages();
  void loops(std::span<const LoopAxis> axes, const LoopPlan& plan, const std::function<void()>& body);
  void counted_loop(const LoopAxis& axis, const std::string& from, const std::string& to, const LoopPlan& plan,
                    const std::function<void()>& body);
  void vector_loop(const LoopAxis& axis, const std::string& from, const std::string& to, const LoopPlan& plan,
                   const std::function<void()>& body);
  size_t groups() const { return vector_ ? static_cast<size_t>(vector_->unroll) : 1; }
  std::string scratch_setup();

  // kernel_stages.cpp
  void stage(const Stage& stage);
  void plain_stage(const Stage& stage);
  void reduce_stage(const Stage& stage);
  void scan_stage(const Stage& stage);
  LoopPlan plan_for(const Stage& stage) const;
  int weight(const Stage& stage) const;
  bool sums_in_blocks(const Stage& stage, const LoopPlan& plan) const;
  std::vector<Running> begin(const Stage& stage, size_t n_groups, bool with_totals);
  std::string first_index(const Stage& s, const Accumulator& a, size_t u);
  void accumulate(std::vector<Running>& running, bool along_lanes);
  void finish(std::vector<Running>& running, bool along_lanes);
  void stores(std::span<const Store> list);

  // kernel_tiles.cpp
  bool tile_stage(const Stage& stage);   // false: not one that is read in tiles

  // kernel_values.cpp
  const Value& value(const Scalar* s);
  Value compute(const Scalar* s);
  Value computed_op(const Scalar* s);
  Value load(const Scalar& s);
  Value index_value(const Scalar& s);
  Value cast_to(const Value& v, DType from, DType to);
  const Value& keep(const Scalar* s, Value v);
  Value name_value(Value v, Register r);     // gives the texts in v.names names of their own
  void bind(std::span<const loop::Binding> bindings, const Value* mask);
  std::string live_mask(const Value* mask, size_t u) const;

  // kernel_memory.cpp
  struct Address {
    // Lanes: a scratch element of a kernel whose lanes are parallel indices; each lane has its own.
    enum class Kind : uint8_t { Uniform, Contiguous, Strided, Anywhere, Lanes } kind = Kind::Uniform;
    std::string pointer;              // to lane 0 of vector 0 (Contiguous, Strided, Lanes) or to the element (Uniform)
    std::string stride;               // Strided
    int64_t step = 0;                 // Strided: the stride if it is known
    int32_t buffer = 0;
    Expr expression;
    int depth = 0;
    bool fragile = false;
  };
  Address address_of(int32_t buffer, Expr e);
  std::string pointer_to(int32_t buffer, Expr e, int at);
  std::string lane_addresses(const Address& a, size_t u);
  std::string lane_offset(const Address& a, size_t u) const;
  std::string load_text(const Address& a, int32_t buffer, DType dtype, size_t u, const std::string& mask);
  std::string element_text(const std::string& place, DType dtype) const;
  std::string stored_element(const std::string& v, DType dtype, const std::string& lane) const;
  void store_value(const Store& store, const Value& v);
  void combine_in_place(const Store& store, const Address& a, const Value& v);
  void scatter_combine(const Store& store, const Address& a, const Value& v);
  DType dtype_of(int32_t buffer) const;
  std::string base_of(int32_t buffer) const;
  bool is_written(int32_t buffer) const;
  IndexText index(Expr e, size_t u);
  std::string scalar_index(Expr e) { return index(e, 0).text; }
  int depth_of(Expr e) const;
  bool varies(Expr e) const;
  bool is_fragile(Expr e) const;
  const Symbol& symbol(Expr e) const;

  const Kernel& kernel_;
  const Target& target_;
  const int lanes_;
  std::vector<Scope> scopes_;
  std::unordered_map<Expr, Symbol> symbols_;
  std::optional<Vector> vector_;
  int stage_depth_ = 0;
  int next_name_ = 0;
  int scratch_lanes_ = 0;              // lanes of a scratch element; 0: it is one for all
  std::vector<std::string> locals_;   // lines at the head of the function
  bool uses_error_ = false, streams_ = false;
};

}  // namespace braze::codegen
