// The backward half of a joint graph: libtorch's engine runs on traced tangents, and what it dispatches is recorded.
#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <unordered_set>

#include "braze/support/check.h"
#include "braze/trace/abort.h"
#include "braze/trace/session.h"
#include "braze/trace/torch_compat.h"
#include "braze/trace/transforms.h"

namespace braze::trace {
namespace {

namespace functionalization = at::functionalization;
namespace functional = functionalization::impl;
using graph::Value;
using torch::autograd::Edge;
using torch::autograd::Node;

// What a caller's tensor that has a gradient function of its own is made by in the trace: the engine stops here.
struct CallersFunction final : Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    unsupported("the gradient function of a tensor from outside is run");
  }
  std::string name() const override { return "CallersFunction"; }
};

// The engine takes the GIL where it runs Python, and must not be entered with it.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// Hooks are Python that nobody watches while the engine runs it: what it does beside returning a gradient would be lost.
void refuse_hooks(Node& node) {
  const auto is_known = [](const auto& hook) { return dynamic_cast<const InterpretedHook*>(hook.get()) != nullptr; };
  if (!std::ranges::all_of(node.tensor_pre_hooks(), is_known) || !node.pre_hooks().empty() || !node.post_hooks().empty() ||
      node.tensor_post_acc_grad_hooks() != nullptr)
    unsupported("a hook on a gradient (register_hook)");
}

// A gradient function in Python that raises leaves its error set. Interrupts and exhausted memory stay set.
void clear_python_error() {
  if (PyErr_Occurred() != nullptr && !PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) && !PyErr_ExceptionMatches(PyExc_MemoryError))
    PyErr_Clear();
}

// Changes in place, also of what is made in inference mode and has no version.
uint64_t changes_of(const at::Tensor& tensor) {
  const auto* storage = static_cast<functionalization::FunctionalStorageImpl*>(tensor.storage().unsafeGetStorageImpl());
  return storage->generation() + (tensor.is_inference() ? 0 : static_cast<uint64_t>(tensor._version()));
}

uint64_t changes_of(const std::vector<at::Tensor>& tensors) {
  uint64_t n = 0;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined()) n += changes_of(tensor);
  return n;
}

}  // namespace

namespace {

template <class Visit>
std::unordered_set<Node*> visit_behind(const torch::autograd::edge_list& roots, const Visit& at_node) {
  std::unordered_set<Node*> seen;
  std::vector<Node*> open;
  const auto visit = [&](const Edge& edge) {
    if (edge.function && seen.insert(edge.function.get()).second) open.push_back(edge.function.get());
  };
  for (const Edge& root : roots) visit(root);
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    at_node(*node);
    for (const Edge& edge : node->next_edges()) visit(edge);
  }
  return seen;
}

}  // namespace

std::unordered_set<Node*> nodes_behind(const torch::autograd::edge_list& roots) { return visit_behind(roots, &refuse_hooks); }

void Session::give_gradient_edge(StandIn& input) {
  if (!input.real.requires_grad()) return;
  if (input.real.is_leaf() || input.wrapper.is_inference()) {
    input.wrapper.set_requires_grad(true);
    return;
  }
  const auto function = make_autograd_node<CallersFunction>();
  torch::autograd::set_history(input.wrapper, function);
  input.grad_fn = function.get();
  input.edge = torch::autograd::impl::gradient_edge(input.wrapper);
}

// Where the gradient of a stand-in arrives; no function if nothing has used it.
Edge Session::gradient_edge(const StandIn& input) const {
  if (!input.real.requires_grad()) return {};
  if (input.edge.function) return input.edge;
  return {torch::autograd::impl::try_get_grad_accumulator(input.wrapper), 0};
}

at::Tensor Session::make_tangent(graph::TensorType type, Value** input) {
  type.offset = 0;
  type.requires_grad = false;
  *input = recorder_.graph().add_input(std::move(type), graph::InputKind::Tangent);
  return functional::to_functional_tensor(recorder_.tensor_for(*input));
}

