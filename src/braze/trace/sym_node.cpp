#include "braze/trace/sym_node.h"

#include <c10/core/SymNodeImpl.h>
#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "braze/trace/abort.h"

namespace braze::trace {
namespace {

using c10::SymNode;
using sym::Expr;

class ExprNode final : public c10::SymNodeImpl {
 public:
  enum class Kind : uint8_t { Int, Bool, Float };

  ExprNode(Expr e, Kind kind, EnvPtr env) : expr_(e), kind_(kind), env_(std::move(env)) {}
  ExprNode(FloatId value, EnvPtr env) : kind_(Kind::Float), float_(value), env_(std::move(env)) {}

  Expr expr() const { return expr_; }
  FloatId float_id() const { return float_; }
  const NumberEnv& env() const { return *env_; }
  bool is_real() const { return kind_ == Kind::Float; }

  bool is_int() override { return kind_ == Kind::Int; }
  bool is_bool() override { return kind_ == Kind::Bool; }
  bool is_float() override { return kind_ == Kind::Float; }
  bool is_nested_int() const override { return false; }
  bool has_hint() override { return true; }
  // torch's Python part can't unwrap constant floats.
  bool is_constant() override { return kind_ != Kind::Float && current().is_constant(); }
  bool is_symbolic() override { return !is_constant(); }
  std::string str() override { return kind_ == Kind::Float ? env_->describe(float_) : to_string(current()); }
  std::string _graph_repr() override { return str(); }

  std::optional<int64_t> constant_int() override {
    return kind_ == Kind::Int ? current().maybe_constant() : std::nullopt;
  }
  std::optional<int64_t> maybe_as_int() override { return constant_int(); }
  std::optional<bool> constant_bool() override {
    if (kind_ != Kind::Bool) return std::nullopt;
    const auto value = current().maybe_constant();
    return value ? std::optional(*value != 0) : std::nullopt;
  }

  SymNode add(const SymNode& o) override {
    return is_real(o) ? real(FloatOp::Add, o) : integer(current() + expr_of(o));
  }
  SymNode sub(const SymNode& o) override {
    return is_real(o) ? real(FloatOp::Subtract, o) : integer(current() - expr_of(o));
  }
  SymNode mul(const SymNode& o) override {
    return is_real(o) ? real(FloatOp::Multiply, o) : integer(current() * expr_of(o));
  }
  SymNode floordiv(const SymNode& o) override {
    if (is_real(o)) unsupported("the floor of a quotient of symbolic numbers");
    const Expr divisor = expr_of(o);
    if (env_->guard(sym::eq(divisor, 0), {"division by zero"})) unsupported("division of a size by zero");
    return integer(sym::floor_div(current(), divisor));
  }
  SymNode int_floordiv(const SymNode& o) override { return floordiv(o); }
  SymNode mod(const SymNode& o) override {
    if (is_real(o)) unsupported("the remainder of symbolic floating-point numbers");
    const Expr divisor = expr_of(o);
    if (env_->guard(sym::eq(divisor, 0), {"division by zero"})) unsupported("division of a size by zero");
    return integer(sym::mod(current(), divisor));
  }
  SymNode truediv(const SymNode& o) override { return real(FloatOp::Divide, o); }
  SymNode float_truediv(const SymNode& o) override { return truediv(o); }
  SymNode int_truediv(const SymNode& o) override { return truediv(o); }
  SymNode float_pow(const SymNode& o) override {
    const FloatId base = as_float();
    if (!env_->ask(Comparison::Less, env_->constant(0), base)) unsupported("a power of a symbolic number that is not positive");
    return real(FloatOp::Power, o);
  }
  SymNode pow(const SymNode& o) override { return is_real(o) ? float_pow(o) : pow_by_natural(o); }
  SymNode pow_by_natural(const SymNode& o) override {
    const int64_t n = env_->specialize(expr_of(o), {"exponent"});
    if (n < 0) return float_pow(o);
    Expr result = 1;
    for (int64_t i = 0; i < n; ++i) result = result * current();
    return integer(result);
  }
  SymNode neg() override {
    return kind_ == Kind::Float ? real(env_->apply(FloatOp::Negate, float_)) : integer(-current());
  }
  SymNode sym_min(const SymNode& o) override {
    if (is_real(o)) return real(env_->constant(std::min(number(), number_of(o))));
    return is_endless(expr_of(o)) ? clone() : integer(sym::min(current(), expr_of(o)));
  }
  SymNode sym_max(const SymNode& o) override {
    if (is_real(o)) return real(env_->constant(std::max(number(), number_of(o))));
    return integer(is_endless(expr_of(o)) ? expr_of(o) : sym::max(current(), expr_of(o)));
  }
  SymNode sym_float() override { return real(as_float()); }
  SymNode ceil() override { return kind_ == Kind::Float ? integer(static_cast<int64_t>(std::ceil(number()))) : clone(); }
  SymNode floor() override { return kind_ == Kind::Float ? integer(static_cast<int64_t>(std::floor(number()))) : clone(); }

