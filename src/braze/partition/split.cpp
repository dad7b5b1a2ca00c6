#include "braze/partition/split.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "braze/graph/builder.h"
#include "braze/graph/size_symbols.h"
#include "braze/partition/cost.h"
#include "braze/support/check.h"

namespace braze::partition {

using graph::Argument;
using graph::ArgumentList;
using graph::Graph;
using graph::Node;
using graph::Op;
using graph::OpId;
using graph::TensorType;
using graph::Value;

namespace {

// A graph under construction from parts of the joint graph; values keep their numbers.
class Copy {
 public:
  Copy(const Joint& joint, const std::string& name)
      : joint_(joint), graph_(std::make_unique<Graph>(joint.graph.env, name)), map_(joint.n_ids(), nullptr) {
    graph_->set_next_id(static_cast<int32_t>(joint.n_ids()));
  }

  Graph& graph() { return *graph_; }
  std::unique_ptr<Graph> take() { return std::move(graph_); }

  Value* find(const Value* value) const { return map_[static_cast<size_t>(value->id)]; }
  Value* get(const Value* value) const {
    Value* copy = find(value);
    CHECK(copy != nullptr, "%" << value->id << " is not there");
    return copy;
  }
  void bind(const Value* value, Value* copy) { map_[static_cast<size_t>(value->id)] = copy; }

  Value* add_input(const Value* value, graph::InputKind kind, TensorType type) {
    Value* copy = graph_->add_input(std::move(type), kind, value->name);
    graph_->set_id(copy, value->id);
    bind(value, copy);
    return copy;
  }

  void add_node(const Node& node) {
    std::vector<Argument> arguments;
    arguments.reserve(node.arguments.size());
    for (const Argument& argument : node.arguments) arguments.push_back(mapped(argument));
    std::vector<TensorType> types;
    types.reserve(node.results.size());
    for (const Value* result : node.results) types.push_back(result->type);
    Node* copy = graph_->add_node(node.op, std::move(arguments), std::move(types));
    copy->origin = node.origin;
    // The last node before it, in order of effects, that stands in this graph.
    const Node* before = node.order_after;
    while (before != nullptr && !ordered_.contains(before)) before = before->order_after;
    if (before != nullptr) copy->order_after = ordered_.at(before);
    if (node.order_after != nullptr || is_ordered(node)) ordered_.emplace(&node, copy);
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (find(node.results[i]) != nullptr) continue;   // run again for its other results; this one was saved
      graph_->set_id(copy->results[i], node.results[i]->id);
      copy->results[i]->name = node.results[i]->name;
      bind(node.results[i], copy->results[i]);
    }
  }

 private:
  static bool is_ordered(const Node& node) {
    return node.results.empty() || node.op->has(graph::kRandom) || node.op->has(graph::kSideEffect);
  }

  Argument mapped(const Argument& argument) const {
    if (const auto* value = std::get_if<Value*>(&argument.v)) return *value == nullptr ? nullptr : get(*value);
    if (const auto* list = std::get_if<ArgumentList>(&argument.v)) {
      ArgumentList out;
      out.reserve(list->size());
      for (const Argument& item : *list) out.push_back(mapped(item));
      return out;
    }
    return argument;
  }

  const Joint& joint_;
  std::unique_ptr<Graph> graph_;
  std::vector<Value*> map_;
  std::unordered_map<const Node*, Node*> ordered_;
};

class Splitter {
 public:
  Splitter(const Joint& joint, BackwardPlan plan)
      : joint_(joint), plan_(std::move(plan)), forward_(joint, joint.graph.name + "_forward"),
        backward_(joint, joint.graph.name + "_backward") {}

  Result<Partitioned> operator()() {
    TRY_STATUS(make_forward());
    make_backward();
    Partitioned out;
    for (size_t i = joint_.n_forward; i < forward_.graph().outputs.size(); ++i)
      out.saved_bytes += bytes_of(*joint_.graph.env, forward_.graph().outputs[i]->type);
    out.forward = forward_.take();
    out.backward = backward_.take();
    out.backward_inputs = std::move(inputs_);
    return out;
  }

 private:
  // Forward nodes, and Either nodes that a saved value needs.
  std::vector<bool> forward_nodes() const {
    std::vector<bool> out(joint_.nodes.size());
    std::vector<int32_t> open;
    const auto mark = [&](const Value* value) {
      const int32_t node = joint_.producer(value);
      if (node < 0 || out[static_cast<size_t>(node)]) return;
      out[static_cast<size_t>(node)] = true;
      open.push_back(node);
    };
    for (size_t i = 0; i < out.size(); ++i) out[i] = joint_.sides[i] == Side::Forward;
    for (const Value* value : plan_.saved) mark(value);
    while (!open.empty()) {
      const Node& node = *joint_.nodes[static_cast<size_t>(open.back())];
      open.pop_back();
      for (const Argument& argument : node.arguments) graph::for_each_value(argument, mark);
    }
    return out;
  }

