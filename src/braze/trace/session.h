// Session: one trace of a program's tensor operations, from stand-ins for the caller's tensors to a compiled graph.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/function.h>

#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "braze/capture/tensor_domain.h"
#include "braze/trace/compiler.h"
#include "braze/trace/modes.h"
#include "braze/trace/recorder.h"
#include "braze/trace/shape_check.h"

namespace braze::trace {

class Session final : public capture::TraceSession, public capture::Differentiation {
 public:
  explicit Session(const capture::TraceOptions& options);
  ~Session() override;

  Result<capture::Ref> stand_in(PyObject* real, capture::Src src) override;
  bool is_traced(PyObject* object) const override;
  bool is_transformed(PyObject* traced) const override;
  bool in_transform() const override;
  PyObject* real_of(PyObject* traced) const override;
  Result<capture::Ref> call(PyObject* callable, PyObject* const* args, int64_t n_args, PyObject* kwnames) override;
  Result<capture::Ref> get_attribute(PyObject* traced, PyObject* name) override;
  bool expects_branches() const override { return options_.expect_branches; }
  Result<bool> assume(PyObject* traced, bool truth) override;
  int64_t add_function(capture::Backward backward) override;
  Result<int64_t> add_hook(PyObject* traced, capture::Backward hook) override;
  uint64_t n_changes(std::span<PyObject* const> objects) const override;
  bool knows_gradient(PyObject* stand_in) const override;
  Status tell_gradient(PyObject* stand_in, PyObject* gradient) override;
  Status set_gradient(PyObject* stand_in, PyObject* gradient) override;
  capture::Ref gradient(PyObject* stand_in) const override;
  Result<std::vector<PyObject*>> receivers(std::span<PyObject* const> roots) override;
  std::vector<NewGradient> new_gradients() const override;
  Result<Finished> finish(std::span<PyObject* const> outputs) override;
  std::vector<Input> inputs() const override;
  std::vector<Input> guarded_only() const override;
  bool has_changing_numbers() const override { return !options_.changing_numbers.empty(); }
  PyObject* changing_number(PyObject* real, capture::Src src) override;
  std::vector<capture::Src> changing_numbers() const override;
  int64_t add_number_result(PyObject* symbolic) override;
  Result<capture::Ref> number_output(PyObject* symbolic) override;
  Result<capture::Ref> math(const char* function, PyObject* a, PyObject* b) override;
  std::vector<capture::Src> distinct() const override;
  uint64_t modes() const override { return start_modes_; }
  Result<std::vector<ModeCall>> leave_modes() override;
  bool retry_with_storage_bases() const override { return recorder_.wants_storage_bases(); }
  // Records what C++ code does with the stand-ins.
  Result<std::vector<at::Tensor>> record(const std::function<std::vector<at::Tensor>()>& code);

 private:
  // A 1-D view of a whole storage, from which stand-ins are made by as_strided.
  struct Base {
    at::Tensor wrapper;
    graph::Value* value = nullptr;
  };
  using BaseKey = std::pair<const void*, c10::ScalarType>;   // storage, element type

  struct StandIn {
    capture::Ref object;             // the caller's tensor
    at::Tensor real;
    capture::Src src = capture::kNoSource;
    capture::TensorOperand operand;
    at::Tensor wrapper;
    capture::Ref python;             // the Python object of `wrapper`
    graph::Value* value = nullptr;   // the graph input: the tensor itself or its base
    graph::Value* first = nullptr;   // the value that the stand-in had at first
    uint32_t first_version = 0;
    const Base* base = nullptr;
    std::vector<bool> dynamic;
    const torch::autograd::Node* grad_fn = nullptr;   // what stands for the gradient function of the caller's tensor
    torch::autograd::Edge edge;                       // and where gradients of the stand-in go then
    bool knows_gradient = false;                      // the stand-in's .grad is what the caller's tensor has
    at::Tensor told_gradient;                         // at first
    bool gets_gradient = false;                       // set by finish(): some output's gradient reaches it
    int32_t caller = -1;                              // set by finish(): place in inputs()
  };