  SymNode eq(const SymNode& o) override { return compare(o, sym::eq, Comparison::Equal); }
  SymNode ne(const SymNode& o) override { return compare(o, sym::ne, Comparison::NotEqual); }
  SymNode lt(const SymNode& o) override { return compare(o, sym::lt, Comparison::Less); }
  SymNode le(const SymNode& o) override { return compare(o, sym::le, Comparison::LessEqual); }
  SymNode gt(const SymNode& o) override { return compare(o, sym::gt, Comparison::Less, true); }
  SymNode ge(const SymNode& o) override { return compare(o, sym::ge, Comparison::LessEqual, true); }
  SymNode sym_and(const SymNode& o) override { return boolean(sym::logical_and(current(), expr_of(o))); }
  SymNode sym_or(const SymNode& o) override { return boolean(sym::logical_or(current(), expr_of(o))); }
  SymNode sym_not() override { return boolean(sym::logical_not(current())); }
  SymNode sym_ite(const SymNode& a, const SymNode& b) override { return env_->guard(current()) ? a : b; }

  SymNode clone() override {
    if (kind_ == Kind::Float) return real(float_);
    return c10::make_intrusive<ExprNode>(expr_, kind_, env_);
  }
  SymNode wrap_int(int64_t n) override { return integer(n); }
  SymNode wrap_bool(bool b) override { return boolean(b ? 1 : 0); }
  SymNode wrap_float(double x) override { return real(env_->constant(x)); }

  int64_t guard_int(const char* file, int64_t line) override { return env_->specialize(current(), place(file, line)); }
  int64_t int_() override { return env_->specialize(current(), {"int()"}); }
  bool guard_bool(const char* file, int64_t line) override { return env_->guard(current(), place(file, line)); }
  bool bool_() override {
    if (kind_ == Kind::Float) return env_->ask(Comparison::NotEqual, float_, env_->constant(0));
    return env_->guard(current(), {"bool()"});
  }
  double guard_float(const char*, int64_t) override { return number(); }
  bool guard_size_oblivious(const char* file, int64_t line) override { return guard_bool(file, line); }
  bool expect_true(const char* file, int64_t line) override { return guard_bool(file, line); }
  // What these decide can be seen (whether a reshape views or copies): the answer is that of the call's sizes.
  bool guard_or_false(const char* file, int64_t line) override { return guard_bool(file, line); }
  bool guard_or_true(const char* file, int64_t line) override { return guard_bool(file, line); }
  // An answer without a new guard.
  bool statically_known_true(const char*, int64_t) override { return env_->known(current()).value_or(false); }