  Status make_forward() {
    const Graph& joint = joint_.graph;
    Graph& forward = forward_.graph();
    for (size_t i = 0; i < joint.inputs.size(); ++i) {
      if (joint.input_kinds[i] == graph::InputKind::Tangent) break;
      forward_.add_input(joint.inputs[i], joint.input_kinds[i], joint.inputs[i]->type);
    }
    forward.size_inputs = joint.size_inputs;
    const std::vector<bool> runs = forward_nodes();
    for (size_t i = 0; i < runs.size(); ++i)
      if (runs[i]) forward_.add_node(*joint_.nodes[i]);
    for (size_t i = 0; i < joint_.n_forward; ++i)
      forward.outputs.push_back(joint.outputs[i] == nullptr ? nullptr : forward_.get(joint.outputs[i]));
    for (const graph::Mutation& mutation : joint.mutations)
      forward.mutations.push_back({mutation.input, forward_.get(mutation.value), mutation.under_no_grad});
    forward.aliases = joint.aliases;
    for (const Value* input : plan_.inputs) TRY_STATUS(pass_input(input));
    for (const Value* value : plan_.saved) pass_value(value);
    return Ok{};
  }

  // An input that the forward pass changes is saved as it was.
  Status pass_input(const Value* input) {
    if (!joint_.mutated[static_cast<size_t>(input->index)]) {
      inputs_.push_back({BackwardInput::Kind::ForwardInput, input->index});
      return Ok{};
    }
    Graph& forward = forward_.graph();
    Value* original = forward_.get(input);
    if (!original->type.is_strided || original->type.offset != graph::Expr(0))
      return Unsupported{"partition: a changed input that is no whole strided tensor is saved", ""};
    Node* first = forward.nodes.empty() ? nullptr : forward.nodes.front();
    Value* copy = forward.add_typed(graph::op(OpId::clone), {original}, first)->result();
    if (copy->type.strides != original->type.strides)
      return Unsupported{"partition: a changed input with gaps or overlaps is saved", ""};
    save(copy);
    return Ok{};
  }

  void pass_value(const Value* value) {
    Value* copy = forward_.get(value);
    // The caller's own output, unless it is handed out as a view.
    const std::vector<Value*>& outputs = forward_.graph().outputs;
    for (size_t i = 0; i < joint_.n_forward; ++i) {
      const auto output = static_cast<int32_t>(i);
      if (outputs[i] != copy) continue;
      if (std::ranges::any_of(joint_.graph.aliases, [&](const auto& alias) { return alias.output == output; })) continue;
      inputs_.push_back({BackwardInput::Kind::SavedOutput, output});
      return;
    }
    save(copy);
  }

  void save(Value* copy) {
    std::vector<Value*>& outputs = forward_.graph().outputs;
    inputs_.push_back({BackwardInput::Kind::SavedOutput, static_cast<int32_t>(outputs.size())});
    outputs.push_back(copy);
  }

  void make_backward() {
    for (const Value* input : plan_.inputs) {
      const bool same = !joint_.mutated[static_cast<size_t>(input->index)];
      add_backward_input(input, same ? joint_.graph.input_kinds[static_cast<size_t>(input->index)]
                                     : graph::InputKind::Saved);
    }
    for (const Value* value : plan_.saved) add_backward_input(value, graph::InputKind::Saved);
    for (const Value* input : used_tangents()) {
      add_backward_input(input, graph::InputKind::Tangent);
      inputs_.push_back({BackwardInput::Kind::Tangent, input->index});
    }
    for (const int32_t node : plan_.order) backward_.add_node(*joint_.nodes[static_cast<size_t>(node)]);
    Graph& backward = backward_.graph();
    for (size_t i = joint_.n_forward; i < joint_.graph.outputs.size(); ++i) {
      const Value* gradient = joint_.graph.outputs[i];
      backward.outputs.push_back(gradient == nullptr ? nullptr : backward_.get(gradient));
    }
    backward.size_inputs = graph::size_symbols(backward);
  }

  void add_backward_input(const Value* value, graph::InputKind kind) {
    TensorType type = value->type;
    type.requires_grad = false;
    if (kind == graph::InputKind::Saved) type.offset = 0;
    backward_.add_input(value, kind, std::move(type));
  }

  std::vector<const Value*> used_tangents() const {
    std::unordered_set<const Value*> used;
    for (size_t i = 0; i < joint_.nodes.size(); ++i) {
      if (joint_.sides[i] != Side::Backward) continue;
      for (const Argument& argument : joint_.nodes[i]->arguments)
        graph::for_each_value(argument, [&](const Value* value) {
          if (value->producer == nullptr) used.insert(value);
        });
    }
    for (size_t i = joint_.n_forward; i < joint_.graph.outputs.size(); ++i) used.insert(joint_.graph.outputs[i]);
    std::vector<const Value*> out;
    for (const Value* input : joint_.graph.inputs)
      if (joint_.is_tangent(input) && used.contains(input)) out.push_back(input);
    return out;
  }

  const Joint& joint_;
  BackwardPlan plan_;
  Copy forward_, backward_;
  std::vector<BackwardInput> inputs_;
};

}  // namespace

Result<Partitioned> split(const Joint& joint, const std::vector<bool>& saved) {
  return Splitter(joint, BackwardPlan(joint, saved))();
}

}  // namespace braze::partition
