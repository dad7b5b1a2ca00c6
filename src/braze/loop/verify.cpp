#include <algorithm>
#include <string>
#include <unordered_set>

#include "braze/loop/arithmetic.h"
#include "braze/loop/loop_ir.h"
#include "braze/loop/text.h"

namespace braze::loop {
namespace {

class Verifier {
 public:
  explicit Verifier(const LoopProgram& program) : program_(program) {}

  std::string operator()() {
    std::unordered_set<std::string> names;
    for (size_t k = 0; k < program_.buffers.size(); ++k) {
      const Buffer& b = program_.buffers[k];
      at_ = b.name;
      expect(b.id == static_cast<int32_t>(k), "its id is not its place");
      expect(names.insert(b.name).second, "its name stands twice");
      check_buffer(b);
    }
    for (size_t k = 0; k < program_.calls.size(); ++k) check_call(k);
    at_ = "outputs";
    for (const OutputRef& output : program_.outputs) check_view(output.view, true);
    for (const auto& mutation : program_.mutations) {
      check_view(mutation.value, false);
      expect(is_buffer(mutation.input_buffer) && buffer(mutation.input_buffer).kind == BufferKind::Input,
             "a mutation of no input");
    }
    return problems_;
  }

 private:
  bool expect(bool condition, const std::string& what) {
    if (!condition) problems_ += at_ + ": " + what + "\n";
    return condition;
  }
  bool is_buffer(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < program_.buffers.size(); }
  const Buffer& buffer(int32_t id) const { return program_.buffers[static_cast<size_t>(id)]; }

  void check_view(const View& view, bool may_be_undefined) {
    if (view.buffer == -1 && may_be_undefined) return;
    if (!expect(is_buffer(view.buffer), "a view of no buffer")) return;
    expect(view.strides.empty() || view.strides.size() == view.sizes.size(),
           "a view's strides and sizes differ in number");
  }

  void check_axes(const std::vector<Axis>& axes, std::vector<Expr>& scope) {
    for (const Axis& axis : axes) {
      expect(axis.symbol.is_symbol(), "an axis without a symbol");
      expect(std::ranges::find(scope, axis.symbol) == scope.end(), "two axes share " + to_string(axis.symbol));
      scope.push_back(axis.symbol);
    }
  }

  void check_buffer(const Buffer& b) {
    expect(b.strides.size() == b.sizes.size() || b.kind == BufferKind::Input || b.kind == BufferKind::Extern,
           "strides and sizes differ in number");
    if (b.kind == BufferKind::Input) return void(expect(b.input >= 0, "an input without a number"));
    if (b.kind == BufferKind::Extern) {
      expect(b.call >= 0 && static_cast<size_t>(b.call) < program_.calls.size(), "a result of no call");
      return;
    }
    expect(is_kernel_dtype(b.dtype), "no kernel computes " + std::string(text_of(b.dtype)));
    expect(b.axes.size() == b.sizes.size(), "as many axes as dimensions are needed");
    for (size_t k = 0; k < std::min(b.axes.size(), b.sizes.size()); ++k)
      expect(b.axes[k].extent == b.sizes[k], "axis " + std::to_string(k) + " has another extent than the dimension");
    std::vector<Expr> scope = program_.env->symbols();
    check_axes(b.axes, scope);
    switch (b.kind) {
      case BufferKind::Pointwise: check_body(b, b.body, scope, b.dtype); break;
      case BufferKind::Reduction:
        expect(!b.reduce_axes.empty(), "a reduction over nothing");
        check_axes(b.reduce_axes, scope);
        check_body(b, b.body, scope, b.accumulate);
        break;
      case BufferKind::Scan:
        expect(b.scan_axis >= 0 && static_cast<size_t>(b.scan_axis) < b.axes.size(), "a scan along no axis");
        check_body(b, b.body, scope, b.accumulate);
        break;
      case BufferKind::Cat: check_pieces(b, scope); break;
      case BufferKind::Scatter: check_scatter(b, scope); break;
      case BufferKind::Input: case BufferKind::Extern: break;
    }
  }

  void check_pieces(const Buffer& b, const std::vector<Expr>& scope) {
    if (!expect(b.cat_axis >= 0 && static_cast<size_t>(b.cat_axis) < b.axes.size(), "a cat along no axis")) return;
    Expr end = 0;
    for (const Piece& piece : b.pieces) {
      expect(piece.begin == end, "pieces leave a gap at " + to_string(end));
      end = piece.begin + piece.extent;
      check_body(b, piece.body, scope, b.dtype);
    }
    const Expr extent = b.axes[static_cast<size_t>(b.cat_axis)].extent;
    expect(end == extent || program_.env->known(sym::eq(end, extent)).value_or(false), "pieces do not fill the axis");
  }