  struct Number {
    capture::Src src = capture::kNoSource;
    capture::Ref symbolic;
    sym::Expr symbol = 0;            // of an int
    bool is_float = false;
    int64_t stand_in = -1;           // the element of a tensor: its place in stand_ins_; such have no source
  };

  Status check_supported(PyObject* real) const;
  std::vector<bool> dynamic_dims(const at::Tensor& real, capture::Src src) const;
  graph::TensorType input_type(const at::Tensor& real, const std::vector<bool>& dynamic, capture::Src src);
  std::string input_name(capture::Src src);
  void make_plain(StandIn& input);
  void make_based(StandIn& input);
  capture::Ref finish_call(PyObject* result);
  Unsupported failure();
  // session_numbers.cpp
  std::optional<FloatId> element(const graph::Value& value);
  capture::Ref read_number(PyObject* callable, PyObject* tensor);   // empty: not by this way
  StandIn& at(PyObject* stand_in);
  const StandIn& at(PyObject* stand_in) const { return const_cast<Session*>(this)->at(stand_in); }

  // joint.cpp
  void give_gradient_edge(StandIn& input);
  torch::autograd::Edge gradient_edge(const StandIn& input) const;
  at::Tensor make_tangent(graph::TensorType type, graph::Value** input);
  graph::Value* gradient_value(const at::Tensor& gradient);
  std::vector<at::Tensor> run_engine(const std::vector<torch::autograd::Edge>& roots, std::vector<at::Tensor> tangents,
                                     const std::vector<torch::autograd::Edge>& leaves, bool keep_graph);
  std::vector<at::Tensor> run_backward(const std::vector<torch::autograd::Edge>& roots, std::vector<at::Tensor> tangents,
                                       const std::vector<torch::autograd::Edge>& leaves);
  // Whether a backward pass from this tensor, which shares nodes with one that has run, is an error: which.
  std::optional<std::string> spent(const at::Tensor& output);
  // Appends the gradients of the outputs for which `tracked` has the tensor that autograd knows them by.
  JointPlan add_gradients(std::vector<at::Tensor> tracked);

  // outputs.cpp
  struct Outputs;
  void refuse_autograd_changes() const;
  void add_mutations();
  void add_mutation(const at::Tensor& wrapper, graph::Value* input, const StandIn* plain);
  bool is_recorded(const StandIn& input) const;
  void add_hidden_outputs(Outputs& outputs);
  void find_owners(Outputs& outputs);
  std::optional<JointPlan> make_joint(const Outputs& outputs);
  graph::Value* tracked_view_input(const at::Tensor& tensor);
  graph::Value* copy_of(graph::Value* value);
  void add_output(const at::Tensor& tensor, Outputs& outputs);
  void add_view_of_input(size_t output, const at::Tensor& tensor, graph::Value* input, Outputs& outputs);
  void add_fresh_output(size_t output, const at::Tensor& tensor, Outputs& outputs);
  graph::Value* returnable(graph::Value* value);
  int32_t input_index(const graph::Value* value);
  graph::Value* whole_input(StandIn& input);
  void drop_unused_inputs(std::optional<JointPlan>& joint);
  GraphContext context(size_t n_outputs);
  NumberReads number_reads() const;
  std::vector<NumberRequest> number_requests() const;
  std::vector<MemoryGroup> memory_groups() const;

  ModeGuard mode_guard_;             // first: restored last
  uint64_t start_modes_;
  const bool starts_in_inference_mode_ = c10::InferenceMode::is_enabled();
  capture::TraceOptions options_;
  Recorder recorder_;
  std::vector<StandIn> stand_ins_;
  std::vector<Number> numbers_;
  std::vector<NumberRequest> number_results_;
  std::map<BaseKey, Base> bases_;
  std::unordered_map<const c10::TensorImpl*, size_t> by_real_, by_wrapper_;
  std::unordered_map<const graph::Value*, size_t> whole_inputs_;   // extra inputs for based tensors: -> stand-in
  std::unordered_set<std::string> names_;
  bool finished_ = false;
};

}  // namespace braze::trace
