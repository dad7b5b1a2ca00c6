#include "braze/trace/recorder.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <atomic>

#include "braze/graph/regions.h"
#include "braze/trace/abort.h"
#include "braze/trace/python_number.h"
#include "braze/trace/torch_types.h"
#include "braze/trace/types.h"
#include "braze/trace/value_checks.h"

namespace braze::trace {
namespace {

thread_local Recorder* current = nullptr;

void include_recording_keys(bool on) {
  for (c10::DispatchKey key : {kTraceKey, kEntryKey, c10::DispatchKey::Functionalize})
    c10::impl::tls_set_dispatch_key_included(key, on);
}

}  // namespace

Recorder* current_recorder() { return current; }

void drop_stale_keys() {
  if (current == nullptr && c10::impl::tls_is_dispatch_key_included(kTraceKey)) include_recording_keys(false);
}

RecordingScope::RecordingScope(Recorder& recorder)
    : outer_(std::exchange(current, &recorder)),
      reapplied_views_(at::functionalization::impl::getFunctionalizationReapplyViewsTLS()) {
  recorder.remove_autocast_keys();
  include_recording_keys(true);
  at::functionalization::impl::setFunctionalizationReapplyViewsTLS(true);
}

RecordingScope::~RecordingScope() {
  at::functionalization::impl::setFunctionalizationReapplyViewsTLS(reapplied_views_);
  // Set, not restored: a mode object of the user's that was entered inside may have saved and restored our keys.
  if (outer_ == nullptr) include_recording_keys(false);
  current = outer_;
}

PausedRecording::PausedRecording(Recorder& recorder) : recorder_(recorder) {
  include_recording_keys(false);
  current = nullptr;
}

PausedRecording::~PausedRecording() {
  current = &recorder_;
  include_recording_keys(true);
}

Recorder::Recorder()
    : env_(std::make_shared<NumberEnv>()), graph_(std::make_unique<graph::Graph>(env_)), host_numbers_(*env_) {
  static std::atomic<uint64_t> next{1};
  id_ = next++;
}

Recorder::~Recorder() {
  for (const auto& node : custom.nodes) node->release();
  for (const auto& hook : custom.hooks) hook->call = nullptr;
}

at::Tensor Recorder::tensor_for(graph::Value* value) {
  auto impl = c10::make_intrusive<TracedImpl>(value, id_, env_);
  fresh_.push_back(impl);
  highest_id_ = std::max<int64_t>(highest_id_, value->id);
  return at::Tensor(std::move(impl));
}

void Recorder::remove_autocast_keys() {
  for (const auto& impl : fresh_) impl->remove_autocast_keys();
  fresh_.clear();
}

at::Tensor Recorder::constant(const at::Tensor& real) {
  at::Tensor& known = constant_of_[real.unsafeGetTensorImpl()];
  if (known.defined()) return known;
  if (at::functionalization::impl::isFunctionalTensor(real)) unsupported("a tensor of another functionalization");
  if (real.layout() != c10::kStrided || real.is_quantized()) unsupported("a constant tensor that is not strided");
  if (real.is_conj() || real.is_neg()) unsupported("a lazily conjugated or negated constant tensor");
  graph::Value* value = graph_->add_input(type_of(real, real.device()), graph::InputKind::Constant);
  constants_.emplace(value, real);
  known = tensor_for(value);
  traced(known)->set_constant(real);
  adopt(real);
  return known;
}

void Recorder::adopt(const at::Tensor& real) {
  if (real.defined()) adopted_.emplace(real.unsafeGetTensorImpl(), real);
}

bool Recorder::knows(const at::Tensor& real) const {
  return real.unsafeGetTensorImpl()->is_wrapped_number() || adopted_.contains(real.unsafeGetTensorImpl());
}

graph::Argument Recorder::tensor_argument(const at::Tensor& tensor) {
  if (!tensor.defined()) return static_cast<graph::Value*>(nullptr);
  if (TracedImpl* impl = traced(tensor)) return impl->value();
  // A Python number is an immediate, weak in promotion as the tensor that carries it.
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    if (const auto id = symbolic_float(tensor); id && env_->is_in_f32(*id)) return float_input(*id);
    if (auto number = python_number(tensor)) return *std::move(number);
  }
  return traced(constant(tensor))->value();
}

graph::Value* Recorder::float_input(FloatId id) {
  if (env_->is_in_graph(id)) {
    graph::Value*& weak = weak_numbers_[id];
    if (weak != nullptr) return weak;
    // A copy that is weak in promotion: to no pass the same as its operand.
    graph::Value* value = graph_number(id);
    graph::TensorType type = value->type;
    type.wrapped_number = true;
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
    static const OperatorInfo& clone = operator_info(op);
    return weak_numbers_[id] = add_node(clone, {value, graph::None{}}, {type})->result();
  }
  graph::Value*& input = float_inputs_[id];
  if (input != nullptr) return input;
  graph::TensorType type;
  type.dtype = DType::F64;
  type.wrapped_number = true;
  return input = graph_->add_input(type, graph::InputKind::User);
}

