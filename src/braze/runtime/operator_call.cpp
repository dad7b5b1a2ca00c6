#include "braze/runtime/operator_call.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/core/stack.h>
#include <c10/core/GradMode.h>

#include "braze/trace/torch_types.h"
#include "braze/support/check.h"

namespace braze::runtime {
namespace {

using graph::Argument;
using graph::ArgumentList;
using graph::Value;

c10::OperatorHandle find(const graph::Op& op, OperatorCall::Form form) {
  // "aten.add.Tensor" and the schema "aten::add.Tensor(...)": the name before the parenthesis has both parts.
  const std::string full = op.schema.substr(0, op.schema.find('('));
  const size_t dot = full.find('.', full.find("::"));
  const std::string name = full.substr(0, dot);
  std::string overload = dot == std::string::npos ? "" : full.substr(dot + 1);
  if (form == OperatorCall::Form::Out) overload = overload.empty() ? "out" : overload + "_out";
  auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
  CHECK(handle.has_value(), "torch has no operator " << full);
  return *handle;
}

const c10::Type& without_optional(const c10::Type& type) {
  if (auto optional = type.cast<c10::OptionalType>()) return *optional->getElementType();
  return type;
}

bool holds_tensor(const Argument& argument) {
  if (argument.is<Value*>()) return true;
  if (!argument.is<ArgumentList>()) return false;
  for (const Argument& item : argument.as<ArgumentList>())
    if (item.is<Value*>()) return true;
  return false;
}

bool is_symbolic(const Argument& argument) {
  if (argument.is<graph::Expr>()) return !argument.as<graph::Expr>().is_constant();
  if (!argument.is<ArgumentList>()) return false;
  for (const Argument& item : argument.as<ArgumentList>())
    if (is_symbolic(item)) return true;
  return false;
}

// A number where the schema says Scalar: its own kind; where it says float: a double.
c10::IValue number(const Argument& argument, c10::TypeKind kind) {
  if (argument.is<graph::Expr>()) {
    const int64_t value = argument.as<graph::Expr>().constant();
    if (kind == c10::TypeKind::FloatType) return static_cast<double>(value);
    if (kind == c10::TypeKind::BoolType) return value != 0;
    return value;
  }
  if (argument.is<double>()) return argument.as<double>();
  if (argument.is<bool>()) {
    if (kind == c10::TypeKind::IntType || kind == c10::TypeKind::SymIntType) return int64_t{argument.as<bool>()};
    return argument.as<bool>();
  }
  return c10::complex<double>(argument.as<std::complex<double>>());
}

c10::IValue constant_list(const ArgumentList& list, const c10::Type& element) {
  switch (element.kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: {
      c10::List<int64_t> out;
      for (const Argument& item : list) {
        if (item.is<DType>()) out.push_back(static_cast<int64_t>(trace::to_torch(item.as<DType>())));
        else out.push_back(number(item, c10::TypeKind::IntType).toInt());
      }
      return out;
    }
    case c10::TypeKind::FloatType: {
      c10::List<double> out;
      for (const Argument& item : list) out.push_back(number(item, c10::TypeKind::FloatType).toDouble());
      return out;
    }
    case c10::TypeKind::BoolType: {
      c10::List<bool> out;
      for (const Argument& item : list) out.push_back(number(item, c10::TypeKind::BoolType).toBool());
      return out;
    }
    case c10::TypeKind::StringType: {
      c10::List<std::string> out;
      for (const Argument& item : list) out.push_back(item.as<std::string>());
      return out;
    }
    case c10::TypeKind::NumberType: {
      c10::List<at::Scalar> out;
      for (const Argument& item : list) out.push_back(number(item, c10::TypeKind::NumberType).toScalar());
      return out;
    }
    default: break;
  }
  throw InternalError("argument list of type " + element.str());
}

// A Python number in a tensor's place: weak in promotion.
at::Tensor wrapped_number(const at::Scalar& value) {
  at::Tensor wrapped = c10::scalar_to_tensor(value);
  wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
  return wrapped;
}

c10::IValue constant(const Argument& argument, const c10::Type& type, const ObjectOf& object_of) {
  if (argument.is_none()) return {};
  if (argument.is<std::string>()) return argument.as<std::string>();
  if (argument.is<DType>()) return static_cast<int64_t>(trace::to_torch(argument.as<DType>()));
  if (argument.is<Device>()) return trace::to_torch(argument.as<Device>());
  if (argument.is<graph::Layout>()) return static_cast<int64_t>(argument.as<graph::Layout>().value);
  if (argument.is<graph::MemoryFormat>()) return static_cast<int64_t>(argument.as<graph::MemoryFormat>().value);
  if (argument.is<graph::Opaque>()) return object_of(argument.as<graph::Opaque>().slot);
  if (argument.is<ArgumentList>()) {
    const c10::Type& bare = without_optional(type);
    if (auto list = bare.cast<c10::ListType>()) return constant_list(argument.as<ArgumentList>(), *list->getElementType());
    throw InternalError("list argument for " + type.str());
  }
  // int[1]? and the like take a single number for a list.
  const c10::Type& bare = without_optional(type);
  if (auto list = bare.cast<c10::ListType>()) return constant_list({argument}, *list->getElementType());
  const c10::IValue value = number(argument, bare.kind());
  if (bare.kind() != c10::TypeKind::TensorType) return value;
  return wrapped_number(value.toScalar());
}

void collect(const c10::IValue& value, std::vector<at::Tensor>& results) {
  if (value.isTensor()) {
    results.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& t : value.toTensorVector()) results.push_back(t);
  } else if (value.isNone()) {
    results.emplace_back();
  }
  // Numbers that an operator returns beside its tensors (seeds, counts) are no values of the graph.
}

}  // namespace