  void check_scatter(const Buffer& b, std::vector<Expr> scope) {
    check_body(b, b.body, scope, b.dtype);
    std::vector<Expr> own = program_.env->symbols();
    check_axes(b.update_axes, own);
    if (!expect(b.update != nullptr, "no update")) return;
    check_body(b, b.update, own, b.dtype);
    expect(b.update_at.size() == b.sizes.size(), "a place needs one index a dimension");
    for (const Binding& binding : b.update_bindings) {
      check_body(b, binding.value, own, DType::I64);
      own.push_back(binding.symbol);
    }
    for (const Expr& e : b.update_at) check_symbols(e, own);
  }

  void check_symbols(Expr e, const std::vector<Expr>& scope) {
    std::vector<Expr> used;
    collect_symbols(e, used);
    for (const Expr& symbol : used)
      expect(std::ranges::find(scope, symbol) != scope.end(), "unknown symbol " + to_string(symbol));
  }

  void check_body(const Buffer& b, const Scalar* body, const std::vector<Expr>& scope, DType dtype) {
    if (!expect(body != nullptr, "no body")) return;
    expect(body->dtype == dtype, "the body has dtype " + std::string(text_of(body->dtype)) + ", not " +
                                     std::string(text_of(dtype)));
    visit(body, [&](const Scalar& s) { check_scalar(b, s, scope); });
  }

  void check_scalar(const Buffer& b, const Scalar& s, const std::vector<Expr>& scope) {
    if (s.op == ScalarOp::Index) return check_symbols(s.indices[0], scope);
    if (s.op == ScalarOp::Load) return check_load(b, s, scope);
    const std::string name(text_of(s.op));
    if (!expect(static_cast<int>(s.operands.size()) == arity_of(s.op), name + " has a wrong arity")) return;
    const auto same = [&](size_t from, DType dtype) {
      for (size_t k = from; k < s.operands.size(); ++k)
        expect(s.operands[k]->dtype == dtype, name + ": operand " + std::to_string(k) +
                                                  " has dtype " + std::string(text_of(s.operands[k]->dtype)));
    };
    switch (s.op) {
      case ScalarOp::Constant: case ScalarOp::Cast: case ScalarOp::Bitcast: break;
      case ScalarOp::Reduced: expect(false, "a reduced value outside of a kernel"); break;
      case ScalarOp::IsNan: case ScalarOp::IsInf: case ScalarOp::SignBit: case ScalarOp::LogicalNot:
      case ScalarOp::Eq: case ScalarOp::Ne: case ScalarOp::Lt: case ScalarOp::Le: case ScalarOp::Gt: case ScalarOp::Ge:
        expect(s.dtype == DType::Bool, name + " gives bool");
        same(0, s.operands[0]->dtype);
        break;
      case ScalarOp::Where:
        expect(s.operands[0]->dtype == DType::Bool, "where needs a bool");
        same(1, s.dtype);
        break;
      default: same(0, s.dtype);
    }
  }

  void check_load(const Buffer& b, const Scalar& s, std::vector<Expr> scope) {
    if (!expect(is_buffer(s.buffer) && s.buffer < b.id, "a load from a later buffer or from none")) return;
    const Buffer& source = buffer(s.buffer);
    expect(s.dtype == source.dtype, "a load of " + source.name + " in another dtype");
    expect(s.indices.size() == source.sizes.size(), "a load of " + source.name + " with a wrong number of indices");
    expect(is_kernel_dtype(source.dtype), "no kernel loads " + std::string(text_of(source.dtype)));
    for (const Binding& binding : s.bindings) {
      expect(binding.value->dtype == DType::I64, "an index that is not i64");
      scope.push_back(binding.symbol);
    }
    for (const Expr& e : s.indices) check_symbols(e, scope);
    if (s.operands.empty()) return;
    expect(s.operands[0]->dtype == DType::Bool, "a mask that is no bool");
    expect(s.operands[1]->dtype == s.dtype, "a masked load's other value has another dtype");
  }

  void check_call(size_t number) {
    const ExternCall& call = program_.calls[number];
    at_ = "call " + std::to_string(number);
    if (!expect(call.node != nullptr, "no node")) return;
    expect(call.results.size() == call.node->results.size(), "results differ in number from the node's");
    int32_t first = static_cast<int32_t>(program_.buffers.size());
    for (const int32_t id : call.results) {
      if (id < 0) continue;
      expect(is_buffer(id) && buffer(id).call == static_cast<int32_t>(number), "a result that is no buffer of it");
      first = std::min(first, id);
    }
    for (const View& view : call.operands) {
      check_view(view, false);
      expect(view.buffer < first, "an operand that is made later");
    }
    for (const int32_t before : call.order_after)
      expect(before >= 0 && before < static_cast<int32_t>(number), "ordered after a later call");
  }

  const LoopProgram& program_;
  std::string at_, problems_;
};

}  // namespace

std::string verify(const LoopProgram& program) { return Verifier(program)(); }

}  // namespace braze::loop
