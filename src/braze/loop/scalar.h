// Scalar expressions: what a kernel computes for one element. Immutable, hash-consed in a ScalarBuilder, so that equal
// sub-expressions are one node. Bodies of loop IR and statements of kernels are made of these.
//
// Types: every node has the DType that eager's value has at this point. Arithmetic on bf16/f16 is computed in f32 and
// rounded to the node's dtype after each op (eager's rounding points); a generator may keep the rounded value in an f32
// register. Integer arithmetic wraps; comparisons give Bool.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "braze/support/arena.h"
#include "braze/support/dtype.h"
#include "braze/sym/expr.h"

namespace braze::loop {

using sym::Expr;

enum class ScalarOp : uint16_t {
#define SCALAR_OP(name, text, arity) name,
#include "braze/loop/scalar_ops.def"
#undef SCALAR_OP
};

const char* text_of(ScalarOp op);
int arity_of(ScalarOp op);        // number of operands

struct Scalar;
// An index symbol whose value is computed: the symbol stands in a Load's indices, `value` (I64) gives its number. The
// lowering has already wrapped negative numbers; `extent` is what it must stay below (checked at run time: an index out
// of range raises IndexError, as eager does).
struct Binding {
  Expr symbol;
  const Scalar* value;
  Expr extent;
  bool operator==(const Binding&) const = default;
};

struct Scalar {
  ScalarOp op;
  DType dtype;
  uint32_t id = 0;                       // order of creation
  std::vector<const Scalar*> operands;   // Load with a mask: operands[0] is the mask, operands[1] the value elsewhere
  // Constant: the value by kind of dtype.
  double real = 0;
  int64_t integer = 0;
  // Load: buffer and one index per dimension of it. Index: indices[0] is the expression.
  int32_t buffer = -1;
  std::vector<Expr> indices;
  std::vector<Binding> bindings;
};

class ScalarBuilder {
 public:
  ScalarBuilder();
  ~ScalarBuilder();
  ScalarBuilder(const ScalarBuilder&) = delete;
  ScalarBuilder& operator=(const ScalarBuilder&) = delete;

  const Scalar* constant(DType dtype, double value);
  const Scalar* constant_int(DType dtype, int64_t value);
  const Scalar* constant_like(const Scalar& constant);              // of another builder
  const Scalar* index(Expr e);                                      // I64
  const Scalar* load(int32_t buffer, DType dtype, std::vector<Expr> indices, std::vector<Binding> bindings = {});
  // Reads memory only where mask is true.
  const Scalar* load_masked(int32_t buffer, DType dtype, std::vector<Expr> indices, std::vector<Binding> bindings,
                            const Scalar* mask, const Scalar* otherwise);
  const Scalar* apply(ScalarOp op, DType dtype, std::span<const Scalar* const> operands);
  const Scalar* apply(ScalarOp op, DType dtype, std::initializer_list<const Scalar*> operands);
  const Scalar* cast(const Scalar* value, DType dtype);             // itself if it has that type
  const Scalar* reduced(DType dtype, int64_t accumulator);          // kernels: the result of an accumulator

  // The binding of a computed index (I64, already wrapped): the same symbol for the same value and extent, so that one
  // symbol never means two values.
  Binding bind(sym::Context& context, const Scalar* value, Expr extent);

  // Replaces index symbols in every index expression below `value`, and loads of chosen buffers by other values.
  // replace_load(load, substituted indices, substituted bindings) gives nullptr to keep the load; what takes the place
  // of a masked load is masked in turn. `value` may belong to another builder: the result is in this one.
  using ReplaceLoad = std::function<const Scalar*(const Scalar& load, const std::vector<Expr>& indices,
                                                  const std::vector<Binding>& bindings)>;
  const Scalar* rewrite(const Scalar* value, std::span<const std::pair<Expr, Expr>> symbols,
                        const ReplaceLoad& replace_load = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Calls f(const Scalar&) once for each node below and with `value`, operands first.
void visit(const Scalar* value, const std::function<void(const Scalar&)>& f);

}  // namespace braze::loop
