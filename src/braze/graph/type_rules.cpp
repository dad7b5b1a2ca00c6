#include "braze/graph/type_rules.h"

namespace braze::graph {

bool has_type_rule(const Op*) { return false; }

Result<std::vector<TensorType>> infer_types(const Op* op, const std::vector<Argument>&, const TypeContext&) {
  return Unsupported{"no native type rule for " + op->name, ""};
}

}  // namespace braze::graph
