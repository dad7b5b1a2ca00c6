// Recorder: the graph under construction, and what the dispatcher kernels need while user code runs on traced tensors.
//
// Kernels find the recorder of their thread by current_recorder(). It is set, together with the dispatch keys, only by
// a RecordingScope around native calls; Python code that capture itself interprets runs outside.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "braze/graph/graph.h"
#include "braze/support/result.h"
#include "braze/trace/custom_function.h"
#include "braze/trace/gradient_hook.h"
#include "braze/trace/host_numbers.h"
#include "braze/trace/operators.h"
#include "braze/trace/sym_node.h"
#include "braze/trace/torch_compat.h"
#include "braze/trace/traced_impl.h"

namespace braze::trace {

class Recorder {
 public:
  Recorder();
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  graph::Graph& graph() { return *graph_; }
  const graph::Graph& graph() const { return *graph_; }
  std::unique_ptr<graph::Graph> take_graph() { return std::move(graph_); }
  const EnvPtr& env() const { return env_; }
  uint64_t id() const { return id_; }

  // The Fake-key fallback: appends a node for the call on the stack and replaces the arguments by traced results.
  void record(const c10::OperatorHandle& op, torch::jit::Stack* stack);

  // A fresh traced tensor (not wrapped) that stands for `value`.
  at::Tensor tensor_for(graph::Value* value);
  // The traced tensor of a real one that was made during the trace.
  at::Tensor constant(const at::Tensor& real);
  const std::unordered_map<graph::Value*, at::Tensor>& constants() const { return constants_; }
  const std::vector<c10::IValue>& objects() const { return objects_; }
  // The graph inputs that are Python floats of the call, or made of such.
  const std::map<FloatId, graph::Value*>& float_inputs() const { return float_inputs_; }

  // The number that item() of a (not wrapped) floating-point tensor of one element gives.
  FloatId number_in(const at::Tensor& tensor);
  // The double, without dimensions, that is such a number or is computed of some: of a number with is_in_graph().
  graph::Value* graph_number(FloatId id);
  HostNumbers& host_numbers() { return host_numbers_; }

  // Real tensors that came into being during the trace: results of pure operators on constants, Python numbers.
  void adopt(const at::Tensor& real);
  bool knows(const at::Tensor& real) const;

  // Inner tensors must not autocast again (rule: functionalization calls operators on them). The wrapper copies its
  // keys from a fresh inner tensor, so this happens later: before the next operator and before each native call.
  void remove_autocast_keys();

  // An input shows only a part of its storage: as_strided could leave it.
  void mark_partial_input() { has_partial_input_ = true; }
  // Set when the trace can succeed if inputs enter as views of their whole storages.
  void request_storage_bases() { wants_storage_bases_ = true; }
  bool wants_storage_bases() const { return wants_storage_bases_; }

  // The first Unsupported thrown in a kernel; crossing CPython leaves only a RuntimeError of it.
  void note_failure(const Unsupported& why) { if (!failure_) failure_ = why; }
  std::optional<Unsupported> take_failure() { return std::exchange(failure_, std::nullopt); }

  // While alive, nodes carry graph::kBackward.
  class BackwardScope {
   public:
    explicit BackwardScope(Recorder& recorder) : recorder_(recorder), outer_(std::exchange(recorder.backward_, true)) {}
    ~BackwardScope() { recorder_.backward_ = outer_; }
    BackwardScope(const BackwardScope&) = delete;
    BackwardScope& operator=(const BackwardScope&) = delete;

   private:
    Recorder& recorder_;
    bool outer_;
  };

  graph::Argument argument(const c10::IValue& value, ArgumentKind kind);
  // Nodes recorded while it is on belong to a checkpoint; a checkpoint in another one is part of it. Returns what it was.
  bool set_recompute(bool on);

  // Custom autograd functions and hooks on gradients, which capture interprets.
  struct Custom {
    std::vector<capture::Backward> backwards;
    std::vector<AutogradNode<InterpretedFunction>> nodes;
    std::vector<std::shared_ptr<GradientHook>> hooks;
  };
  Custom custom;

  bool ran_backward = false;
  // Where backward passes that freed what they used started.
  torch::autograd::edge_list spent_roots;

