// Lowering: the state of one lower() call and what its rules are written with. A rule makes the buffers of one node
// and says true, or says false before it has made any: then the node becomes an Extern call.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "braze/graph/arguments.h"
#include "braze/graph/graph.h"
#include "braze/loop/formula.h"
#include "braze/loop/index.h"
#include "braze/loop/lower.h"

namespace braze::loop {

using graph::Argument;
using graph::ArgumentList;
using graph::Node;
using graph::TensorType;
using graph::Value;

// Where a tensor's elements are: element (i0, i1, ...) of the tensor is element `at` of the buffer, an expression for
// each of the buffer's dimensions over formals(sizes).
struct Located {
  int32_t buffer = -1;
  Shape sizes;
  Indices at;
};

// Thrown where a rule meets an argument that it does not cover.
struct NotLowered {
  Unsupported why;
};

// Thrown where a rule breaks on a node: a fault of ours, which costs the node its kernel.
struct RuleFailed {
  const Node* node;
  std::string why;
};

class Lowering {
 public:
  Lowering(const graph::Graph& graph, const std::unordered_set<const Node*>& opaque);
  LoopProgram run();

  sym::Context& context() { return program_.env->context(); }
  sym::ShapeEnv& env() { return *program_.env; }
  // By structure or by a guard: a size that broadcasts.
  bool is_one(Expr size) const {
    return size.is_constant() ? size == Expr(1) : graph_.env->known(sym::eq(size, 1)).value_or(false);
  }
  ScalarBuilder& scalars() { return *program_.scalars; }
  const Buffer& buffer(int32_t id) const { return program_.buffers[static_cast<size_t>(id)]; }

  // ---- Terms
  Term term(const Scalar* s) { return {scalars(), s}; }
  Term index(Expr e) { return term(scalars().index(e)); }
  Term constant(DType dtype, double value) { return term(scalars().constant(dtype, value)); }
  Term constant_int(DType dtype, int64_t value) { return term(scalars().constant_int(dtype, value)); }
  // Comparisons of indices, decided here where ranges suffice.
  Term less_equal(Expr a, Expr b) { return compare(ScalarOp::Le, sym::le(a, b), a, b); }
  Term less(Expr a, Expr b) { return compare(ScalarOp::Lt, sym::lt(a, b), a, b); }
  Term equal(Expr a, Expr b) { return compare(ScalarOp::Eq, sym::eq(a, b), a, b); }
  // A start or index that counts from the end if negative; below the front it is 0. Holds for all sizes, not only for
  // the traced ones.
  Expr from_front(Expr e, Expr size);
  // A number argument (int, float or bool; sizes may be symbolic) in the given dtype.
  Term number(const Argument& argument, DType dtype);
  Term number(const Node& node, std::string_view name, DType dtype) { return number(node.argument(name), dtype); }

  // ---- Loads. Indices are the tensor's own; a computed index stands in them by its binding's symbol.
  Term load(const Value* value, const Indices& at, std::vector<Binding> bindings = {});
  // Reads only where mask is true; `otherwise` (of the value's dtype) elsewhere.
  Term load_masked(const Value* value, const Indices& at, Term mask, Term otherwise,
                   std::vector<Binding> bindings = {});
  // An operand of a pointwise op, tensor or number, at index `at` of the broadcast result, cast to `dtype`.
  Term operand(const Argument& argument, const Indices& at, DType dtype);
  // The same with the operand's own dtype (numbers: I64, F64, Bool).
  Term operand(const Argument& argument, const Indices& at);
  // TensorIterator's common dtype: tensors with dimensions before 0-dim tensors before numbers.
  DType common_dtype(std::initializer_list<const Argument*> arguments) const;
  // A computed index along a dimension: negative numbers wrapped if the op does so, bounds recorded.
  Expr computed_index(Term value, Expr extent, bool wraps, std::vector<Binding>& bindings);

  // ---- Buffers. Each defines result number `result` of the node with that result's type.
  using Body = std::function<Term(const Indices& at)>;
  void pointwise(const Node& node, const Body& body, size_t result = 0);
  // A value without a node result: an intermediate tensor.
  Located intermediate(const Node& node, DType dtype, const Shape& sizes, const Body& body);
  // The same of any kind: `fill` completes the buffer.
  Located intermediate_buffer(const Node& node, DType dtype, const Shape& sizes,
                              const std::function<void(Buffer&, const Indices& at)>& fill);
  Term load(const Located& located, const Indices& at, std::vector<Binding> bindings = {});
  Term load_masked(const Located& located, const Indices& at, Term mask, Term otherwise);

