// Tensor IR: functional SSA over tensors, arena-owned. Nodes stand in execution order in one list.
//
//   graph @name(%x: f32[s0, 32]@cpu) {
//     %0 = aten.add.Tensor(%x, 2.0) : f32[s0, 32]
//     return %0
//   }
//
// Every node calls an Op (see op.h) with arguments in the order of the op's schema. A node has one Value per tensor
// that the op returns (a TensorList result counts each tensor). The graph is functional: no node writes an operand;
// mutations of inputs are listed in Graph::mutations and are carried out at the end.
#pragma once

#include <complex>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "braze/graph/op.h"
#include "braze/support/arena.h"
#include "braze/support/dtype.h"
#include "braze/sym/shape_env.h"

namespace braze::graph {

using sym::Expr;
using Shape = std::vector<Expr>;

struct TensorType {
  DType dtype = DType::F32;
  Shape sizes;
  Shape strides;            // in elements; size() == sizes.size()
  Expr offset = 0;          // storage offset in elements; non-zero only for views and inputs
  Device device;
  bool requires_grad = false;
  bool defined = true;      // false: an undefined tensor result that keeps its position
  bool wrapped_number = false;  // a 0-dim tensor made from a Python number: weak in promotion
  bool is_strided = true;   // false: sparse, quantized, ... ; sizes only, and only opaque calls may use it
  bool operator==(const TensorType&) const = default;
  int64_t dim() const { return static_cast<int64_t>(sizes.size()); }
};

Shape contiguous_strides(const Shape& sizes);
bool is_contiguous(const TensorType& type);      // by what is known; unknown counts as no
Expr numel(const Shape& sizes);

struct Node;
struct Graph;

struct Value {
  Node* producer = nullptr;   // nullptr: an input of the graph
  int32_t index = 0;          // result number of the producer, or input number
  int32_t id = 0;             // %id; unique in the graph
  std::string name;           // of inputs and of values named in text; else empty
  TensorType type;
  std::vector<Node*> users;   // a node that uses the value twice stands twice
};

// None, a tensor (null Value*: an undefined tensor), numbers, and lists of these.
struct MemoryFormat { int8_t value; bool operator==(const MemoryFormat&) const = default; };  // 0 contiguous, 1 preserve, 2 channels_last, 3 channels_last_3d
struct Layout { int8_t value; bool operator==(const Layout&) const = default; };              // c10::Layout's number
struct None { bool operator==(const None&) const = default; };
struct Opaque { int32_t slot; std::string text; bool operator==(const Opaque&) const = default; };  // a Generator or other object; the graph's owner keeps slot -> object

struct Argument;
using ArgumentList = std::vector<Argument>;
struct Argument {
  std::variant<None, Value*, Expr, double, bool, std::complex<double>, std::string, DType, Device, Layout,
               MemoryFormat, Opaque, ArgumentList>
      v;

  Argument() = default;
  template <class T>
    requires(!std::is_same_v<std::decay_t<T>, Argument>)
  Argument(T&& value) : v(std::forward<T>(value)) {}  // NOLINT

  template <class T> bool is() const { return std::holds_alternative<T>(v); }
  template <class T> const T& as() const { return std::get<T>(v); }
  template <class T> T& as() { return std::get<T>(v); }
  bool is_none() const { return is<None>(); }
  bool operator==(const Argument&) const = default;
};

struct Node {
  const Op* op = nullptr;
  std::vector<Argument> arguments;      // one per schema argument
  std::vector<Value*> results;
  Graph* owner = nullptr;
  std::list<Node*>::iterator place;     // in Graph::nodes
  Node* order_after = nullptr;          // random and effectful nodes: the previous one (an order edge)
  std::string origin;                   // the user's source line, "file.py:12 in forward"; may be empty
  uint32_t tags = 0;                    // kRecompute, ...

  Value* result(size_t i = 0) const { return results[i]; }
  const Argument& argument(std::string_view name) const;   // by schema name
};
enum NodeTag : uint32_t {
  kRecompute = 1,   // of a checkpoint: computed again for the backward pass, not saved
  kBackward = 2,    // only the backward pass needs it
  kNoGrad = 4,      // of a joint graph: recorded where the program had autograd off
};

enum class InputKind : uint8_t { User, Parameter, Buffer, Constant, Tangent, Saved };

struct Mutation { int32_t input; Value* value; bool under_no_grad = true; };          // input gets value's contents at the end
struct OutputAlias {                                                                  // output is a view of an input or of another output
  int32_t output;
  int32_t input = -1;           // >= 0: views that input; the whole input itself if `same_object`
  int32_t base_output = -1;     // >= 0: views output number base_output
  bool same_object = false;
  Shape sizes, strides; Expr offset = 0;
  bool conj = false, neg = false;   // lazily conjugated, negated
  bool detached = false;            // shares the memory, but autograd knows it as no view
};

struct Graph {
  explicit Graph(std::shared_ptr<sym::ShapeEnv> env, std::string name = "main");
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::string name;
  std::shared_ptr<sym::ShapeEnv> env;
  std::vector<Value*> inputs;
  std::vector<InputKind> input_kinds;
  std::vector<Expr> size_inputs;                // symbols that the caller passes as integers after the tensors
  std::list<Node*> nodes;
  std::vector<Value*> outputs;                  // nullptr: an undefined output
  std::vector<Mutation> mutations;
  std::vector<OutputAlias> aliases;

  Value* add_input(TensorType type, InputKind kind, std::string name = "");
  // Appends before `before` (or at the end). Results get `types`; uses are registered. Arguments that are left out at
  // the end get their schema's defaults.
  Node* add_node(const Op* op, std::vector<Argument> arguments, std::vector<TensorType> types,
                 Node* before = nullptr);
  // Makes a node whose result types come from the op's native type rule. Passes use this.
  Node* add_typed(const Op* op, std::vector<Argument> arguments, Node* before = nullptr);

  // Replaces every use in nodes, outputs and mutations. The types must agree in dtype and sizes.
  void replace_uses(Value* from, Value* to);
  void set_argument(Node* node, size_t i, Argument argument);
  void erase(Node* node);                       // CHECKs that no result is used
  bool has_uses(const Value* value) const;      // by a node, an output or a mutation

  size_t size() const { return nodes.size(); }
  // For the parser and clone(), which keep the numbers of the values that they copy.
  void set_id(Value* value, int32_t id);
  void set_next_id(int32_t id) { next_id_ = id; }

 private:
  void add_users(Node* node, const Argument& argument);
  void remove_users(Node* node, const Argument& argument);
  Arena arena_;
  int32_t next_id_ = 0;
};

// Calls f(Value*) for each tensor in an argument, lists included; undefined tensors are skipped.
template <class F>
void for_each_value(const Argument& argument, F&& f) {
  if (auto* value = std::get_if<Value*>(&argument.v)) {
    if (*value != nullptr) f(*value);
  } else if (auto* list = std::get_if<ArgumentList>(&argument.v)) {
    for (const Argument& item : *list) for_each_value(item, f);
  }
}

std::unique_ptr<Graph> clone(const Graph& graph);

// The default of a schema argument as an Argument; nullopt: it has none. Throws std::invalid_argument on a default
// text that has no Argument form.
std::optional<Argument> default_of(const OpArgument& argument);

}  // namespace braze::graph