// A gradient as an output. It may be a tangent; a tensor of the caller's would be shared with him, and is copied.
Value* Session::gradient_value(const at::Tensor& gradient) {
  if (!gradient.defined()) return nullptr;
  if (!is_wrapper(gradient)) return returnable(traced(recorder_.constant(gradient))->value());
  functional::sync(gradient);
  const TracedImpl* impl = traced(functional::from_functional_tensor(gradient));
  if (impl == nullptr) unsupported("a gradient whose contents were exchanged");
  Value* value = impl->value();
  if (value->producer != nullptr) return value;
  const graph::Graph& g = recorder_.graph();
  if (g.input_kinds[static_cast<size_t>(value->index)] == graph::InputKind::Tangent) return value;
  return copy_of(value);
}

std::vector<at::Tensor> Session::run_engine(const std::vector<Edge>& roots, std::vector<at::Tensor> tangents,
                                            const std::vector<Edge>& leaves, bool keep_graph) {
  const Recorder::BackwardScope backward(recorder_);
  // The forward's autocast is over when gradients are computed.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const WithoutGil without_gil;
  return torch::autograd::Engine::get_default_engine().execute(roots, tangents, keep_graph, /*create_graph=*/false,
                                                               /*accumulate_grad=*/false, leaves);
}

std::vector<at::Tensor> Session::run_backward(const std::vector<Edge>& roots, std::vector<at::Tensor> tangents,
                                              const std::vector<Edge>& leaves) {
  recorder_.take_failure();
  try {
    return run_engine(roots, std::move(tangents), leaves, /*keep_graph=*/false);
  } catch (const std::exception& error) {
    clear_python_error();
    if (auto noted = recorder_.take_failure()) throw Abort(*noted);
    const std::string text = error.what();
    unsupported("the backward pass: " + text.substr(0, text.find('\n')));
  }
}

int64_t Session::add_function(capture::Backward backward) {
  recorder_.custom.backwards.push_back(std::move(backward));
  return static_cast<int64_t>(recorder_.custom.backwards.size()) - 1;
}

Result<int64_t> Session::add_hook(PyObject* traced, capture::Backward hook) {
  const at::Tensor& tensor = THPVariable_Unpack(traced);
  if (tensor.grad_fn() == nullptr || trace::is_transformed(tensor)) return Unsupported{"a hook on the gradient of a leaf", ""};
  auto& hooks = recorder_.custom.hooks;
  hooks.push_back(std::make_shared<GradientHook>(GradientHook{std::move(hook)}));
  tensor.grad_fn()->add_tensor_pre_hook(std::make_unique<InterpretedHook>(hooks.back(), tensor.output_nr()));
  return static_cast<int64_t>(hooks.size()) - 1;
}

uint64_t Session::n_changes(std::span<PyObject* const> objects) const {
  uint64_t n = 0;
  for (const StandIn& input : stand_ins_) n += changes_of(input.wrapper);
  for (PyObject* object : objects)
    if (is_traced(object)) n += changes_of(below_transforms(THPVariable_Unpack(object)));
  return n;
}