  SymNode is_contiguous(at::ArrayRef<SymNode> sizes, at::ArrayRef<SymNode> strides) override {
    std::vector<size_t> order(sizes.size());
    std::iota(order.rbegin(), order.rend(), size_t{0});
    return boolean(dense_in(order, sizes, strides) ? 1 : 0);
  }
  SymNode is_channels_last_contiguous_2d(at::ArrayRef<SymNode> sizes, at::ArrayRef<SymNode> strides) override {
    return boolean(sizes.size() == 4 && dense_in({1, 3, 2, 0}, sizes, strides) ? 1 : 0);
  }
  SymNode is_channels_last_contiguous_3d(at::ArrayRef<SymNode> sizes, at::ArrayRef<SymNode> strides) override {
    return boolean(sizes.size() == 5 && dense_in({1, 4, 3, 2, 0}, sizes, strides) ? 1 : 0);
  }
  SymNode is_channels_last_strides_2d(at::ArrayRef<SymNode> sizes, at::ArrayRef<SymNode> strides) override {
    return boolean(sizes.size() == 4 && channels_last_order({1, 3, 2, 0}, sizes, strides) ? 1 : 0);
  }
  SymNode is_channels_last_strides_3d(at::ArrayRef<SymNode> sizes, at::ArrayRef<SymNode> strides) override {
    return boolean(sizes.size() == 5 && channels_last_order({1, 4, 3, 2, 0}, sizes, strides) ? 1 : 0);
  }
  SymNode is_non_overlapping_and_dense(at::ArrayRef<SymNode> sizes, at::ArrayRef<SymNode> strides) override {
    // Innermost first by the strides' example values; the proof that this order is dense is symbolic.
    std::vector<size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return env_->hint(expr_of(strides[a])) < env_->hint(expr_of(strides[b]));
    });
    return boolean(dense_in(order, sizes, strides) ? 1 : 0);
  }

 private:
  Expr current() const { return env_->simplify(expr_); }
  double number() const { return env_->fix(as_float()); }
  bool is_real(const SymNode& o) const { return kind_ == Kind::Float || o->is_float(); }
  FloatId as_float() const { return kind_ == Kind::Float ? float_ : env_->integer(current()); }

  static Expr expr_of(const SymNode& node) {
    if (auto value = node->constant_int()) return *value;
    if (auto value = node->constant_bool()) return *value ? 1 : 0;
    auto* ours = dynamic_cast<ExprNode*>(node.get());
    if (ours == nullptr || ours->kind_ == Kind::Float) unsupported("a symbolic size that is not of this trace");
    return ours->current();
  }
  static bool is_endless(Expr e) { return e.is_constant() && e.constant() > (int64_t{1} << 62); }
  FloatId float_of(const SymNode& node) const {
    if (auto value = node->constant_int()) return env_->integer(*value);
    auto* ours = dynamic_cast<ExprNode*>(node.get());
    if (ours == nullptr) unsupported("a symbolic number that is not of this trace");
    return ours->as_float();
  }
  double number_of(const SymNode& node) const { return env_->fix(float_of(node)); }
  static sym::Reason place(const char* file, int64_t line) {
    return {std::string(file == nullptr ? "" : file) + ":" + std::to_string(line)};
  }

  SymNode integer(Expr e) const { return c10::make_intrusive<ExprNode>(env_->within_int64(e), Kind::Int, env_); }
  SymNode boolean(Expr e) const { return c10::make_intrusive<ExprNode>(e, Kind::Bool, env_); }
  SymNode real(FloatId id) const { return c10::make_intrusive<ExprNode>(id, env_); }
  SymNode real(FloatOp op, const SymNode& o) const { return real(env_->apply(op, as_float(), float_of(o))); }

