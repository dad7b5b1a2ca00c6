#include <doctest/doctest.h>

#include "braze/capture/exits/recipe.h"
#include "braze/capture/source.h"
#include "embedded_python.h"

namespace braze::capture::test {

namespace {

Ref run(const Recipe& recipe, std::vector<PyObject*> outputs = {}) {
  Ref result = Ref::steal(recipe.run(outputs.data(), outputs.data()));
  if (!result) PyErr_Print();
  return result;
}

bool equal(const Ref& a, const Ref& b) { return PyObject_RichCompareBool(a.get(), b.get(), Py_EQ) == 1; }

}  // namespace

TEST_CASE("containers, constants and outputs") {
  Namespace n("a, b = object(), object()");
  Recipe r;
  const int32_t a = r.add(RecipeOp::Output, 0), b = r.add(RecipeOp::Output, 1);
  const int32_t key = r.add(RecipeOp::Constant, 0, {}, n.eval("'k'").get());
  const int32_t list = r.add(RecipeOp::NewList, 0, std::vector<int32_t>{a, b, a});
  const int32_t dict = r.add(RecipeOp::NewDict, 0, std::vector<int32_t>{key, list});
  const int32_t tuple = r.add(RecipeOp::NewTuple, 0, std::vector<int32_t>{dict, b});
  r.set_result(tuple);
  CHECK(r.single_output() == -1);
  Ref result = run(r, {n["a"], n["b"]});
  CHECK(equal(result, n.eval("({'k': [a, b, a]}, b)")));
  Recipe one;
  one.set_result(one.add(RecipeOp::Output, 3));
  CHECK(one.single_output() == 3);
}

TEST_CASE("cycles: made first, filled after") {
  Namespace n;
  Recipe r;
  const int32_t list = r.add(RecipeOp::NewList);
  r.add(RecipeOp::Append, list, std::vector<int32_t>{list});
  r.set_result(list);
  Ref result = run(r);
  CHECK(PyList_GET_SIZE(result.get()) == 1);
  CHECK(PyList_GET_ITEM(result.get(), 0) == result.get());
  PyList_SetSlice(result.get(), 0, 1, nullptr);
}

TEST_CASE("instances come without __init__, __new__ or __setattr__") {
  Namespace n(
      "from collections import OrderedDict, namedtuple\n"
      "class C:\n  def __new__(cls): raise RuntimeError\n  def __init__(self): raise RuntimeError\n"
      "  def __setattr__(self, name, value): raise RuntimeError\n"
      "class O(OrderedDict):\n  def __init__(self): raise RuntimeError\n"
      "  def __setitem__(self, key, value): raise RuntimeError\n"
      "P = namedtuple('P', 'x y')");
  Recipe r;
  const int32_t one = r.add(RecipeOp::Constant, 0, {}, n.eval("1").get());
  const int32_t name = r.add(RecipeOp::Constant, 0, {}, n.eval("'x'").get());
  const int32_t c = r.add(RecipeOp::NewInstance, 0, {}, n["C"]);
  r.add(RecipeOp::SetAttr, c, std::vector<int32_t>{one}, n.eval("'x'").get());
  const int32_t o = r.add(RecipeOp::NewInstance, 0, {}, n["O"]);
  r.add(RecipeOp::DictUpdate, o, std::vector<int32_t>{name, one, one, name});
  const int32_t p = r.add(RecipeOp::NewInstance, 0, std::vector<int32_t>{one, name}, n["P"]);
  r.set_result(r.add(RecipeOp::NewTuple, 0, std::vector<int32_t>{c, o, p}));
  Ref result = run(r);
  REQUIRE(result);
  PyDict_SetItemString(PyModule_GetDict(PyImport_AddModule("builtins")), "made", result.get());
  CHECK(n.eval("type(made[0]) is C and made[0].__dict__ == {'x': 1}").get() == Py_True);
  CHECK(n.eval("type(made[1]) is O and list(made[1].items()) == [('x', 1), (1, 'x')]").get() == Py_True);
  CHECK(n.eval("type(made[2]) is P and made[2].y == 'x'").get() == Py_True);
  n.exec("import builtins; del builtins.made");
}

TEST_CASE("functions and cells") {
  Namespace n("def outer(v):\n  def inner(x, d=1): return (v, x, d)\n  return inner\nf = outer(1)");
  Recipe r;
  const auto constant = [&](const char* text) { return r.add(RecipeOp::Constant, 0, {}, n.eval(text).get()); };
  const int32_t cell = r.add(RecipeOp::NewCell, 0, std::vector<int32_t>{constant("7")});
  const int32_t closure = r.add(RecipeOp::NewTuple, 0, std::vector<int32_t>{cell});
  const int32_t f = r.add(RecipeOp::NewFunction, 0,
                          std::vector<int32_t>{constant("globals()"), closure, constant("(5,)"), -1, -1,
                                               constant("'outer.<locals>.inner'")},
                          n.eval("f.__code__").get());
  r.set_result(f);
  Ref made = run(r);
  Ref got = Ref::steal(PyObject_CallFunction(made.get(), "i", 3));
  CHECK(equal(got, n.eval("(7, 3, 5)")));
}

TEST_CASE("sources print as the user wrote them") {
  Namespace n;
  SourceTable t;
  t.set_argument_names({"self", "x"});
  const auto key = [&](SourceKind kind, Src base, const char* name) {
    return t.intern(kind, base, 0, Ref::steal(PyUnicode_FromString(name)).get());
  };
  const Src layers = key(SourceKind::Key, key(SourceKind::Attr, t.arg(0), "_modules"), "layers");
  const Src third = key(SourceKind::Key, key(SourceKind::Attr, layers, "_modules"), "3");
  const Src weight = key(SourceKind::Key, key(SourceKind::Attr, third, "_parameters"), "weight");
  CHECK(t.describe(weight) == "self.layers[3].weight");
  CHECK(key(SourceKind::Key, key(SourceKind::Attr, third, "_parameters"), "weight") == weight);
  CHECK(t.intern(SourceKind::Key, t.arg(1), 0, n.eval("1").get()) != t.intern(SourceKind::Key, t.arg(1), 0, n.eval("True").get()));
  CHECK(t.describe(t.intern(SourceKind::Item, t.arg(1), 2)) == "x[2]");
}

}  // namespace braze::capture::test
