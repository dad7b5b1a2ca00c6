#include "braze/schedule/work.h"

#include <algorithm>

namespace braze::schedule {

Work::Work(std::shared_ptr<loop::LoopProgram> program, const Target& machine, const ScheduleOptions& choices)
    : loops(std::move(program)), target(machine), options(choices), env(*loops->env), context(env.context()),
      scalars(*loops->scalars) {
  buffers.reserve(loops->buffers.size());
  for (const Buffer& b : loops->buffers) buffers.push_back(&b);
  for (Expr symbol : env.symbols()) size_hints.emplace(symbol, env.hint(symbol));
}

int64_t Work::hint_of_node(Expr e) const {
  return sym::evaluate(e, [&](Expr symbol) {
    const auto it = size_hints.find(symbol);
    return it == size_hints.end() ? 0 : it->second;
  });
}

bool Work::is_size(Expr e) const {
  std::vector<Expr> symbols;
  sym::collect_symbols(e, symbols);
  for (Expr symbol : symbols)
    if (!size_hints.contains(symbol)) return false;
  return true;
}

double Work::hint_numel(std::span<const loop::Axis> axes) const {
  double n = 1;
  for (const loop::Axis& axis : axes) n *= static_cast<double>(hint(axis.extent));
  return n;
}

Expr Work::inner_symbol(Expr row, Expr extent) {
  const auto [it, is_new] = inner_symbols.try_emplace(row);
  if (is_new) it->second = context.fresh_index("q", extent);
  return it->second;
}

bool Work::equal(Expr a, Expr b) const {
  if (a == b) return true;
  if (a.is_constant() && b.is_constant()) return false;
  return env.known(sym::eq(a, b)).value_or(false);
}

std::vector<const Scalar*> bodies_of(const Buffer& buffer) {
  std::vector<const Scalar*> out;
  if (buffer.body != nullptr) out.push_back(buffer.body);
  for (const loop::Piece& piece : buffer.pieces) out.push_back(piece.body);
  if (buffer.update != nullptr) out.push_back(buffer.update);
  for (const Binding& binding : buffer.update_bindings) out.push_back(binding.value);
  return out;
}

namespace {

bool depends_on_axis(const Buffer& producer, Expr axis) {
  bool found = false;
  for (const Scalar* body : bodies_of(producer))
    visit(body, [&](const Scalar& s) {
      found |= std::ranges::any_of(s.indices, [&](Expr e) { return sym::depends_on(e, axis); });
    });
  return found;
}

}  // namespace

bool loses_check(const Scalar& load, const Buffer& producer) {
  for (const Binding& binding : load.bindings)
    for (size_t k = 0; k < load.indices.size(); ++k)
      if (sym::depends_on(load.indices[k], binding.symbol) && !depends_on_axis(producer, producer.axes[k].symbol))
        return true;
  return false;
}

bool keeps_checks(const Scalar* value, const std::vector<Binding>& bindings) {
  std::vector<Binding> missing = bindings;
  visit(value, [&](const Scalar& s) {
    std::erase_if(missing, [&](const Binding& b) { return std::ranges::find(s.bindings, b) != s.bindings.end(); });
  });
  return missing.empty();
}

}  // namespace braze::schedule
