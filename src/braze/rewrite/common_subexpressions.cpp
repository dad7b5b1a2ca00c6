#include <bit>
#include <unordered_map>

#include "braze/rewrite/pass_manager.h"
#include "braze/rewrite/storage.h"
#include "braze/support/hash.h"

namespace braze::rewrite {

using graph::Argument;
using graph::Node;
using graph::Value;

namespace {

uint64_t hash_of(const Argument& argument);

struct HashArgument {
  uint64_t operator()(graph::None) const { return 1; }
  uint64_t operator()(const Value* value) const {
    return value == nullptr ? 2 : static_cast<uint64_t>(value->id) + 100;
  }
  uint64_t operator()(const sym::Expr& e) const { return e.hash(); }
  uint64_t operator()(double x) const { return std::bit_cast<uint64_t>(x); }
  uint64_t operator()(bool x) const { return x ? 3 : 4; }
  uint64_t operator()(const std::complex<double>& x) const { return mix((*this)(x.real()), (*this)(x.imag())); }
  uint64_t operator()(const std::string& x) const { return hash_bytes(x); }
  uint64_t operator()(DType x) const { return static_cast<uint64_t>(x); }
  uint64_t operator()(const Device& x) const { return static_cast<uint64_t>(x.kind); }
  uint64_t operator()(const graph::Layout& x) const { return static_cast<uint64_t>(x.value); }
  uint64_t operator()(const graph::MemoryFormat& x) const { return static_cast<uint64_t>(x.value); }
  uint64_t operator()(const graph::Opaque& x) const { return static_cast<uint64_t>(x.slot); }
  uint64_t operator()(const graph::ArgumentList& list) const {
    uint64_t h = list.size();
    for (const Argument& item : list) h = mix(h, hash_of(item));
    return h;
  }
};

uint64_t hash_of(const Argument& argument) { return mix(argument.v.index(), std::visit(HashArgument{}, argument.v)); }

// Numbers are equal if their bits are: -0.0 is not 0.0, and NaN is NaN.
bool equal(const Argument& a, const Argument& b) {
  if (a.v.index() != b.v.index()) return false;
  if (a.is<double>()) return std::bit_cast<uint64_t>(a.as<double>()) == std::bit_cast<uint64_t>(b.as<double>());
  if (a.is<std::complex<double>>()) {
    auto x = a.as<std::complex<double>>(), y = b.as<std::complex<double>>();
    return equal(x.real(), y.real()) && equal(x.imag(), y.imag());
  }
  if (a.is<graph::ArgumentList>()) {
    const auto &x = a.as<graph::ArgumentList>(), &y = b.as<graph::ArgumentList>();
    return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), equal);
  }
  return a == b;
}

bool has_object(const Argument& argument) {
  if (argument.is<graph::Opaque>()) return true;
  if (!argument.is<graph::ArgumentList>()) return false;
  for (const Argument& item : argument.as<graph::ArgumentList>())
    if (has_object(item)) return true;
  return false;
}

// Operators of libraries other than ATen may hide state: their calls are never joined.
bool may_join(const Node& node) {
  if (node.results.empty() || node.order_after != nullptr || node.op->has(graph::kRandom) ||
      node.op->has(graph::kSideEffect) || !node.op->name.starts_with("aten."))
    return false;
  for (const Argument& argument : node.arguments)
    if (has_object(argument)) return false;
  return true;
}

bool same_computation(const Node& a, const Node& b) {
  if (a.op != b.op || a.tags != b.tags || a.results.size() != b.results.size() ||
      !std::equal(a.arguments.begin(), a.arguments.end(), b.arguments.begin(), b.arguments.end(), equal))
    return false;
  for (size_t i = 0; i < a.results.size(); ++i)
    if (!(a.result(i)->type == b.result(i)->type)) return false;
  return true;
}

}  // namespace

bool common_subexpressions(graph::Graph& graph) {
  Storages storages(graph);
  std::unordered_multimap<uint64_t, Node*> seen;
  bool changed = false;
  for (auto it = graph.nodes.begin(); it != graph.nodes.end();) {
    Node* node = *it++;
    if (!may_join(*node)) continue;
    uint64_t h = reinterpret_cast<uintptr_t>(node->op);
    for (const Argument& argument : node->arguments) h = mix(h, hash_of(argument));
    Node* earlier = nullptr;
    for (auto [at, end] = seen.equal_range(h); at != end && earlier == nullptr; ++at)
      if (same_computation(*at->second, *node)) earlier = at->second;
    if (earlier == nullptr) {
      seen.emplace(h, node);
      continue;
    }
    bool may = true;
    for (size_t i = 0; i < node->results.size(); ++i)
      may = may && storages.may_merge(node->result(i), earlier->result(i));
    if (!may) continue;
    for (size_t i = 0; i < node->results.size(); ++i) {
      graph.replace_uses(node->result(i), earlier->result(i));
      storages.merged(node->result(i), earlier->result(i));
    }
    graph.erase(node);
    changed = true;
  }
  return changed;
}

}  // namespace braze::rewrite