namespace {

graph::Argument number(const c10::IValue& value) {
  if (value.isInt()) return sym::Expr(value.toInt());
  if (value.isSymInt()) return to_expr(value.toSymInt());
  if (value.isDouble()) return value.toDouble();
  if (value.isBool()) return value.toBool();
  if (value.isComplexDouble()) {
    const c10::complex<double> c = value.toComplexDouble();
    return std::complex<double>(c.real(), c.imag());
  }
  if (value.isSymFloat()) return value.toSymFloat().guard_float(__FILE__, __LINE__);
  if (value.isSymBool()) return value.toSymBool().guard_bool(__FILE__, __LINE__);
  unsupported("an argument of type " + value.tagKind());
}

graph::Argument list(const c10::IValue& value) {
  graph::ArgumentList out;
  if (value.isIntList()) {
    const auto ints = value.toIntList();
    out.reserve(ints.size());
    for (int64_t v : ints) out.emplace_back(sym::Expr(v));
  } else if (value.isDoubleList()) {
    for (double v : value.toDoubleList()) out.emplace_back(v);
  } else if (value.isBoolList()) {
    for (bool v : value.toBoolList()) out.emplace_back(v);
  } else {
    const auto items = value.toListRef();
    out.reserve(items.size());
    for (const c10::IValue& item : items)
      out.push_back(item.isString() ? graph::Argument(std::string(item.toStringRef())) : number(item));
  }
  return out;
}

}  // namespace

graph::Argument Recorder::argument(const c10::IValue& value, ArgumentKind kind) {
  if (value.isNone()) {
    if (kind == ArgumentKind::Tensor) return static_cast<graph::Value*>(nullptr);
    return {};
  }
  switch (kind) {
    case ArgumentKind::Tensor: return tensor_argument(value.toTensor());
    case ArgumentKind::TensorList:
    case ArgumentKind::OptionalTensorList: {
      graph::ArgumentList out;
      for (const c10::IValue& item : value.toListRef())
        out.push_back(item.isTensor() ? tensor_argument(item.toTensor())
                                      : graph::Argument(static_cast<graph::Value*>(nullptr)));
      return out;
    }
    case ArgumentKind::Int:
    case ArgumentKind::Float:
    case ArgumentKind::Bool:
    case ArgumentKind::Scalar: return number(value);
    case ArgumentKind::IntList:
    case ArgumentKind::FloatList:
    case ArgumentKind::BoolList:
    case ArgumentKind::ScalarList:
    case ArgumentKind::StringList: return value.isList() ? list(value) : number(value);
    case ArgumentKind::String: return std::string(value.toStringRef());
    case ArgumentKind::DType:
      if (c10::isQIntType(static_cast<c10::ScalarType>(value.toInt()))) unsupported("a quantized tensor");
      return from_torch(static_cast<c10::ScalarType>(value.toInt()));
    case ArgumentKind::Layout: return graph::Layout{static_cast<int8_t>(value.toInt())};
    case ArgumentKind::MemoryFormat: return graph::MemoryFormat{static_cast<int8_t>(value.toInt())};
    case ArgumentKind::Device: return from_torch(value.toDevice());
    case ArgumentKind::Generator: {
      const auto slot = static_cast<int32_t>(objects_.size());
      objects_.push_back(value);
      return graph::Opaque{slot, "generator"};
    }
    case ArgumentKind::Other: break;
  }
  unsupported("an argument of type " + value.tagKind());
}

bool Recorder::set_recompute(bool on) {
  const bool was = region_ != 0;
  constexpr uint32_t kMostRegions = (1U << (32 - graph::kRegionShift)) - 1;   // the last number is shared
  if (on && !was) n_regions_ = std::min(n_regions_ + 1, kMostRegions);
  if (on != was) region_ = on ? n_regions_ : 0;
  return was;
}

graph::Node* Recorder::add_node(const OperatorInfo& info, std::vector<graph::Argument> arguments,
                                std::vector<graph::TensorType> types) {
  refuse_invalid_values(*info.op, arguments, types, *env_);
  graph::Node* node = graph_->add_node(info.op, std::move(arguments), std::move(types));
  if (info.op->has(graph::kRandom) || info.op->has(graph::kSideEffect)) {
    node->order_after = last_random_;
    last_random_ = node;
  }
  if (backward_) node->tags |= graph::kBackward;
  else if (!c10::GradMode::is_enabled()) node->tags |= graph::kNoGrad;
  if (region_ != 0 && !backward_) node->tags |= graph::kRecompute | (region_ << graph::kRegionShift);
  ++n_nodes_;
  return node;
}

}  // namespace braze::trace