  // `swapped`: `how` compares the other operand with this one.
  SymNode compare(const SymNode& o, Expr (*predicate)(Expr, Expr), Comparison how, bool swapped = false) {
    if (is_real(o)) {
      const FloatId a = as_float(), b = float_of(o);
      return boolean(env_->ask(how, swapped ? b : a, swapped ? a : b) ? 1 : 0);
    }
    const Expr a = current(), b = expr_of(o);
    // "To the end" of a slice is the largest integer: no size reaches it, and arithmetic with it overflows.
    if (is_endless(a) || is_endless(b)) {
      const double x = is_endless(a) ? 1 : 0, y = is_endless(b) ? 1 : 0;
      return boolean(trace::compare(how, swapped ? y : x, swapped ? x : y) ? 1 : 0);
    }
    return boolean(predicate(a, b));
  }

  // Whether the dimensions, innermost first, follow each other without gaps. Where structure can't tell, a guard does.
  bool dense_in(const std::vector<size_t>& order, at::ArrayRef<SymNode> sizes, at::ArrayRef<SymNode> strides) const {
    Expr expected = 1;
    for (size_t d : order) {
      const Expr size = expr_of(sizes[d]);
      if (size == Expr(1)) continue;
      if (size == Expr(0)) return true;
      if (!env_->guard(sym::eq(expr_of(strides[d]), expected), {"memory layout"})) return false;
      expected = expected * size;
    }
    return true;
  }

  // c10's test for channels-last order: strides do not fall from the innermost dimension outwards.
  bool channels_last_order(const std::vector<size_t>& order, at::ArrayRef<SymNode> sizes,
                           at::ArrayRef<SymNode> strides) const {
    if (expr_of(strides[1]) == Expr(0)) return false;
    Expr least = 0;
    for (size_t d : order) {
      const Expr size = expr_of(sizes[d]), stride = expr_of(strides[d]);
      if (size == Expr(0)) return false;
      if (env_->guard(sym::lt(stride, least), {"memory layout"})) return false;
      if (d == 0 && least == expr_of(strides[1])) return false;
      least = size == Expr(1) ? stride : stride * size;
    }
    return true;
  }

  Expr expr_ = 0;
  Kind kind_;
  FloatId float_ = -1;
  EnvPtr env_;
};

class UnknownNode final : public c10::SymNodeImpl {
 public:
  explicit UnknownNode(bool is_bool) : is_bool_(is_bool) {}

  bool is_int() override { return !is_bool_; }
  bool is_bool() override { return is_bool_; }
  bool is_float() override { return false; }
  bool is_nested_int() const override { return false; }
  bool has_hint() override { return false; }
  bool is_constant() override { return false; }
  bool is_symbolic() override { return true; }
  std::string str() override { return "?"; }
  std::string _graph_repr() override { return "?"; }
  std::optional<int64_t> constant_int() override { return std::nullopt; }
  std::optional<int64_t> maybe_as_int() override { return std::nullopt; }
  std::optional<bool> constant_bool() override { return std::nullopt; }

  SymNode clone() override { return make(is_bool_); }
  SymNode wrap_int(int64_t) override { return make(false); }
  SymNode wrap_bool(bool) override { return make(true); }
  SymNode add(const SymNode&) override { return make(false); }
  SymNode sub(const SymNode&) override { return make(false); }
  SymNode mul(const SymNode&) override { return make(false); }
  SymNode sym_min(const SymNode&) override { return make(false); }
  SymNode sym_max(const SymNode&) override { return make(false); }
  SymNode neg() override { return make(false); }
  SymNode eq(const SymNode&) override { return make(true); }
  SymNode ne(const SymNode&) override { return make(true); }
  SymNode lt(const SymNode&) override { return make(true); }
  SymNode le(const SymNode&) override { return make(true); }
  SymNode gt(const SymNode&) override { return make(true); }
  SymNode ge(const SymNode&) override { return make(true); }
  SymNode sym_and(const SymNode&) override { return make(true); }
  SymNode sym_or(const SymNode&) override { return make(true); }
  SymNode sym_not() override { return make(true); }

