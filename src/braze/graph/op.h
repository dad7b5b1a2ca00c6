// Op: an interned operator. Known ops have a row in ops.def (schema, type rule, flags); any other operator that a
// trace meets is interned from its schema text and is an opaque call: typed by the trace, scheduled around, run by ATen.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace braze::graph {

struct OpArgument {
  std::string name;
  std::string type;            // schema type without alias marks and list sizes: "Tensor?", "int[]", "SymInt", ...
  std::string alias;           // alias mark: "a", "a!", "a -> *"; "" : none
  std::string default_text;    // "" : required
  int list_size = 0;           // 2 for "int[2]": a single number stands for that many
  bool keyword_only = false;
  // What the rules ask for most, read off the type: a tensor ("Tensor", "Tensor?"), a number ("Scalar", "Scalar?").
  bool is_tensor = false, is_scalar = false;
  bool is_written() const { return alias.find('!') != std::string::npos; }
  // "Tensor", "Tensor?", "Tensor[]", "Tensor?[]": the name without ? and [].
  std::string_view base_type() const;
  bool is_list() const { return type.find("[]") != std::string::npos; }
  bool is_optional() const { return type.back() == '?'; }
};

enum OpFlag : uint32_t {
  kPointwise = 1 << 0,      // elementwise with broadcasting
  kReduction = 1 << 1,
  kView = 1 << 2,           // the result shares the operand's memory; free
  kRandom = 1 << 3,         // draws numbers: keeps its order and is never merged or removed
  kSideEffect = 1 << 4,     // never removed
  kMayAlias = 1 << 5,       // the result may be the operand itself (contiguous, reshape, to)
  kPrimitive = 1 << 6,      // has a lowering to loop IR
  kFactory = 1 << 7,        // no tensor operand
  kLibrary = 1 << 8,        // best run by a library or a template (mm, conv, attention)
};

enum class OpId : uint16_t {
  Unknown,
#define OP(id, schema, rule, flags) id,
#include "braze/graph/ops.def"
#undef OP
  kCount
};

struct Op {
  OpId id;                            // Unknown: opaque
  std::string name;                   // "aten.add.Tensor", "braze.cast"; overload "" prints as "aten.relu"
  std::string schema;                 // full schema text, as torch prints it
  std::vector<OpArgument> arguments;
  std::vector<std::string> returns;   // schema types of the results
  uint32_t flags = 0;
  bool has(OpFlag flag) const { return (flags & flag) != 0; }
  int argument_index(std::string_view name) const;   // -1: none
};

const Op* op(OpId id);
// By printed name; nullptr if never interned.
const Op* find_op(std::string_view name);
// Interns from schema text "aten::foo.bar(Tensor self, int[] dim=[1]) -> Tensor". A known name gives its row's Op.
// Thread-safe; Ops live as long as the process. Throws std::invalid_argument on bad text.
const Op* intern_op(std::string_view schema, uint32_t extra_flags = 0);

}  // namespace braze::graph
