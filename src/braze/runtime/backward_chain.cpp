#include "braze/runtime/backward_chain.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "braze/trace/torch_compat.h"

namespace braze::runtime {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

namespace {

class ChainNode final : public torch::autograd::Node {
 public:
  ChainNode(std::shared_ptr<BackwardChain> chain, size_t part, edge_list edges)
      : Node(std::move(edges)), chain_(std::move(chain)), part_(part) {
    add_input_metadata(new_token());
  }
  std::string name() const override { return "CompiledRegionBackward"; }
  variable_list apply(variable_list&& gradients) override { return chain_->go_on(part_, gradients[0]); }
  static at::Tensor new_token() { return at::empty({0}); }

 private:
  std::shared_ptr<BackwardChain> chain_;
  size_t part_;
};

// The edges of a part, without the one that goes on.
edge_list edges_of(size_t part, const BackwardParts& parts, const edge_list& edges) {
  edge_list out;
  for (size_t i = 0; i < edges.size(); ++i)
    if (parts.part_of[i] == part) out.push_back(edges[i]);
  return out;
}

}  // namespace

bool hooks_wait(const edge_list& edges) {
  return std::any_of(edges.begin(), edges.end(), [](const Edge& edge) {
    auto* accumulate = dynamic_cast<torch::autograd::AccumulateGrad*>(edge.function.get());
    return accumulate != nullptr &&
           (!accumulate->post_hooks().empty() || accumulate->tensor_post_acc_grad_hooks() != nullptr);
  });
}

BackwardParts split_backward(const std::vector<int32_t>& last_uses, const std::vector<int64_t>& bytes) {
  constexpr int64_t kMostParts = 8, kLeastBytes = int64_t{1} << 18;
  BackwardParts parts;
  parts.part_of.resize(bytes.size());
  std::vector<size_t> order(last_uses.empty() ? 0 : bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return last_uses[a] < last_uses[b]; });
  const int64_t share = std::max(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}) / kMostParts, kLeastBytes);
  int64_t collected = 0;
  for (size_t k = 0; k < order.size(); ++k) {
    parts.part_of[order[k]] = parts.count();
    collected += bytes[order[k]];
    if (k + 1 == order.size() || collected < share || last_uses[order[k + 1]] == last_uses[order[k]]) continue;
    parts.last_steps.push_back(last_uses[order[k]]);
    collected = 0;
  }
  parts.last_steps.push_back(std::numeric_limits<int32_t>::max());   // to the end of the program
  return parts;
}

variable_list BackwardChain::begin(BackwardPass pass) {
  pass.token = ChainNode::new_token();
  return run(0, std::move(pass));
}

variable_list BackwardChain::go_on(size_t part, const at::Tensor& token) {
  BackwardPass pass;
  {
    const std::lock_guard lock(mutex_);
    const auto found = token.defined() ? passes_.find(token.unsafeGetTensorImpl()) : passes_.end();
    TORCH_CHECK(found != passes_.end(), "braze: a part of a compiled backward pass runs without the one before it");
    pass = std::move(found->second);
    passes_.erase(found);
  }
  return run(part, std::move(pass));
}

variable_list BackwardChain::run(size_t part, BackwardPass pass) {
  if (pass.run) pass.run->run_to(parts_->last_steps[part]);
  variable_list out;
  for (size_t i = 0; i < parts_->part_of.size(); ++i) {
    if (parts_->part_of[i] != part) continue;
    at::Tensor gradient = pass.run ? pass.run->take(i) : pass.results[i];
    out.push_back(pass.took_part[i] ? std::move(gradient) : at::Tensor());
  }
  if (part + 1 == parts_->count()) return out;
  out.push_back(pass.token);
  const std::lock_guard lock(mutex_);
  passes_[out.back().unsafeGetTensorImpl()] = std::move(pass);
  return out;
}

edge_list make_chain(const std::shared_ptr<BackwardChain>& chain, const BackwardParts& parts, const edge_list& edges) {
  edge_list out;
  for (size_t part = parts.count(); part-- > 0;) {
    edge_list own = edges_of(part, parts, edges);
    if (part + 1 < parts.count()) own.push_back(out.front());
    if (part == 0) return own;
    out = {Edge(trace::make_autograd_node<ChainNode>(chain, part, std::move(own)), 0)};
  }
  return out;
}

}  // namespace braze::runtime
