#include "braze/graph/foreach.h"

#include <array>

#include "braze/support/check.h"

namespace braze::graph {

const Op* each_op(const Op* many) {
  switch (many->id) {
#define FOREACH(id, each) \
  case OpId::id: return op(OpId::each);
#include "braze/graph/foreach.def"
#undef FOREACH
    default: return nullptr;
  }
}

std::vector<Argument> each_arguments(const Op* many, const std::vector<Argument>& arguments, size_t i) {
  std::vector<Argument> out;
  for (const Argument& argument : arguments) {
    const auto* list = std::get_if<ArgumentList>(&argument.v);
    out.push_back(list == nullptr ? argument : (*list)[i]);
  }
  if (many->id == OpId::_foreach_norm_Scalar) {   // over all dimensions, none of which stays
    const Argument dtype = out.back();
    out.back() = None{};
    out.insert(out.end(), {false, dtype});
  }
  const Op* each = each_op(many);
  while (out.size() < each->arguments.size()) {
    std::optional<Argument> value = default_of(each->arguments[out.size()]);
    CHECK(value.has_value(), each->name);
    out.push_back(std::move(*value));
  }
  return out;
}

std::optional<size_t> each_count(const std::vector<Argument>& arguments) {
  std::optional<size_t> count;
  for (const Argument& argument : arguments) {
    const auto* list = std::get_if<ArgumentList>(&argument.v);
    if (list == nullptr) continue;
    if (count && *count != list->size()) return std::nullopt;
    count = list->size();
  }
  return count;
}

}  // namespace braze::graph
