#include "braze/trace/number_operands.h"

#include <ATen/OpMathType.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/fill.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sub.h>

#include <unordered_map>

#include "braze/trace/abort.h"

namespace braze::trace {
namespace {

class NumberInTensor final : public c10::SymNodeImpl {
 public:
  explicit NumberInTensor(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  const at::Tensor& tensor() const { return tensor_; }

  bool is_int() override { return false; }
  bool is_bool() override { return false; }
  bool is_float() override { return true; }
  bool is_symbolic() override { return true; }
  bool is_constant() override { return false; }
  bool has_hint() override { return false; }
  std::optional<int64_t> maybe_as_int() override { return std::nullopt; }
  std::optional<int64_t> constant_int() override { return std::nullopt; }
  std::optional<bool> constant_bool() override { return std::nullopt; }
  std::string str() override { return "a number in a tensor"; }
  double guard_float(const char*, int64_t) override {
    unsupported("the program needs the value of a tensor (item(), bool(), int(), float())",
                "compute with tensors, for example torch.where instead of if");
  }

 private:
  at::Tensor tensor_;
};

const NumberInTensor* node_of(const c10::IValue& value) {
  if (!value.isSymFloat()) return nullptr;
  return dynamic_cast<const NumberInTensor*>(value.toSymFloat().toSymNodeImpl().get());
}

// Arguments as tensors of the type that kernels compute in; numbers, known or not, have no dimensions.
class Operands {
 public:
  explicit Operands(at::ArrayRef<c10::IValue> arguments)
      : arguments_(arguments), type_(arguments[0].toTensor().scalar_type()) {
    if (!c10::isFloatingType(type_)) unsupported("a number in a tensor as operand of what is not floating-point");
  }
  at::Tensor tensor(size_t i) const { return arguments_[i].toTensor().to(computed()); }
  at::Tensor number(size_t i) const {
    if (const NumberInTensor* node = node_of(arguments_[i])) return node->tensor().reshape({}).to(computed());
    unsupported("a number in a tensor beside one that is known");
  }
  at::Tensor stored(const at::Tensor& result) const { return result.to(type_); }

 private:
  c10::ScalarType computed() const { return at::toOpMathType(type_); }
  at::ArrayRef<c10::IValue> arguments_;
  c10::ScalarType type_;
};

using Form = at::Tensor (*)(const Operands&);

const std::unordered_map<std::string, Form>& forms() {
  static const std::unordered_map<std::string, Form> table = {
      {"aten::add.Tensor", [](const Operands& x) { return at::add(x.tensor(0), at::mul(x.tensor(1), x.number(2))); }},
      {"aten::sub.Tensor", [](const Operands& x) { return at::sub(x.tensor(0), at::mul(x.tensor(1), x.number(2))); }},
      {"aten::add.Scalar", [](const Operands& x) { return at::add(x.tensor(0), x.number(1)); }},
      {"aten::sub.Scalar", [](const Operands& x) { return at::sub(x.tensor(0), x.number(1)); }},
      {"aten::mul.Scalar", [](const Operands& x) { return at::mul(x.tensor(0), x.number(1)); }},
      {"aten::div.Scalar", [](const Operands& x) { return at::div(x.tensor(0), x.number(1)); }},
      {"aten::pow.Tensor_Scalar", [](const Operands& x) { return at::pow(x.tensor(0), x.number(1)); }},
      {"aten::lerp.Scalar", [](const Operands& x) { return at::lerp(x.tensor(0), x.tensor(1), x.number(2)); }},
      {"aten::fill.Scalar", [](const Operands& x) { return at::fill(x.tensor(0), x.number(1)); }},
      {"aten::addcmul", [](const Operands& x) {
         return at::add(x.tensor(0), at::mul(at::mul(x.tensor(1), x.number(3)), x.tensor(2)));
       }},
      {"aten::addcdiv", [](const Operands& x) {
         return at::add(x.tensor(0), at::div(at::mul(x.tensor(1), x.number(3)), x.tensor(2)));
       }},
  };
  return table;
}

}  // namespace

c10::Scalar number_in(const at::Tensor& traced) {
  return c10::SymFloat(c10::SymNode(c10::make_intrusive<NumberInTensor>(traced)));
}

bool has_form_with_tensors(const std::string& name) { return forms().contains(name); }

bool has_number_in_tensor(at::ArrayRef<c10::IValue> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::IValue& v) { return node_of(v) != nullptr; });
}

void call_with_tensors(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string name = c10::toString(op.operator_name());
  const auto form = forms().find(name);
  if (form == forms().end()) unsupported(name + " with a number whose value is in a tensor");
  const size_t n = op.schema().arguments().size();
  const std::vector<c10::IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(n), stack->end());
  const Operands operands(arguments);
  const at::AutoDispatchSkipFunctionalize below;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  at::Tensor result = operands.stored(form->second(operands));
  torch::jit::drop(*stack, n);
  torch::jit::push(*stack, std::move(result));
}

}  // namespace braze::trace
