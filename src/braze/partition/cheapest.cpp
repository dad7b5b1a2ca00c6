#include <algorithm>

#include "braze/partition/choose.h"
#include "braze/partition/cost.h"
#include "braze/partition/min_cut.h"
#include "braze/support/check.h"

namespace braze::partition {

using graph::Node;
using graph::Value;

namespace {

// The network. A node on the sink side runs again in the backward pass; memory on the sink side is there in the
// backward pass; memory on the sink side whose node is on the source side is saved.
//   source -> node             the work of running it again
//   node -> memory             the bytes of saving it
//   memory of operand -> node  infinite: running again needs the operands
//   memory -> sink             infinite: the backward pass uses it
// A view is its operand's memory.
class Network {
 public:
  Network(const Joint& joint, const Rules& rules)
      : joint_(joint), rules_(rules), env_(*joint.graph.env), vertices_(joint.n_ids(), -1),
        nodes_(joint.nodes.size(), -1), materialized_(joint.n_ids(), false) {}

  ValueSet operator()() {
    find_materialized();
    // A walk up from what the backward pass uses. Vertices are numbered as they are met; edges wait until all are.
    joint_.for_each_need([&](const Value* value) { edges_.push_back({memory(value), kSink, MinCut::kInfinite}); });
    while (!open_.empty()) {
      const Value* value = open_.back();
      open_.pop_back();
      connect(value);
    }
    MinCut cut(static_cast<size_t>(count_));
    for (const Edge& edge : edges_) cut.add_edge(edge.from, edge.to, edge.capacity);
    CHECK(cut.run(kSource, kSink) < MinCut::kInfinite, "nothing separates the forward from the backward pass");
    ValueSet saved(joint_.n_ids(), false);
    for (const Value* value : met_) {
      const int32_t node = joint_.producer(value);
      if (node < 0) continue;
      const bool there = cut.on_sink_side(vertices_[static_cast<size_t>(value->id)]);
      saved[static_cast<size_t>(value->id)] = there && !cut.on_sink_side(nodes_[static_cast<size_t>(node)]);
    }
    return saved;
  }

 private:
  static constexpr int32_t kSource = 0, kSink = 1;
  struct Edge { int32_t from, to; int64_t capacity; };

  int32_t memory(const Value* value) {
    value = owner(value);
    int32_t& vertex = vertices_[static_cast<size_t>(value->id)];
    if (vertex < 0) {
      vertex = count_++;
      met_.push_back(value);
      open_.push_back(value);
    }
    return vertex;
  }

  void connect(const Value* value) {
    const int32_t vertex = vertices_[static_cast<size_t>(value->id)];
    const int32_t number = joint_.producer(value);
    if (number < 0) {
      edges_.push_back({kSource, vertex, input_price(value)});
      return;
    }
    const auto i = static_cast<size_t>(number);
    const int64_t bytes = std::max<int64_t>(bytes_of(env_, value->type), 1);
    if (nodes_[i] < 0) {
      nodes_[i] = may_run_again(i) ? count_++ : kSource;
      if (nodes_[i] != kSource) connect_node(i);
    }
    edges_.push_back({nodes_[i], vertex, rules_.must[i] ? MinCut::kInfinite : bytes});
  }

  void connect_node(size_t i) {
    const Node& node = *joint_.nodes[i];
    edges_.push_back({kSource, nodes_[i], price_again(i)});
    for (const graph::Argument& argument : node.arguments)
      graph::for_each_value(argument, [&](const Value* operand) {
        edges_.push_back({memory(operand), nodes_[i], MinCut::kInfinite});
      });
  }

  bool may_run_again(size_t i) const {
    if (rules_.must[i]) return true;
    return !rules_.never[i] && again(*joint_.nodes[i]) == Again::Cheap;
  }

  int64_t price_again(size_t i) const {
    const Node& node = *joint_.nodes[i];
    if (rules_.must[i] || joint_.sides[i] == Side::Either) return 0;
    const bool in_memory = std::ranges::any_of(
        node.results, [&](const Value* result) { return materialized_[static_cast<size_t>(result->id)]; });
    return in_memory && !node.op->has(graph::kFactory) ? work_of(env_, node) : fused_work_of(env_, node);
  }

  // What a library call of the backward pass reads has to be in memory: making it again is no cheaper than keeping it.
  void find_materialized() {
    for (size_t i = 0; i < joint_.nodes.size(); ++i) {
      const Node& node = *joint_.nodes[i];
      if (joint_.sides[i] != Side::Backward || again(node) == Again::Cheap || is_view(node)) continue;
      for (const graph::Argument& argument : node.arguments)
        graph::for_each_value(argument, [&](const Value* value) {
          materialized_[static_cast<size_t>(owner(value)->id)] = true;
        });
    }
  }
  // The caller keeps parameters, and autograd keeps what it saves itself; other inputs may be changed or freed before
  // the backward pass runs.
  int64_t input_price(const Value* value) const {
    const auto number = static_cast<size_t>(value->index);
    const bool is_kept = joint_.graph.input_kinds[number] != graph::InputKind::User ||
                         rules_.eager[static_cast<size_t>(value->id)];
    return is_kept && !joint_.mutated[number] ? 0 : std::max<int64_t>(bytes_of(env_, value->type), 1);
  }

  const Joint& joint_;
  const Rules& rules_;
  const sym::ShapeEnv& env_;
  int32_t count_ = 2;
  std::vector<int32_t> vertices_;      // of memory, by value id
  std::vector<int32_t> nodes_;         // vertex of each node; kSource: it runs once
  ValueSet materialized_;
  std::vector<const Value*> met_, open_;
  std::vector<Edge> edges_;
};

}  // namespace

ValueSet cheapest(const Joint& joint, const Rules& rules) { return Network(joint, rules)(); }

}  // namespace braze::partition
