#include <ATen/ops/empty_strided.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/object_ptr.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "braze/runtime/differentiable_replay.h"
#include "braze/runtime/gil.h"
#include "braze/runtime/python_tensor.h"
#include "braze/support/log.h"
#include "braze/trace/recorder.h"

namespace braze::runtime {
namespace {

// Kinds of inputs for which code is made; those beyond run node by node.
constexpr size_t kMostCompiled = 8;

// What the trace depends on, of every input and size.
using Kind = std::vector<int64_t>;

Kind kind_of(std::span<const at::Tensor> inputs, std::span<const int64_t> sizes) {
  Kind out(sizes.begin(), sizes.end());
  for (const at::Tensor& input : inputs) {
    out.push_back(static_cast<int64_t>(input.scalar_type()) * 2 + (input.requires_grad() ? 1 : 0));
    out.push_back(input.dim());
    out.insert(out.end(), input.sizes().begin(), input.sizes().end());
    out.insert(out.end(), input.strides().begin(), input.strides().end());
  }
  return out;
}

bool can_be_traced(const at::Tensor& input) {
  return input.defined() && input.layout() == c10::kStrided && !input.is_inference() && !input.is_conj() && !input.is_neg() &&
         !input.unsafeGetTensorImpl()->is_wrapped_number() && !input._fw_grad(0).defined();
}

class CompiledReplay final : public DifferentiableReplay {
 public:
  CompiledReplay(std::unique_ptr<DifferentiableReplay> by_node, CompileFunction compile)
      : by_node_(std::move(by_node)), compile_(std::move(compile)) {}

  std::vector<at::Tensor> run(std::span<const at::Tensor> inputs, std::span<const int64_t> sizes) const override {
    if (trace::current_recorder() == nullptr && std::ranges::all_of(inputs, can_be_traced))
      if (const Entry* entry = entry_for(inputs, sizes)) return call(*entry, inputs);
    return by_node_->run(inputs, sizes);
  }

 private:
  struct Entry {
    enum class State : uint8_t { Making, Ready, Failed } state = State::Making;
    trace::Retraced code;
    std::vector<bool> defined;         // the gradients that there are
  };

  // nullptr: there is no code, or another thread makes it now.
  const Entry* entry_for(std::span<const at::Tensor> inputs, std::span<const int64_t> sizes) const {
    Entry* entry = nullptr;
    {
      const std::lock_guard lock(mutex_);
      Kind kind = kind_of(inputs, sizes);
      if (const auto found = entries_.find(kind); found != entries_.end())
        return found->second.state == Entry::State::Ready ? &found->second : nullptr;
      if (entries_.size() >= kMostCompiled) return nullptr;
      entry = &entries_[std::move(kind)];
    }
    const bool made = make(*entry, inputs, sizes);
    const std::lock_guard lock(mutex_);
    entry->state = made ? Entry::State::Ready : Entry::State::Failed;
    return made ? entry : nullptr;
  }

  bool make(Entry& entry, std::span<const at::Tensor> inputs, std::span<const int64_t> sizes) const {
    std::vector<at::Tensor> examples;   // the inputs themselves have histories, and one may be there twice
    for (const at::Tensor& input : inputs)
      examples.push_back(at::empty_strided(input.sizes(), input.strides(), input.options()).set_requires_grad(input.requires_grad()));
    const HoldGil gil;
    Result<trace::Retraced> code = compile_(examples, [&](std::span<const at::Tensor> traced) {
      std::vector<at::Tensor> results = by_node_->run(traced, sizes);
      for (const at::Tensor& result : results) entry.defined.push_back(result.defined());
      std::erase_if(results, [](const at::Tensor& result) { return !result.defined(); });
      return results;
    });
    if (!code.ok()) {
      log(Topic::kGraphBreaks, "a backward pass that is differentiated runs node by node: " + code.why().reason);
      return false;
    }
    entry.code = *std::move(code);
    return true;
  }

  static std::vector<at::Tensor> call(const Entry& entry, std::span<const at::Tensor> inputs) {
    const HoldGil gil;
    std::vector<THPObjectPtr> operands, owned;
    std::vector<PyObject*> arguments;
    for (const size_t i : entry.code.inputs) {
      operands.emplace_back(wrap(inputs[i]));
      if (operands.back().get() == nullptr) throw_python_error();
      arguments.push_back(operands.back().get());
    }
    std::vector<PyObject*> results(static_cast<size_t>(entry.code.executable->n_outputs()), nullptr);
    if (!entry.code.executable->run(arguments.data(), static_cast<int64_t>(arguments.size()), results.data())) throw_python_error();
    for (PyObject* result : results) owned.emplace_back(result);
    std::vector<at::Tensor> out;
    size_t next = 0;
    for (const bool defined : entry.defined) out.push_back(defined ? unpack(owned[next++].get()) : at::Tensor());
    return out;
  }

  [[noreturn]] static void throw_python_error() {
    python_error error;
    error.persist();
    throw error;
  }

  std::unique_ptr<DifferentiableReplay> by_node_;
  CompileFunction compile_;
  mutable std::mutex mutex_;                 // guards the map and the entries' states
  mutable std::map<Kind, Entry> entries_;
};

}  // namespace

std::unique_ptr<DifferentiableReplay> make_compiled_replay(std::unique_ptr<DifferentiableReplay> by_node, CompileFunction compile) {
  return std::make_unique<CompiledReplay>(std::move(by_node), std::move(compile));
}

}  // namespace braze::runtime
