#include "braze/schedule/cost.h"

#include <unordered_set>

namespace braze::schedule {

using loop::Scalar;
using loop::ScalarOp;

double weight_of(ScalarOp op, DType dtype) {
  const double scale = dtype == DType::F64 || dtype == DType::I64 ? 2 : 1;
  switch (op) {
    case ScalarOp::Constant: case ScalarOp::Index: case ScalarOp::Load: case ScalarOp::Reduced:
      return 0;
    case ScalarOp::Cast: case ScalarOp::Bitcast: case ScalarOp::Neg: case ScalarOp::Abs: case ScalarOp::Sign:
    case ScalarOp::Floor: case ScalarOp::Ceil: case ScalarOp::Trunc: case ScalarOp::Round: case ScalarOp::IsNan:
    case ScalarOp::IsInf: case ScalarOp::SignBit: case ScalarOp::LogicalNot: case ScalarOp::BitNot:
    case ScalarOp::Add: case ScalarOp::Sub: case ScalarOp::Mul: case ScalarOp::Fma: case ScalarOp::CopySign:
    case ScalarOp::Minimum: case ScalarOp::Maximum: case ScalarOp::Fmin: case ScalarOp::Fmax:
    case ScalarOp::Eq: case ScalarOp::Ne: case ScalarOp::Lt: case ScalarOp::Le: case ScalarOp::Gt: case ScalarOp::Ge:
    case ScalarOp::BitAnd: case ScalarOp::BitOr: case ScalarOp::BitXor: case ScalarOp::ShiftLeft:
    case ScalarOp::ShiftRight: case ScalarOp::Where:
      return scale;
    case ScalarOp::Sqrt: case ScalarOp::Reciprocal: case ScalarOp::Div:
      return 4 * scale;
    case ScalarOp::Rsqrt: case ScalarOp::Hypot:
      return 8 * scale;
    case ScalarOp::FloorDiv: case ScalarOp::TruncDiv: case ScalarOp::Remainder: case ScalarOp::Fmod:
      return 12 * scale;
    case ScalarOp::Exp: case ScalarOp::Exp2: case ScalarOp::Sin: case ScalarOp::Cos: case ScalarOp::Sigmoid:
      return 12 * scale;
    case ScalarOp::Log: case ScalarOp::Log2: case ScalarOp::Log10: case ScalarOp::Log1p: case ScalarOp::Expm1:
    case ScalarOp::Tan: case ScalarOp::Tanh: case ScalarOp::Atan:
      return 20 * scale;
    case ScalarOp::Asin: case ScalarOp::Acos: case ScalarOp::Sinh: case ScalarOp::Cosh: case ScalarOp::Asinh:
    case ScalarOp::Acosh: case ScalarOp::Atanh: case ScalarOp::Erf: case ScalarOp::Erfc: case ScalarOp::Atan2:
      return 30 * scale;
    case ScalarOp::Pow: case ScalarOp::NextAfter:
      return 40 * scale;
  }
  return scale;
}

double weight_of(const Scalar* value) {
  double sum = 0;
  visit(value, [&sum](const Scalar& node) { sum += weight_of(node.op, node.dtype); });
  return sum;
}

}  // namespace braze::schedule
