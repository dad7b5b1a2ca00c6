// Call: what a type rule sees of one call. Readers of arguments by number, and decisions about symbolic sizes.
#pragma once

#include "braze/graph/type_rules.h"
#include "braze/support/small_vector.h"

namespace braze::graph {

using Types = Result<std::vector<TensorType>>;
using Dims = SmallVector<int64_t, 8>;

class Call {
 public:
  Call(const Op& called, const std::vector<Argument>& arguments, const TypeContext& context)
      : op(called), default_dtype(context.default_dtype), arguments_(arguments), env_(*context.env) {}

  const Op& op;
  const DType default_dtype;

  size_t size() const { return arguments_.size(); }
  const std::vector<Argument>& arguments() const { return arguments_; }
  TypeContext context() const { return {&env_, default_dtype}; }
  const Argument& operator[](size_t i) const { return arguments_[i]; }

  // ---- Arguments ----
  // The tensor's type; nullptr for None, an undefined tensor or a number that stands for a tensor.
  const TensorType* tensor(size_t i) const { return tensor_of(arguments_[i]); }
  static const TensorType* tensor_of(const Argument& argument) {
    const auto* value = std::get_if<Value*>(&argument.v);
    return value != nullptr && *value != nullptr && (*value)->type.defined ? &(*value)->type : nullptr;
  }
  bool is_none(size_t i) const { return arguments_[i].is_none(); }
  bool boolean(size_t i, bool if_none = false) const;
  // A constant; a symbolic value is specialized, with a guard.
  int64_t integer(size_t i) const;
  Expr expr(size_t i) const;
  // A list of sizes; a single one counts as a list of one; None as the empty list.
  Shape exprs(size_t i) const;
  Dims integers(size_t i) const;
  std::optional<DType> dtype(size_t i) const;
  // 0 contiguous, 1 preserve, 2 channels last, 3 channels last 3d.
  std::optional<int> memory_format(size_t i) const;
  Device device(size_t i, Device if_none = {}) const;

  // ---- Decisions; each records a guard where structure and ranges do not tell ----
  bool same(Expr a, Expr b) const {
    if (a == b) return true;
    if (both_constant(a, b)) return false;
    const sym::Range x = a.range(), y = b.range();
    return x.low <= y.high && y.low <= x.high && env_.guard(sym::eq(a, b));
  }
  bool less(Expr a, Expr b) const {
    if (both_constant(a, b)) return a.constant() < b.constant();
    const sym::Range x = a.range(), y = b.range();
    if (x.high < y.low) return true;
    if (x.low >= y.high) return false;
    return env_.guard(sym::lt(a, b));
  }
  bool same(const Shape& a, const Shape& b) const;
  bool is_one(Expr e) const { return same(e, 1); }
  bool is_zero(Expr e) const { return same(e, 0); }
  Expr simplify(Expr e) const { return env_.simplify(e); }
  int64_t specialize(Expr e) const { return e.is_constant() ? e.constant() : env_.specialize(e); }

 private:
  static bool both_constant(Expr a, Expr b) { return a.is_constant() && b.is_constant(); }
  const std::vector<Argument>& arguments_;
  sym::ShapeEnv& env_;
};

// dim counted from the front; nullopt if out of range. A 0-dim tensor counts as having one dimension.
std::optional<size_t> wrap_dim(int64_t dim, size_t rank);
// Which dimensions a reduction over `dims` removes; nullopt if one is out of range or stands twice. Empty: all.
std::optional<std::vector<bool>> reduced_dims(const Dims& dims, size_t rank);

inline Unsupported unsupported(const Call& call, const char* why) { return {call.op.name + ": " + why, ""}; }
inline Types one(TensorType type) {
  std::vector<TensorType> out;
  out.push_back(std::move(type));
  return out;
}

}  // namespace braze::graph