// Nodes are shared if both passes go through them; the ends, which keep nothing, are shared by all.
std::optional<std::string> Session::spent(const at::Tensor& output) {
  const Edge root = torch::autograd::impl::gradient_edge(output);
  const auto nothing = [](const Node&) {};
  const std::unordered_set<Node*> used = visit_behind(recorder_.spent_roots, nothing);
  const std::unordered_set<Node*> nodes = visit_behind({root}, nothing);
  if (std::none_of(nodes.begin(), nodes.end(), [&](Node* n) { return n->num_outputs() > 0 && used.contains(n); })) return {};
  torch::autograd::edge_list leaves;
  for (const StandIn& input : stand_ins_)
    if (const Edge edge = gradient_edge(input); edge.function && nodes.contains(edge.function.get())) leaves.push_back(edge);
  if (leaves.empty()) return {};
  // Whether what it used is still there, only the pass can tell. What it records goes again.
  graph::Graph& g = recorder_.graph();
  const graph::Node* const last = g.nodes.empty() ? nullptr : g.nodes.back();
  Value* unused = nullptr;
  graph::TensorType type = traced(functional::from_functional_tensor(output))->value()->type;
  std::vector<at::Tensor> tangents{make_tangent(type, &unused)};
  std::optional<std::string> error;
  try {
    run_engine({root}, std::move(tangents), leaves, /*keep_graph=*/true);
  } catch (const c10::Error& raised) {
    error = raised.what_without_backtrace();
  } catch (const std::exception& raised) {
    clear_python_error();
    error = raised.what();
  }
  for (auto it = g.nodes.end(); it != g.nodes.begin() && *std::prev(it) != last;) {
    graph::Node* node = *--it;
    if (node->op->has(graph::kRandom) || node->op->has(graph::kSideEffect) ||
        std::ranges::any_of(node->results, [&](const Value* v) { return g.has_uses(v); }))
      continue;
    it = std::next(it);
    g.erase(node);
  }
  return error;
}

JointPlan Session::add_gradients(std::vector<at::Tensor> tracked) {
  graph::Graph& g = recorder_.graph();
  CHECK(tracked.size() == g.outputs.size());
  JointPlan plan;
  plan.n_forward = g.outputs.size();
  for (size_t i = 0; i < tracked.size() && !recorder_.spent_roots.empty(); ++i) {
    if (!tracked[i].defined()) continue;
    std::optional<std::string> error = spent(tracked[i]);
    if (!error) continue;
    plan.spent.push_back({static_cast<int32_t>(i), *std::move(error)});
    tracked[i] = at::Tensor();
  }
  std::vector<Edge> roots, leaves;
  for (const at::Tensor& output : tracked)
    if (output.defined()) roots.push_back(torch::autograd::impl::gradient_edge(output));
  const std::unordered_set<Node*> nodes = nodes_behind(roots);
  for (StandIn& input : stand_ins_) {
    const Edge edge = gradient_edge(input);
    if (!edge.function || !nodes.contains(edge.function.get())) continue;
    if (input.real.is_cuda()) unsupported("gradients on a GPU");
    input.gets_gradient = true;
    leaves.push_back(edge);
  }
  std::vector<at::Tensor> tangents;
  for (size_t i = 0; i < tracked.size(); ++i) {
    if (!tracked[i].defined()) continue;
    Value* input = nullptr;
    if (!leaves.empty()) tangents.push_back(make_tangent(g.outputs[i]->type, &input));
    plan.tangents.push_back({static_cast<int32_t>(i), input == nullptr ? -1 : input->index});
  }
  if (leaves.empty()) return plan;
  // A result that takes no part in a backward pass has zeros for its gradient, with which eager would call no hook.
  if (!recorder_.custom.hooks.empty() && roots.size() > 1) unsupported("a hook on a gradient in a call with several results");
  if (!recorder_.custom.nodes.empty()) plan.no_double_backward = "a custom autograd function";
  if (!recorder_.custom.hooks.empty()) plan.no_double_backward = "a hook on a gradient";
  const size_t n_inputs = stand_ins_.size();
  const std::vector<at::Tensor> given = tangents;
  const auto changes = [&] { return n_changes({}) + changes_of(given) + changes_of(tracked); };
  const uint64_t changes_before = changes();
  const std::vector<at::Tensor> gradients = run_backward(roots, std::move(tangents), leaves);
  // The call's effects were settled before.
  if (stand_ins_.size() != n_inputs) unsupported("the backward of a custom autograd function reads a tensor from outside");
  if (changes() != changes_before) unsupported("the backward of a custom autograd function changes a tensor from outside in place");
  const Recorder::BackwardScope backward(recorder_);
  for (const at::Tensor& gradient : gradients) g.outputs.push_back(gradient_value(gradient));
  return plan;
}

}  // namespace braze::trace
