#include "braze/trace/operators.h"

#include <ATen/core/enum_tag.h>

#include <mutex>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "braze/graph/type_rules.h"

namespace braze::trace {
namespace {

using c10::DispatchKey;
using c10::TypeKind;

ArgumentKind list_kind(const c10::Type& element) {
  switch (element.kind()) {
    case TypeKind::TensorType: return ArgumentKind::TensorList;
    case TypeKind::OptionalType: {
      const auto& inner = *element.castRaw<c10::OptionalType>()->getElementType();
      return inner.kind() == TypeKind::TensorType ? ArgumentKind::OptionalTensorList : ArgumentKind::Other;
    }
    case TypeKind::IntType:
    case TypeKind::SymIntType: return ArgumentKind::IntList;
    case TypeKind::FloatType: return ArgumentKind::FloatList;
    case TypeKind::BoolType: return ArgumentKind::BoolList;
    case TypeKind::NumberType: return ArgumentKind::ScalarList;
    case TypeKind::StringType: return ArgumentKind::StringList;
    default: return ArgumentKind::Other;
  }
}

ArgumentKind argument_kind(const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::OptionalType: return argument_kind(*type.castRaw<c10::OptionalType>()->getElementType());
    case TypeKind::ListType: return list_kind(*type.castRaw<c10::ListType>()->getElementType());
    case TypeKind::TensorType: return ArgumentKind::Tensor;
    case TypeKind::IntType:
    case TypeKind::SymIntType: return ArgumentKind::Int;
    case TypeKind::FloatType:
    case TypeKind::SymFloatType: return ArgumentKind::Float;
    case TypeKind::BoolType:
    case TypeKind::SymBoolType: return ArgumentKind::Bool;
    case TypeKind::NumberType: return ArgumentKind::Scalar;
    case TypeKind::StringType: return ArgumentKind::String;
    case TypeKind::ScalarTypeType: return ArgumentKind::DType;
    case TypeKind::LayoutType: return ArgumentKind::Layout;
    case TypeKind::MemoryFormatType: return ArgumentKind::MemoryFormat;
    case TypeKind::DeviceObjType: return ArgumentKind::Device;
    case TypeKind::GeneratorType: return ArgumentKind::Generator;
    default: return ArgumentKind::Other;
  }
}

// Operators that read their operands' contents on the host but carry no tag that says so.
const std::unordered_set<std::string_view>& untagged_readers() {
  static const std::unordered_set<std::string_view> names = {
      "aten::_pack_padded_sequence", "aten::equal", "aten::allclose", "aten::is_nonzero",
      "aten::_nested_tensor_from_mask", "aten::_padded_dense_to_jagged_forward"};
  return names;
}

bool reads_tensor_scalars(const c10::FunctionSchema& schema) {
  const std::string& name = schema.name();
  return schema.overload_name() == "Tensor" &&
         (name == "aten::_foreach_addcdiv" || name == "aten::_foreach_addcmul");
}

bool has_tensor_indices(const c10::FunctionSchema& schema) {
  return schema.name() == "aten::tensor_split" && schema.overload_name() == "tensor_indices_or_sections";
}

Treatment treatment_of(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string& name = schema.name();
  if (name == "aten::lift_fresh" || name == "aten::lift" || name == "aten::lift_fresh_copy") return Treatment::Lift;
  if (name == "aten::_local_scalar_dense" || name == "aten::is_nonzero") return Treatment::Item;
  if (op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
      !op.hasKernelForDispatchKey(DispatchKey::CPU) && !op.hasKernelForDispatchKey(DispatchKey::Meta))
    return Treatment::Composite;
  if (reads_tensor_scalars(schema)) return Treatment::ScalarsInTensor;
  if (untagged_readers().contains(name) || has_tensor_indices(schema))
    return Treatment::ReadsData;
  if (name == "aten::index" || name == "aten::_unsafe_index") return Treatment::DynamicIfMask;
  if (name == "aten::repeat_interleave") return Treatment::DynamicIfNone;
  if (name == "aten::is_same_size" || name == "aten::_has_same_storage_numel") return Treatment::ComparesSizes;
  if (op.hasTag(at::Tag::data_dependent_output)) return Treatment::ReadsData;
  if (op.hasTag(at::Tag::dynamic_output_shape)) return Treatment::DynamicSizes;
  if (schema.is_mutable()) return Treatment::Mutable;
  return Treatment::Record;
}

bool changes_values(const std::string& name) { return name == "aten::_conj" || name == "aten::_neg_view"; }

// What an operator without a row in ops.def is known by: its schema and its tags.
uint32_t flags_of(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  uint32_t flags = 0;
  bool has_tensor = false;
  for (const c10::Argument& argument : schema.arguments()) {
    const ArgumentKind kind = argument_kind(*argument.real_type());
    has_tensor |= kind == ArgumentKind::Tensor || kind == ArgumentKind::TensorList;
  }
  if (!has_tensor) flags |= graph::kFactory;
  if (op.hasTag(at::Tag::nondeterministic_seeded)) flags |= graph::kRandom;
  if (schema.returns().empty()) flags |= graph::kSideEffect;
  // A lazily conjugated or negated view shows other values than its operand: for the graph it is an operator like any.
  if (changes_values(schema.name())) return flags;
  for (const c10::Argument& result : schema.returns())
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) flags |= graph::kView;
  return flags;
}

std::unique_ptr<OperatorInfo> describe(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  auto info = std::make_unique<OperatorInfo>();
  std::ostringstream text;
  text << schema;
  info->op = graph::intern_op(text.str(), flags_of(op));
  info->treatment = treatment_of(op);
  info->has_rule = graph::has_type_rule(info->op);
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    info->arguments.push_back(argument_kind(*argument.real_type()));
    if (info->arguments.back() == ArgumentKind::Device) info->device_argument = static_cast<int32_t>(i);
    if (argument.name() == "dtype") info->dtype_argument = static_cast<int32_t>(i);
  }
  info->has_output_mask = !schema.arguments().empty() && schema.arguments().back().name() == "output_mask";
  const std::string& name = schema.name();
  info->uninitialized = name == "aten::empty" || name == "aten::empty_like" || name == "aten::empty_strided" ||
                        name == "aten::new_empty" || name == "aten::new_empty_strided" ||
                        name == "aten::empty_permuted";
  info->is_view = (info->op->flags & graph::kView) != 0 || changes_values(name);
  info->flips_conjugate = name == "aten::_conj";
  info->flips_negative = name == "aten::_neg_view";
  info->has_train_workspace = name == "aten::mkldnn_rnn_layer";
  info->as_strided = name == "aten::as_strided" || name == "aten::as_strided_scatter" || name == "aten::as_strided_copy";
  return info;
}

}  // namespace

OperatorInfo& operator_info(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<OperatorInfo>> table;
  const std::lock_guard lock(mutex);
  std::unique_ptr<OperatorInfo>& info = table[&op.schema()];
  if (info == nullptr) info = describe(op);
  return *info;
}

}  // namespace braze::trace
