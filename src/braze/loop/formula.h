// Term: a Scalar with its builder, so that lowering rules read as formulas. Arithmetic needs operands of one dtype;
// numbers take the dtype of the other operand.
#pragma once

#include "braze/loop/scalar.h"
#include "braze/support/check.h"

namespace braze::loop {

class Term {
 public:
  Term(ScalarBuilder& builder, const Scalar* scalar) : builder_(&builder), scalar_(scalar) {}

  ScalarBuilder& builder() const { return *builder_; }
  const Scalar* scalar() const { return scalar_; }
  DType dtype() const { return scalar_->dtype; }

  Term constant(double value) const { return {*builder_, builder_->constant(dtype(), value)}; }
  Term cast(DType to) const { return {*builder_, builder_->cast(scalar_, to)}; }
  Term apply(ScalarOp op) const { return {*builder_, builder_->apply(op, dtype(), {scalar_})}; }
  Term apply(ScalarOp op, Term other) const {
    CHECK(dtype() == other.dtype(), text_of(op));
    return {*builder_, builder_->apply(op, dtype(), {scalar_, other.scalar_})};
  }
  Term apply(ScalarOp op, double other) const { return apply(op, constant(other)); }
  // isnan, comparisons: the result is Bool.
  Term test(ScalarOp op) const { return {*builder_, builder_->apply(op, DType::Bool, {scalar_})}; }
  Term test(ScalarOp op, Term other) const {
    CHECK(dtype() == other.dtype(), text_of(op));
    return {*builder_, builder_->apply(op, DType::Bool, {scalar_, other.scalar_})};
  }

 private:
  ScalarBuilder* builder_;
  const Scalar* scalar_;
};

#define BRAZE_BINARY(symbol, op)                                                           \
  inline Term operator symbol(Term a, Term b) { return a.apply(ScalarOp::op, b); }         \
  inline Term operator symbol(Term a, double b) { return a.apply(ScalarOp::op, b); }       \
  inline Term operator symbol(double a, Term b) { return b.constant(a).apply(ScalarOp::op, b); }
BRAZE_BINARY(+, Add)
BRAZE_BINARY(-, Sub)
BRAZE_BINARY(*, Mul)
BRAZE_BINARY(/, Div)
#undef BRAZE_BINARY
#define BRAZE_COMPARISON(symbol, op)                                                       \
  inline Term operator symbol(Term a, Term b) { return a.test(ScalarOp::op, b); }          \
  inline Term operator symbol(Term a, double b) { return a.test(ScalarOp::op, a.constant(b)); }
BRAZE_COMPARISON(<, Lt)
BRAZE_COMPARISON(<=, Le)
BRAZE_COMPARISON(>, Gt)
BRAZE_COMPARISON(>=, Ge)
BRAZE_COMPARISON(==, Eq)
BRAZE_COMPARISON(!=, Ne)
#undef BRAZE_COMPARISON

inline Term operator-(Term a) { return a.apply(ScalarOp::Neg); }
inline Term operator&(Term a, Term b) { return a.apply(ScalarOp::BitAnd, b); }
inline Term operator|(Term a, Term b) { return a.apply(ScalarOp::BitOr, b); }
inline Term operator!(Term a) { return a.test(ScalarOp::LogicalNot); }
inline Term exp(Term a) { return a.apply(ScalarOp::Exp); }
inline Term expm1(Term a) { return a.apply(ScalarOp::Expm1); }
inline Term log(Term a) { return a.apply(ScalarOp::Log); }
inline Term log1p(Term a) { return a.apply(ScalarOp::Log1p); }
inline Term tanh(Term a) { return a.apply(ScalarOp::Tanh); }
inline Term erf(Term a) { return a.apply(ScalarOp::Erf); }
inline Term abs(Term a) { return a.apply(ScalarOp::Abs); }
inline Term maximum(Term a, Term b) { return a.apply(ScalarOp::Maximum, b); }
inline Term maximum(Term a, double b) { return a.apply(ScalarOp::Maximum, b); }
inline Term minimum(Term a, Term b) { return a.apply(ScalarOp::Minimum, b); }
inline Term minimum(Term a, double b) { return a.apply(ScalarOp::Minimum, b); }
inline Term is_nan(Term a) { return a.test(ScalarOp::IsNan); }
inline Term where(Term condition, Term yes, Term no) {
  CHECK(yes.dtype() == no.dtype());
  ScalarBuilder& b = condition.builder();
  return {b, b.apply(ScalarOp::Where, yes.dtype(), {condition.scalar(), yes.scalar(), no.scalar()})};
}
inline Term where(Term condition, double yes, Term no) { return where(condition, no.constant(yes), no); }
inline Term where(Term condition, Term yes, double no) { return where(condition, yes, yes.constant(no)); }
inline Term fma(Term a, Term b, Term c) {
  ScalarBuilder& builder = a.builder();
  return {builder, builder.apply(ScalarOp::Fma, a.dtype(), {a.scalar(), b.scalar(), c.scalar()})};
}
// The truth of a number.
inline Term truth(Term a) { return a.dtype() == DType::Bool ? a : a != 0.0; }

}  // namespace braze::loop
