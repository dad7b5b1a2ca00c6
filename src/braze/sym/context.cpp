// Interning of expression nodes.
#include <algorithm>
#include <unordered_map>

#include "braze/support/arena.h"
#include "braze/support/check.h"
#include "braze/support/hash.h"
#include "braze/sym/expr.h"
#include "braze/sym/range.h"
#include "braze/sym/terms.h"

namespace braze::sym {
namespace {

uint64_t hash_of(Op op, std::span<const Expr> operands) {
  uint64_t h = static_cast<uint64_t>(op) + 1;
  for (const Expr& operand : operands) h = mix(h, operand.hash());
  return h;
}

Range range_of_node(Op op, std::span<const Expr> operands) {
  Range r = operands[0].range();
  switch (op) {
    case Op::Add:
      for (const Expr& operand : operands.subspan(1)) r = add(r, operand.range());
      return r;
    case Op::Mul: {
      // Even powers of one factor are never negative, which plain interval products do not see.
      for (size_t i = 1; i < operands.size(); ++i) {
        Range next = operands[i].range();
        r = multiply(r, next);
      }
      if (operands.size() == 2 && operands[0] == operands[1]) r.low = std::max<int64_t>(r.low, 0);
      return r;
    }
    case Op::FloorDiv:
      return floor_div(r, operands[1].range());
    case Op::Mod:
      return mod(r, operands[1].range());
    case Op::Min:
      for (const Expr& operand : operands.subspan(1)) r = min(r, operand.range());
      return r;
    case Op::Max:
      for (const Expr& operand : operands.subspan(1)) r = max(r, operand.range());
      return r;
    case Op::Eq:
    case Op::Ne:
    case Op::Lt:
    case Op::Le:
    case Op::And:
    case Op::Or:
    case Op::Not:
      return {0, 1};
    case Op::Constant:
    case Op::Symbol:
      break;
  }
  return {};
}

}  // namespace

struct Context::Impl {
  Arena arena;
  std::vector<const Node*> table = std::vector<const Node*>(64);  // open addressing, a power of two
  size_t used = 0;
  uint32_t next_id = 0;
  uint32_t next_symbol = 0;
  std::unordered_map<std::string, Node*> symbols;
  std::unordered_map<std::string, int64_t> next_fresh;

  void insert(const Node* node) {
    if (++used * 2 > table.size()) {
      std::vector<const Node*> old(table.size() * 2);
      old.swap(table);
      for (const Node* entry : old)
        if (entry != nullptr) place(entry);
    }
    place(node);
  }
  void place(const Node* node) {
    size_t i = node->hash & (table.size() - 1);
    while (table[i] != nullptr) i = (i + 1) & (table.size() - 1);
    table[i] = node;
  }
};

Context::Context() : impl_(std::make_unique<Impl>()) {}
Context::~Context() = default;

size_t Context::size() const { return impl_->next_id; }

Expr Context::symbol(std::string_view name, Range range) {
  auto [it, is_new] = impl_->symbols.try_emplace(std::string(name));
  if (is_new) {
    Node* node = impl_->arena.make<Node>();
    node->op = Op::Symbol;
    node->context = this;
    node->id = impl_->next_id++;
    node->hash = hash_bytes(name, 17);
    node->symbol_mask = 1ull << (impl_->next_symbol++ & 63);
    node->range = range;
    node->name = name;
    node->monomial = node;
    it->second = node;
  }
  return Expr(it->second);
}

Expr Context::fresh(std::string_view prefix, Range range) {
  int64_t& number = impl_->next_fresh[std::string(prefix)];
  std::string name;
  do {
    name = std::string(prefix) + std::to_string(number++);
  } while (impl_->symbols.contains(name));
  return symbol(name, range);
}

Expr Context::index(std::string_view name, Expr extent) {
  const int64_t high = extent.range().high;
  Expr symbol_expr = symbol(name, {0, high == kInf ? kInf : std::max<int64_t>(high - 1, 0)});
  if (!extent.is_constant()) impl_->symbols.at(std::string(name))->extent = extent;
  return symbol_expr;
}

Expr Context::fresh_index(std::string_view prefix, Expr extent) {
  const std::string name = fresh(prefix, {0, kInf}).symbol_name();
  const int64_t high = extent.range().high;
  Node* node = impl_->symbols.at(name);
  node->range = {0, high == kInf ? kInf : std::max<int64_t>(high - 1, 0)};
  if (!extent.is_constant()) node->extent = extent;
  return Expr(node);
}

void Context::set_range(Expr symbol, Range range) {
  CHECK(symbol.is_symbol());
  CHECK(range.low <= range.high);
  impl_->symbols.at(symbol.symbol_name())->range = range;
}

const Node* Context::intern(Op op, std::span<const Expr> operands) {
  CHECK(!operands.empty());
  const uint64_t hash = hash_of(op, operands);
  size_t i = hash & (impl_->table.size() - 1);
  for (; impl_->table[i] != nullptr; i = (i + 1) & (impl_->table.size() - 1)) {
    const Node* node = impl_->table[i];
    if (node->hash == hash && node->op == op && std::ranges::equal(node->operands, operands)) return node;
  }
  Node* node = impl_->arena.make<Node>();
  node->op = op;
  node->context = this;
  node->id = impl_->next_id++;
  node->hash = hash;
  node->symbol_mask = 0;
  for (const Expr& operand : operands)
    if (!operand.is_constant()) {
      CHECK(operand.node()->context == this, "an expression of another Context");
      node->symbol_mask |= operand.node()->symbol_mask;
    }
  node->range = range_of_node(op, operands);
  node->operands.assign(operands.begin(), operands.end());
  impl_->insert(node);
  node->monomial = node;
  if (op == Op::Mul && operands[0].is_constant()) {
    node->coefficient = operands[0].constant();
    node->monomial = operands.size() == 2 ? operands[1].node() : intern(Op::Mul, operands.subspan(1));
  }
  return node;
}

}  // namespace braze::sym