  int64_t guard_int(const char*, int64_t) override { refuse(); }
  int64_t int_() override { refuse(); }
  bool guard_bool(const char*, int64_t) override { refuse(); }
  bool bool_() override { refuse(); }
  bool guard_size_oblivious(const char*, int64_t) override { refuse(); }
  bool expect_true(const char*, int64_t) override { refuse(); }
  bool guard_or_false(const char*, int64_t) override { return false; }
  bool guard_or_true(const char*, int64_t) override { return true; }
  bool statically_known_true(const char*, int64_t) override { return false; }

  SymNode is_contiguous(at::ArrayRef<SymNode>, at::ArrayRef<SymNode>) override { return make(true); }
  SymNode is_channels_last_contiguous_2d(at::ArrayRef<SymNode>, at::ArrayRef<SymNode>) override { return make(true); }
  SymNode is_channels_last_contiguous_3d(at::ArrayRef<SymNode>, at::ArrayRef<SymNode>) override { return make(true); }
  SymNode is_channels_last_strides_2d(at::ArrayRef<SymNode>, at::ArrayRef<SymNode>) override { return make(true); }
  SymNode is_channels_last_strides_3d(at::ArrayRef<SymNode>, at::ArrayRef<SymNode>) override { return make(true); }
  SymNode is_non_overlapping_and_dense(at::ArrayRef<SymNode>, at::ArrayRef<SymNode>) override { return make(true); }

 private:
  static SymNode make(bool is_bool) { return c10::make_intrusive<UnknownNode>(is_bool); }
  [[noreturn]] static void refuse() { unsupported("the program asks for a size that depends on data"); }

  bool is_bool_;
};

}  // namespace

c10::SymInt unknown_size() { return c10::SymInt(static_cast<SymNode>(c10::make_intrusive<UnknownNode>(false))); }

c10::SymInt to_symint(Expr e, const EnvPtr& env) {
  e = env->simplify(e);
  if (e.is_constant()) return e.constant();
  return c10::SymInt(static_cast<SymNode>(c10::make_intrusive<ExprNode>(e, ExprNode::Kind::Int, env)));
}

namespace {

// torch wraps nodes once more where they come from Python. The node lives as long as what wraps it.
const ExprNode* ours(c10::SymNodeImpl* node) {
  if (auto* python = dynamic_cast<torch::impl::PythonSymNodeImpl*>(node)) {
    const py::gil_scoped_acquire gil;
    const py::handle inner = python->getPyObj();
    if (!py::isinstance<c10::SymNodeImpl>(inner)) return nullptr;
    node = inner.cast<SymNode>().get();
  }
  return dynamic_cast<const ExprNode*>(node);
}

}  // namespace

c10::SymFloat to_symfloat(FloatId id, const EnvPtr& env) {
  if (env->is_constant(id)) return c10::SymFloat(env->hint_of(id));
  return c10::SymFloat(static_cast<SymNode>(c10::make_intrusive<ExprNode>(id, env)));
}

PyObject* make_symfloat(FloatId id, const EnvPtr& env) {
  if (env->is_constant(id)) return PyFloat_FromDouble(env->hint_of(id));
  const py::object node = py::cast(static_cast<SymNode>(c10::make_intrusive<ExprNode>(id, env)));
  return torch::get_symfloat_class()(node).release().ptr();
}

std::optional<FloatId> to_float_id(const c10::SymFloat& value) {
  if (!value.is_symbolic()) return std::nullopt;
  const ExprNode* node = ours(value.toSymNodeImplUnowned());
  if (node == nullptr || !node->is_real() || node->env().is_constant(node->float_id())) return std::nullopt;
  return node->float_id();
}

Expr to_expr(const c10::SymInt& value) {
  if (auto constant = value.maybe_as_int()) return *constant;
  auto* node = dynamic_cast<ExprNode*>(value.toSymNodeImplUnowned());
  if (node == nullptr) unsupported("a symbolic size that is not of this trace");
  return node->expr();
}

}  // namespace braze::trace
