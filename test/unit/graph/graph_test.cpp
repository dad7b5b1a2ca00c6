#include "braze/graph/graph.h"

#include <doctest/doctest.h>

#include <stdexcept>

#include "braze/graph/text.h"
#include "braze/support/check.h"

using namespace braze;
using namespace braze::graph;

TEST_CASE("schemas: names, types, aliases, defaults, results") {
  const Op* add = op(OpId::add_Tensor);
  CHECK_EQ(add->name, "aten.add.Tensor");
  CHECK_EQ(add, find_op("aten.add.Tensor"));
  CHECK_EQ(add->argument_index("alpha"), 2);
  CHECK(add->arguments[2].keyword_only);
  CHECK_EQ(op(OpId::relu)->name, "aten.relu");
  CHECK(op(OpId::relu)->has(kPointwise));

  const Op* custom = intern_op(
      "my_lib::mix.two(Tensor(a!) self, Tensor?[] others, *, int[2]? size=[1, -1], str mode='a, (b', "
      "Dict(str, Tensor) rest) -> (Tensor(a!) out, Tensor(b)[] views)",
      kRandom);
  CHECK_EQ(custom->name, "my_lib.mix.two");
  CHECK_EQ(custom->id, OpId::Unknown);
  REQUIRE_EQ(custom->arguments.size(), 5);
  CHECK(custom->arguments[0].is_written());
  CHECK_EQ(custom->arguments[0].type, "Tensor");
  CHECK_EQ(custom->arguments[1].type, "Tensor?[]");
  CHECK_EQ(custom->arguments[1].base_type(), "Tensor");
  CHECK_EQ(custom->arguments[2].type, "int[]?");
  CHECK_EQ(custom->arguments[2].default_text, "[1, -1]");
  CHECK_EQ(custom->arguments[3].default_text, "'a, (b'");
  CHECK_EQ(custom->arguments[4].type, "Dict(str, Tensor)");
  CHECK_EQ(custom->returns, std::vector<std::string>{"Tensor", "Tensor[]"});
  CHECK_EQ(intern_op("my_lib::mix.two() -> ()"), custom);
  CHECK_EQ(intern_op("my_lib::nothing() -> ()")->returns.size(), 0);
  CHECK_EQ(intern_op("aten::relu.default(Tensor self) -> Tensor"), op(OpId::relu));
  for (const char* bad : {"", "no_namespace(Tensor x) -> Tensor", "a::b(Tensor) -> Tensor", "a::b(Tensor x",
                          "a::b(Tensor x) Tensor", "a::b(Tensor x=) -> Tensor"})
    CHECK_THROWS_AS(intern_op(bad), std::invalid_argument);
}

TEST_CASE("defaults have argument form") {
  const Op* conv = op(OpId::max_pool2d_with_indices);
  CHECK_EQ(default_of(conv->arguments[3]), Argument(ArgumentList{Expr(0), Expr(0)}));
  CHECK_EQ(default_of(conv->arguments[2]), Argument(ArgumentList{}));
  CHECK_EQ(default_of(op(OpId::mse_loss)->arguments[2]), Argument(Expr(1)));
  CHECK_EQ(default_of(op(OpId::_to_copy)->arguments[5]), Argument(false));
  CHECK_FALSE(default_of(conv->arguments[0]).has_value());
  // Every row's defaults can be read.
  for (int id = 1; id < static_cast<int>(OpId::kCount); ++id)
    for (const OpArgument& argument : op(static_cast<OpId>(id))->arguments) CHECK_NOTHROW(default_of(argument));
}

TEST_CASE("uses are kept through replacement and erasure") {
  auto g = parse(
      "graph @g(%x: f32[2]) {\n %1 = aten.relu(%x) : f32[2]\n %2 = aten.mul.Tensor(%1, %1) : f32[2]\n"
      " %3 = aten.cat([%1, %2]) : f32[4]\n return %1, %3 mutates(%x = %1)\n}\n");
  Value* relu = g->nodes.front()->result();
  CHECK_EQ(relu->users.size(), 3);
  Node* neg = g->add_node(op(OpId::neg), {g->inputs[0]}, {relu->type}, g->nodes.front());
  g->replace_uses(relu, neg->result());
  CHECK_EQ(relu->users.size(), 0);
  CHECK_EQ(neg->result()->users.size(), 3);
  CHECK_EQ(g->outputs[0], neg->result());
  CHECK_EQ(g->mutations[0].value, neg->result());
  g->erase(relu->producer);
  CHECK_EQ(verify(*g), "");
  CHECK_THROWS_AS(g->erase(neg), InternalError);
  Node* mul = *std::next(g->nodes.begin());
  g->set_argument(mul, 1, 2.0);
  CHECK_EQ(neg->result()->users.size(), 2);
  CHECK_EQ(verify(*g), "");
}

TEST_CASE("replacing by a value of other sizes is refused") {
  auto g = parse("graph @g(%x: f32[2], %y: f32[3]) {\n %1 = aten.relu(%x) : f32[2]\n return %1\n}\n");
  CHECK_THROWS_AS(g->replace_uses(g->inputs[0], g->inputs[1]), InternalError);
}

TEST_CASE("contiguity") {
  TensorType t;
  t.sizes = {2, 1, 3};
  t.strides = {3, 100, 1};
  CHECK(is_contiguous(t));
  t.strides = {1, 100, 2};
  CHECK_FALSE(is_contiguous(t));
  t.sizes = {0, 1, 3};
  CHECK(is_contiguous(t));
  CHECK_EQ(contiguous_strides({2, 0, 3}), Shape{3, 3, 1});
}

TEST_CASE("input names are made printable and unique") {
  Graph g(std::make_shared<sym::ShapeEnv>());
  CHECK_EQ(g.add_input({}, InputKind::User, "self.weight[0]")->name, "self.weight_0_");
  CHECK_EQ(g.add_input({}, InputKind::User, "self.weight[0]")->name, "self.weight_0__1");
  CHECK_EQ(g.add_input({}, InputKind::User, "3")->name, "_3");
}
