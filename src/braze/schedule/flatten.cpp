// Bodies of real buffers in terms of real buffers: loads of others are replaced by what these compute.
#include <algorithm>
#include <unordered_set>

#include "braze/schedule/failure.h"
#include "braze/schedule/tidy.h"

namespace braze::schedule {
namespace {

class Flattener {
 public:
  explicit Flattener(Work& work) : work_(work) {}

  const Scalar* run(const Scalar* body) { return rewrite(body, {}, {}); }

 private:
  bool is_written_in(int32_t id) const { return work_.is_computed(id) && !work_.at(id).real; }

  // `scope`: bindings whose symbols may stand in the replaced indices.
  const Scalar* rewrite(const Scalar* body, const Substitution& symbols, std::span<const Binding> scope) {
    return work_.scalars.rewrite(
        body, symbols,
        [&](const Scalar& load, const std::vector<Expr>& indices, const std::vector<Binding>& bindings) {
          std::vector<Binding> all(scope.begin(), scope.end());
          for (const Binding& binding : bindings)
            if (std::ranges::find(all, binding) == all.end()) all.push_back(binding);
          if (!is_written_in(load.buffer))
            return all.size() == bindings.size() ? nullptr
                                                 : work_.scalars.load(load.buffer, load.dtype, indices, std::move(all));
          const Buffer& producer = work_.buffer(load.buffer);
          Substitution inner;
          for (size_t k = 0; k < indices.size(); ++k)
            if (producer.axes[k].symbol != indices[k]) inner.emplace_back(producer.axes[k].symbol, indices[k]);
          const Scalar* value = rewrite(producer.body, inner, all);
          if (!keeps_checks(value, bindings)) throw KernelFailure("an index would not be checked", {load.buffer});
          return value;
        });
  }

  Work& work_;
};

bool reads_unreal(const Work& work, const Scalar* body) {
  bool found = false;
  visit(body, [&](const Scalar& s) {
    found |= s.op == ScalarOp::Load && work.is_computed(s.buffer) && !work.at(s.buffer).real;
  });
  return found;
}

}  // namespace

void flatten(Work& work) {
  work.statements.resize(work.buffers.size());
  Flattener flattener(work);
  for (const int32_t id : work.order) {
    const Buffer& b = work.buffer(id);
    if (!work.at(id).real) continue;
    Statement& statement = work.statement(id);
    std::unordered_set<const Scalar*> seen;
    for (const Scalar* body : bodies_of(b)) {
      const Scalar* flat = tidy(work, reads_unreal(work, body) ? flattener.run(body) : body);
      statement.bodies.push_back(flat);
      visit(flat, [&](const Scalar& s) {
        if (s.op == ScalarOp::Load && seen.insert(&s).second) statement.reads.push_back({s.buffer, &s});
      });
    }
  }
}

}  // namespace braze::schedule