  int64_t n_nodes() const { return n_nodes_; }
  // Ids rise: values made from now on have at least this one.
  int64_t next_value_id() const { return highest_id_ + 1; }

 private:
  struct Operands;
  Operands look(const c10::OperatorHandle& op, const OperatorInfo& info, at::ArrayRef<c10::IValue> arguments) const;
  bool run_for_real(const c10::OperatorHandle& op, const OperatorInfo& info, const Operands& operands,
                    torch::jit::Stack* stack);
  void refuse_data_reads(const c10::OperatorHandle& op, const OperatorInfo& info) const;
  void check_uninitialized(const OperatorInfo& info) const;
  void check_as_strided(const OperatorInfo& info);
  void read_item(const c10::OperatorHandle& op, torch::jit::Stack* stack);
  // scalar_operands.cpp: an operator whose Scalar is a float that changes between calls is recorded in a form that
  // takes a tensor there. False if there is no such form, or no such float.
  bool record_with_tensors(const c10::OperatorHandle& op, torch::jit::Stack* stack);
  // An operator over lists as the operator on each tensor, where numbers among its arguments change between calls or
  // stand in a tensor. False if none do, or the operator is not of this kind.
  bool record_each(const OperatorInfo& info, torch::jit::Stack* stack);
  bool is_changing(const c10::IValue& value);
  // Records "add.Tensor"; arguments that are left out at the end get their defaults.
  at::Tensor call(std::string_view name, std::vector<c10::IValue> arguments);
  // The number as an operand: a tensor that is weak in promotion.
  at::Tensor number_tensor(FloatId id);
  void append(const c10::OperatorHandle& op, OperatorInfo& info, const Operands& operands, torch::jit::Stack* stack);
  // With the bits of lazy conjugation and negation that the result has in eager.
  at::Tensor result_tensor(graph::Value* value, const OperatorInfo& info, const Operands& operands);
  void state_dtype(const OperatorInfo& info, std::vector<graph::Argument>& arguments,
                   const std::vector<graph::TensorType>& types) const;
  graph::Node* add_node(const OperatorInfo& info, std::vector<graph::Argument> arguments,
                        std::vector<graph::TensorType> types);
  graph::Argument tensor_argument(const at::Tensor& tensor);
  graph::Value* float_input(FloatId id);

  uint64_t id_;
  EnvPtr env_;
  std::unique_ptr<graph::Graph> graph_;
  int64_t n_nodes_ = 0;
  int64_t highest_id_ = -1;
  graph::Node* last_random_ = nullptr;
  std::unordered_map<graph::Value*, at::Tensor> constants_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> constant_of_;   // real -> traced
  std::unordered_map<const c10::TensorImpl*, at::Tensor> adopted_;       // kept alive, so that addresses stay unique
  std::vector<c10::IValue> objects_;
  std::map<FloatId, graph::Value*> float_inputs_;
  HostNumbers host_numbers_;
  std::vector<graph::Value*> graph_numbers_;                              // of FloatOp::InGraph
  std::unordered_map<FloatId, graph::Value*> computed_numbers_, weak_numbers_;
  std::vector<c10::intrusive_ptr<TracedImpl>> fresh_;
  bool backward_ = false;
  uint32_t region_ = 0;       // of graph/regions.h, while a checkpoint runs
  uint32_t n_regions_ = 0;
  bool has_partial_input_ = false;
  bool wants_storage_bases_ = false;
  std::optional<Unsupported> failure_;
};

Recorder* current_recorder();

// While alive, tensor operations of this thread are recorded by `recorder`.
class RecordingScope {
 public:
  explicit RecordingScope(Recorder& recorder);
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  Recorder* outer_;
  bool reapplied_views_;
};

// While alive, tensor operations of this thread are not recorded: the interpreter's own Python stands outside.
class PausedRecording {
 public:
  explicit PausedRecording(Recorder& recorder);
  ~PausedRecording();
  PausedRecording(const PausedRecording&) = delete;
  PausedRecording& operator=(const PausedRecording&) = delete;

 private:
  Recorder& recorder_;
};

// Without a recorder our keys have no business in thread-local state. They can come back with a mode object of the
// user's that was entered in a trace and restores, when it dies, the keys that it found. Called where they are noticed.
void drop_stale_keys();

// The kernel of kTraceKey.
void trace_handler(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace braze::trace