  struct ReductionSpec {
    ReduceOp op = ReduceOp::Sum;
    std::vector<int64_t> dims;     // of the operand, wrapped and sorted
    Shape sizes;                   // of the operand
    DType dtype = DType::F32;      // of the result
    DType accumulate = DType::F32; // the body's dtype
  };
  // A reduction of body(operand indices). The kept dimensions stay in order; with keepdim the reduced ones stay as 1.
  void reduction(const Node& node, const ReductionSpec& spec, const Body& body, size_t result = 0);
  Located reduced(const Node& node, const ReductionSpec& spec, bool keepdim, const Body& body);
  // Any further kind: axes of the result are made, `fill` completes the buffer.
  void define(const Node& node, const std::function<void(Buffer&, const Indices& at)>& fill, size_t result = 0);

  // ---- Views
  const Located& located(const Value* value) const;
  // result[i] = operand[map(i)], without copying.
  void view(const Node& node, const Value* operand, const std::function<Indices(const Indices&)>& map,
            size_t result = 0);
  void alias(const Node& node, Located located, size_t result = 0);
  // Makes the buffer of `value` stand for the storage that eager has (a reshape may have copied there); false if it
  // can't.
  bool own_storage(const Value* value, const Node& user);
  bool is_used(const Value* value) const { return graph_.has_uses(value); }
  // The buffer's layout may not change any more: addresses were computed from it.
  void pin(int32_t buffer) { program_.buffers[static_cast<size_t>(buffer)].flexible = false; }

  // Axes by position and extent; equal positions and extents share a symbol. Extent 1 gives the constant 0 as index.
  std::vector<Axis> axes(const Shape& sizes, std::string_view prefix = "i");
  Indices indices_of(std::span<const Axis> axes) const;
  Indices formals(const Shape& sizes) { return indices_of(axes(sizes)); }

 private:
  Term compare(ScalarOp op, Expr predicate, Expr a, Expr b);
  void lower_inputs();
  void lower_node(const Node& node);
  bool lower_by_rule(const Node& node);
  void lower_extern(const Node& node);
  void lower_outputs();
  void lower_mutations();
  Located add_buffer(Buffer&& made, const TensorType& type, const Node& node, const Indices& at);
  int32_t new_buffer(BufferKind kind, const TensorType& type, std::string name);
  View output_view(const Value* value, std::vector<bool>& taken);
  View operand_view(const Value* value, const Node& user);
  // With the strides that the buffer has now; nullopt if the index map is not linear.
  std::optional<View> linear_view(const Located& at);
  // The same if these are the strides that eager has.
  std::optional<View> exact_view(const Value* value);
  View materialized(const Located& located, const TensorType& type, std::string origin);

  Term generated(const Buffer& source, const Indices& at);
  Term finish_load(const Located& located, const Indices& at, std::vector<Binding> bindings, const Term* mask,
                   const Term* otherwise);

  const graph::Graph& graph_;
  const std::unordered_set<const Node*>& opaque_;
  LoopProgram program_;
  std::unordered_map<const Value*, Located> located_;
  std::unordered_map<const Node*, int32_t> call_of_;
  struct AxisKey {
    std::string prefix;
    size_t position;
    Expr extent;
    bool operator==(const AxisKey&) const = default;
  };
  struct AxisKeyHash {
    size_t operator()(const AxisKey& key) const;
  };
  std::unordered_map<AxisKey, Expr, AxisKeyHash> axis_symbols_;
};

// Does the op have a rule? (The types of a particular call may still make it an Extern call.)
bool has_lowering(const graph::Op* op);

// The rules, by name of the row in lowerings.def; `op` is the row's scalar op, where one is needed.
using Rule = bool (*)(Lowering&, const Node&, ScalarOp op);
#define LOWERING(name, rule, op) bool rule(Lowering&, const Node&, ScalarOp);
#define VIEW_LOWERING(name, rule) bool rule(Lowering&, const Node&, ScalarOp);
#include "braze/loop/lowerings.def"
#undef LOWERING
#undef VIEW_LOWERING

}  // namespace braze::loop
