#include "replay.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstring>
#include <sstream>
#include <unordered_map>

#include "braze/graph/text.h"
#include "braze/runtime/inputs.h"
#include "braze/runtime/operator_call.h"
#include "braze/runtime/size_slots.h"
#include "braze/trace/torch_types.h"

namespace braze::trace_test {
namespace {

std::string text(const at::Tensor& t) {
  std::ostringstream out;
  out << c10::toString(t.scalar_type()) << t.sizes() << t.strides() << "+" << t.storage_offset();
  return out.str();
}

at::Tensor from_offset_zero(const at::Tensor& t) {
  at::Tensor copy = at::empty_strided(t.sizes(), t.strides(), t.options().requires_grad(false));
  if (t.numel() == 0) return copy;
  const auto bytes = copy.storage().nbytes();
  std::memcpy(copy.data_ptr(), t.const_data_ptr(), bytes);
  return copy;
}

class Replay {
 public:
  Replay(const graph::Graph& graph, const trace::GraphContext& context, const std::vector<at::Tensor>& callers,
         const std::vector<at::Tensor>& tangents)
      : graph_(graph), context_(context), sizes_(graph) {
    std::unordered_map<int32_t, at::Tensor> tangent_of;
    if (context.joint)
      for (size_t i = 0; i < context.joint->tangents.size(); ++i)
        tangent_of[context.joint->tangents[i].input] = tangents.at(i);
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const trace::InputBinding& binding = context.inputs[i];
      if (graph.input_kinds[i] == graph::InputKind::Tangent)
        inputs_.push_back(tangent_of.at(static_cast<int32_t>(i)));
      else
        inputs_.push_back(runtime::bind(binding, binding.caller < 0 ? at::Tensor() : callers[static_cast<size_t>(binding.caller)]));
      // The traced offset of an input counts from its own first element.
      if (inputs_.back().storage_offset() != 0) inputs_.back() = from_offset_zero(inputs_.back());
      values_[graph.inputs[i]] = inputs_.back();
    }
  }

  Replayed run() {
    const at::AutoDispatchBelowADInplaceOrView below;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    for (const graph::Node* node : graph_.nodes) run(*node);
    Replayed out;
    for (const graph::Value* output : graph_.outputs)
      out.outputs.push_back(output == nullptr ? at::Tensor() : values_.at(output));
    for (const graph::Mutation& mutation : graph_.mutations) out.mutated.push_back(values_.at(mutation.value));
    out.mismatches = std::move(mismatches_);
    return out;
  }

 private:
  int64_t value(graph::Expr e) {
    if (e.is_constant()) return e.constant();
    const int slot = sizes_.slot(e);
    return evaluated()[static_cast<size_t>(slot)];
  }
  std::vector<int64_t> evaluated() {
    std::vector<int64_t> out(static_cast<size_t>(sizes_.count()));
    sizes_.evaluate(inputs_, out.data());
    return out;
  }

  void run(const graph::Node& node) {
    const runtime::OperatorCall call(node, [&](graph::Expr e) { return sizes_.slot(e); },
                                     [&](int32_t slot) { return context_.objects[static_cast<size_t>(slot)]; });
    std::vector<at::Tensor> operands, results;
    for (const graph::Argument& argument : node.arguments)
      graph::for_each_value(argument, [&](graph::Value* v) { operands.push_back(values_.at(v)); });
    const std::vector<int64_t> sizes = evaluated();
    call.run(operands, sizes.data(), results);
    if (results.size() != node.results.size()) {
      mismatches_.push_back({node.op->name, "count", std::to_string(results.size()) + " results, traced " + std::to_string(node.results.size())});
      return;
    }
    for (size_t i = 0; i < results.size(); ++i) {
      compare(node, results[i], node.results[i]->type);
      values_[node.results[i]] = results[i];
    }
  }

  void compare(const graph::Node& node, const at::Tensor& real, const graph::TensorType& type) {
    const auto differ = [&](const char* what) {
      mismatches_.push_back({node.op->name, what, (real.defined() ? text(real) : "undefined") + " traced " + graph::print(type) +
                                                      " offset " + to_string(type.offset)});
    };
    if (real.defined() != type.defined) return differ("defined");
    if (!real.defined()) return;
    if (trace::from_torch(real.scalar_type()) != type.dtype) return differ("dtype");
    if (trace::from_torch(real.device()) != type.device) return differ("device");
    if (static_cast<size_t>(real.dim()) != type.sizes.size()) return differ("sizes");
    if (!type.is_strided) return;   // sizes that depend on data
    for (int64_t d = 0; d < real.dim(); ++d)
      if (real.size(d) != value(type.sizes[static_cast<size_t>(d)])) return differ("sizes");
    if (real.layout() != c10::kStrided || real.numel() == 0) return;
    for (int64_t d = 0; d < real.dim(); ++d)
      if (real.size(d) > 1 && real.stride(d) != value(type.strides[static_cast<size_t>(d)])) return differ("strides");
    // The offset of a view counts from its operand's; inputs may start anywhere.
    if (node.op->has(graph::kView)) return;
    if (real.storage_offset() != value(type.offset)) differ("offset");
  }

  const graph::Graph& graph_;
  const trace::GraphContext& context_;
  runtime::SizeSlots sizes_;
  std::vector<at::Tensor> inputs_;
  std::unordered_map<const graph::Value*, at::Tensor> values_;
  std::vector<Mismatch> mismatches_;
};

}  // namespace

Replayed replay(const graph::Graph& graph, const trace::GraphContext& context, const std::vector<at::Tensor>& callers,
                const std::vector<at::Tensor>& tangents) {
  return Replay(graph, context, callers, tangents).run();
}

}  // namespace braze::trace_test