OperatorCall::OperatorCall(const graph::Node& node, const SizeSlot& size_slot, const ObjectOf& object_of, Form form)
    : handle_(find(*node.op, form)) {
  keeps_workspace_ = node.op->name == "aten.mkldnn_rnn_layer" && node.results.back()->type.defined;
  const auto& arguments = handle_.schema().arguments();
  CHECK(node.arguments.size() + (form == Form::Out ? 1 : 0) == arguments.size(), node.op->name);
  stack_.reserve(arguments.size());
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const Argument& argument = node.arguments[i];
    const c10::Type& type = *arguments[i].type();
    stack_.push_back(make(argument, type, size_slot, object_of));
  }
}

c10::IValue OperatorCall::make(const Argument& argument, const c10::Type& type, const SizeSlot& size_slot,
                               const ObjectOf& object_of) {
  const auto position = static_cast<int32_t>(stack_.size());
  const c10::Type& bare = without_optional(type);
  if (holds_tensor(argument) || (argument.is<ArgumentList>() && bare.cast<c10::ListType>() &&
                                 without_optional(*bare.cast<c10::ListType>()->getElementType()).kind() ==
                                     c10::TypeKind::TensorType)) {
    Fill fill{Fill::Kind::Tensor, position, {}, {}};
    const auto take = [&](const Argument& item) {
      const bool defined = item.is<Value*>() && item.as<Value*>() != nullptr;
      fill.items.push_back(defined ? next_tensor_++ : -1);
    };
    if (argument.is<Value*>()) {
      if (argument.as<Value*>() == nullptr) return type.kind() == c10::TypeKind::OptionalType ? c10::IValue() : c10::IValue(at::Tensor());
      take(argument);
    } else {
      const c10::Type& element = *bare.cast<c10::ListType>()->getElementType();
      fill.kind = element.kind() == c10::TypeKind::OptionalType ? Fill::Kind::OptionalTensorList : Fill::Kind::TensorList;
      for (const Argument& item : argument.as<ArgumentList>()) take(item);
    }
    fills_.push_back(std::move(fill));
    return {};
  }
  if (is_symbolic(argument)) {
    Fill fill{Fill::Kind::Size, position, {}, {}};
    if (argument.is<graph::Expr>()) {
      if (bare.kind() == c10::TypeKind::TensorType) fill.kind = Fill::Kind::Number;
      fill.items.push_back(size_slot(argument.as<graph::Expr>()));
    } else {
      fill.kind = Fill::Kind::SizeList;
      for (const Argument& item : argument.as<ArgumentList>()) {
        const graph::Expr e = item.as<graph::Expr>();
        if (e.is_constant()) {
          fill.items.push_back(~static_cast<int32_t>(fill.constants.size()));
          fill.constants.push_back(e.constant());
        } else {
          fill.items.push_back(size_slot(e));
        }
      }
    }
    fills_.push_back(std::move(fill));
    return {};
  }
  return constant(argument, type, object_of);
}

std::vector<c10::IValue> OperatorCall::filled(std::span<const at::Tensor> tensors, const int64_t* sizes) const {
  torch::jit::Stack stack = stack_;
  for (const Fill& fill : fills_) {
    c10::IValue& slot = stack[static_cast<size_t>(fill.argument)];
    const auto tensor = [&](int32_t i) { return i < 0 ? at::Tensor() : tensors[static_cast<size_t>(i)]; };
    switch (fill.kind) {
      case Fill::Kind::Tensor: slot = tensor(fill.items[0]); break;
      case Fill::Kind::TensorList: {
        c10::List<at::Tensor> list;
        list.reserve(fill.items.size());
        for (int32_t i : fill.items) list.push_back(tensor(i));
        slot = std::move(list);
        break;
      }
      case Fill::Kind::OptionalTensorList: {
        c10::List<std::optional<at::Tensor>> list;
        list.reserve(fill.items.size());
        for (int32_t i : fill.items) list.push_back(i < 0 ? std::nullopt : std::optional(tensor(i)));
        slot = std::move(list);
        break;
      }
      case Fill::Kind::Size: slot = sizes[fill.items[0]]; break;
      case Fill::Kind::Number: slot = wrapped_number(sizes[fill.items[0]]); break;
      case Fill::Kind::SizeList: {
        c10::List<int64_t> list;
        list.reserve(fill.items.size());
        for (int32_t i : fill.items) list.push_back(i < 0 ? fill.constants[static_cast<size_t>(~i)] : sizes[i]);
        slot = std::move(list);
        break;
      }
    }
  }
  return stack;
}

void OperatorCall::run(std::span<const at::Tensor> tensors, const int64_t* sizes,
                       std::vector<at::Tensor>& results) const {
  torch::jit::Stack stack = filled(tensors, sizes);
  {
    const c10::AutoGradMode mode(keeps_workspace_ || c10::GradMode::is_enabled());
    handle_.callBoxed(stack);
  }
  for (const c10::IValue& value : stack) collect(value, results);
}

void OperatorCall::run_into(std::span<const at::Tensor> tensors, const int64_t* sizes, at::Tensor& out) const {
  torch::jit::Stack stack = filled(tensors, sizes);
  stack.emplace_back(out);
  handle_.callBoxed(stack);
}

}  // namespace braze::runtime
