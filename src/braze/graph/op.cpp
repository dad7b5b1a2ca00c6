#include "braze/graph/op.h"

#include <array>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "braze/graph/schema.h"
#include "braze/support/check.h"

namespace braze::graph {
namespace {

struct Row {
  const char* schema;
  uint32_t flags;
};
constexpr auto kRows = std::to_array<Row>({
    {nullptr, 0},
#define OP(id, schema, rule, flags) {schema, flags},
#include "braze/graph/ops.def"
#undef OP
});

// Known ops first, in the order of OpId; deque, so that pointers stay.
struct Table {
  std::mutex mutex;
  std::deque<Op> ops;
  std::array<const Op*, kRows.size()> known{};
  std::unordered_map<std::string_view, const Op*> by_name;

  Table() {
    for (size_t i = 1; i < kRows.size(); ++i) {
      Op parsed = parse_schema(kRows[i].schema);
      parsed.id = static_cast<OpId>(i);
      parsed.flags = kRows[i].flags;
      known[i] = insert(std::move(parsed));
    }
  }
  const Op* insert(Op parsed) {
    const Op& kept = ops.emplace_back(std::move(parsed));
    CHECK(by_name.emplace(kept.name, &kept).second, "op " << kept.name << " twice");
    return &kept;
  }
};

Table& table() {
  static Table* const kept = new Table;  // never destroyed: graphs of other static objects may outlive it
  return *kept;
}

}  // namespace

std::string_view OpArgument::base_type() const { return std::string_view(type).substr(0, type.find_first_of("[?")); }

int Op::argument_index(std::string_view argument_name) const {
  for (size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].name == argument_name) return static_cast<int>(i);
  return -1;
}

const Op* op(OpId id) {
  CHECK(id != OpId::Unknown);
  return table().known[static_cast<size_t>(id)];
}

const Op* find_op(std::string_view name) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  const auto it = t.by_name.find(name);
  return it == t.by_name.end() ? nullptr : it->second;
}

const Op* intern_op(std::string_view schema, uint32_t extra_flags) {
  Op parsed = parse_schema(schema);
  Table& t = table();
  std::lock_guard lock(t.mutex);
  if (const auto it = t.by_name.find(parsed.name); it != t.by_name.end()) return it->second;
  parsed.flags = extra_flags;
  return t.insert(std::move(parsed));
}

}  // namespace braze::graph
