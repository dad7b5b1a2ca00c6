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

// Arguments as tensors of the type that kernels compute in; numbers, known or not, have no dimensions.
class Operands {
 public:
  Operands(at::ArrayRef<c10::IValue> arguments, const NumberTensor& tensor_of)
      : arguments_(arguments), tensor_of_(tensor_of), type_(arguments[0].toTensor().scalar_type()) {
    if (!c10::isFloatingType(type_)) unsupported("a number in a tensor as operand of what is not floating-point");
  }
  at::Tensor tensor(size_t i) const { return arguments_[i].toTensor().to(computed()); }
  at::Tensor number(size_t i) const {
    const at::Tensor number = arguments_[i].isSymFloat() ? tensor_of_(arguments_[i].toSymFloat()) : at::Tensor();
    if (!number.defined()) unsupported("a number in a tensor beside one that is known");
    return number.to(computed());
  }
  at::Tensor stored(const at::Tensor& result) const { return result.to(type_); }

 private:
  c10::ScalarType computed() const { return at::toOpMathType(type_); }
  at::ArrayRef<c10::IValue> arguments_;
  const NumberTensor& tensor_of_;
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

bool has_form_with_tensors(const std::string& name) { return forms().contains(name); }

void call_with_tensors(const c10::OperatorHandle& op, torch::jit::Stack* stack, const NumberTensor& tensor_of) {
  const std::string name = c10::toString(op.operator_name());
  const auto form = forms().find(name);
  if (form == forms().end()) unsupported(name + " with a number whose value is in a tensor");
  const size_t n = op.schema().arguments().size();
  const std::vector<c10::IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(n), stack->end());
  const Operands operands(arguments, tensor_of);
  const at::AutoDispatchSkipFunctionalize below;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  at::Tensor result = operands.stored(form->second(operands));
  torch::jit::drop(*stack, n);
  torch::jit::push(*stack, std::move(result));
}

}  // namespace braze::trace
