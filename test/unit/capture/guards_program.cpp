#include <doctest/doctest.h>

#include <chrono>

#include "braze/capture/guards/guards.h"
#include "braze/capture/guards/object.h"
#include "embedded_python.h"

namespace braze::capture::test {

namespace {

struct Name {
  explicit Name(const char* text) : ref(Ref::steal(PyUnicode_InternFromString(text))) {}
  operator PyObject*() const { return ref.get(); }
  Ref ref;
};

PyTypeObject* type_of(const Ref& object) { return Py_TYPE(object.get()); }

// Runs the program with one argument; the callee is None unless given.
struct Runner {
  std::unique_ptr<GuardProgram> program;
  Ref argument;
  PyObject* callee = Py_None;

  bool operator()() const {
    std::vector<PyObject*> fetched(static_cast<size_t>(program->n_fetched()) + 1);
    PyObject* args[] = {argument.get()};
    const bool held = program->run({callee, args, 1}, fetched.data());
    CHECK(PyErr_Occurred() == nullptr);
    return held;
  }
  std::string why() const {
    PyObject* args[] = {argument.get()};
    return program->explain_failure({callee, args, 1});
  }
};

}  // namespace

TEST_CASE("constants are compared by type and bits") {
  Namespace n;
  const auto holds = [&](const char* expected, const char* actual) {
    SourceTable sources;
    GuardSet guards(sources);
    guards.constant(sources.arg(0), n.eval(expected).get());
    return Runner{guards.finish(), n.eval(actual)}();
  };
  CHECK(holds("1000000", "10**6"));
  CHECK(holds("'ab'", "''.join(['a', 'b'])"));
  CHECK(holds("float('nan')", "float('nan')"));
  CHECK(holds("(1, 'x', (2.5, None))", "tuple([1, 'x', tuple([2.5, None])])"));
  CHECK(holds("frozenset([1, 2])", "frozenset([2, 1])"));
  CHECK(holds("slice(1, 1000000)", "slice(1, 10**6)"));
  CHECK_FALSE(holds("1", "True"));
  CHECK_FALSE(holds("1", "1.0"));
  CHECK_FALSE(holds("0.0", "-0.0"));
  CHECK_FALSE(holds("(1, 2)", "(1, 2.0)"));
  CHECK_FALSE(holds("(1, 2)", "[1, 2]"));
  CHECK_FALSE(holds("frozenset([1])", "frozenset([True])"));
  CHECK_FALSE(holds("'a'", "b'a'"));
}

TEST_CASE("an instance's attributes are seen inline and in its dict, and __dict__ is never made") {
  Namespace n("class C:\n  def __init__(self): self.a = 1; self.b = [1, 2]\nc = C()");
  SourceTable sources;
  sources.set_argument_names({"self"});
  GuardSet guards(sources);
  const Src self = sources.arg(0);
  const Ref c = Ref::borrow(n["c"]);
  guards.type(self, type_of(c));
  const Src a = sources.intern(SourceKind::Attr, self, 0, Name("a"));
  const Src b = sources.intern(SourceKind::Attr, self, 0, Name("b"));
  guards.constant(a, n.eval("1").get());
  guards.type(b, &PyList_Type);
  guards.length(b, 2);
  guards.constant(sources.intern(SourceKind::Item, b, 1), n.eval("2").get());
  guards.absent(self, Name("late"));
  Runner run{guards.finish(), c};
  CHECK(run());
  CHECK(object::instance_storage(c.get()).values != nullptr);

  for (int materialised = 0; materialised < 2; materialised++) {
    CAPTURE(materialised);
    CHECK(run());
    CHECK(run());
    n.exec("c.a = 2");
    CHECK_FALSE(run());
    CHECK(run.why() == "self.a == 1 (now 2)");
    n.exec("c.a = 1; c.b.append(3)");
    CHECK_FALSE(run());
    CHECK(run.why() == "self.b has 2 elements (now 3 elements)");
    n.exec("c.b.pop(); c.b[1] = 3");
    CHECK_FALSE(run());
    n.exec("c.b[1] = 2");
    CHECK(run());
    n.exec("c.late = 1");
    CHECK_FALSE(run());
    n.exec("del c.late");
    CHECK(run());
    n.exec("old = c.b; c.b = (1, 2)");
    CHECK_FALSE(run());
    CHECK(run.why() == "type(self.b) is list (now tuple)");
    n.exec("c.b = old");
    CHECK(run());
    n.exec("del c.a");
    CHECK_FALSE(run());
    n.exec("c.a = 1");
    CHECK(run());
    n.exec("c.__dict__");
  }
  n.exec("c.__dict__ = {'a': 1, 'b': [1, 2]}");
  CHECK(run());
  n.exec("c.__dict__ = {'a': 5, 'b': [1, 2]}");
  CHECK_FALSE(run());
  n.exec("c.a = 1");
  CHECK(run());
  n.exec("class D: pass\nc.__class__ = D");
  CHECK_FALSE(run());
}

TEST_CASE("another object with equal attributes passes, a different one does not") {
  Namespace n("class C:\n  def __init__(self, a): self.a = a; self.__dict__\nx, y, z = C(1), C(1), C(2)");
  SourceTable sources;
  GuardSet guards(sources);
  guards.type(sources.arg(0), Py_TYPE(n["x"]));
  guards.constant(sources.intern(SourceKind::Attr, sources.arg(0), 0, Name("a")), n.eval("1").get());
  Runner run{guards.finish(), Ref::borrow(n["x"])};
  for (int i = 0; i < 3; i++) {
    run.argument = Ref::borrow(n["x"]);
    CHECK(run());
    run.argument = Ref::borrow(n["z"]);
    CHECK_FALSE(run());
    run.argument = Ref::borrow(n["y"]);
    CHECK(run());
  }
}

TEST_CASE("globals, builtins and functions") {
  Namespace n("def f(x): return g(x)\ndef g(x): return abs(x) * scale\nscale = 2");
  SourceTable sources;
  GuardSet guards(sources);
  const Src f = sources.callee();
  guards.identity(sources.intern(SourceKind::FuncCode, f), n.eval("f.__code__").get());
  const Src g = sources.intern(SourceKind::Global, f, 0, Name("g"));
  guards.identity(g, n["g"]);
  guards.identity(sources.intern(SourceKind::FuncCode, g), n.eval("g.__code__").get());
  guards.constant(sources.intern(SourceKind::Global, g, 0, Name("scale")), n.eval("2").get());
  guards.identity(sources.intern(SourceKind::Global, g, 0, Name("abs")), n.eval("abs").get());
  guards.identity(sources.intern(SourceKind::FuncDefaults, g), Py_None);
  Runner run{guards.finish(), n.eval("1"), n["f"]};
  CHECK(run());
  CHECK(run());
  n.exec("scale = 3");
  CHECK_FALSE(run());
  CHECK(run.why() == "scale == 2 (now 3)");
  n.exec("scale = 2");
  CHECK(run());
  n.exec("def abs(x): return x");   // shadows the builtin
  CHECK_FALSE(run());
  CHECK(run.why() == "'abs' is not in the names of g (now it has)");
  n.exec("del abs");
  CHECK(run());
  n.exec("g.__defaults__ = (1,)");
  CHECK_FALSE(run());
  n.exec("g.__defaults__ = None");
  CHECK(run());
  n.exec("code = g.__code__; g.__code__ = (lambda x: x).__code__");
  CHECK_FALSE(run());
  n.exec("g.__code__ = code");
  CHECK(run());
}

TEST_CASE("the death of a function or class ends the program") {
  Namespace n("def g(x): return x\nclass C: pass");
  Runner run;
  {
    SourceTable sources;
    GuardSet guards(sources);
    guards.identity(sources.arg(0), n["g"]);
    run.program = guards.finish();
  }
  run.argument = Ref::borrow(n["g"]);
  CHECK(run());
  run.argument = n.eval("1");
  CHECK_FALSE(run());
  CHECK(run.program->alive());
  const Py_ssize_t uses = Py_REFCNT(n["C"]);
  {
    SourceTable more;
    GuardSet type_guards(more);
    type_guards.type(more.arg(0), reinterpret_cast<PyTypeObject*>(n["C"]));
    const auto program = type_guards.finish();
    CHECK(program->alive());
  }
  CHECK(Py_REFCNT(n["C"]) == uses);
  n.exec("del g");
  CHECK_FALSE(run.program->alive());
  n.exec("def g(x): return x");
  run.argument = Ref::borrow(n["g"]);
  CHECK_FALSE(run());
}

TEST_CASE("class attributes follow the class") {
  Namespace n(
      "class B:\n  scale = 2.0\n  names = ['a']\n  def m(self): return 1\n  @property\n  def p(self): return 3\n"
      "  @staticmethod\n  def s(): return 4\n"
      "class C(B): pass\nc = C()\nm, p, s = B.m, B.__dict__['p'], B.__dict__['s']");
  SourceTable sources;
  GuardSet guards(sources);
  sources.set_argument_names({"self"});
  auto* type = reinterpret_cast<PyTypeObject*>(n["C"]);
  const Src self = sources.arg(0);
  guards.type(self, type);
  guards.type_attribute(self, type, Name("m"), n["m"]);
  guards.type_attribute(self, type, Name("p"), n["p"]);
  guards.type_attribute(self, type, Name("s"), n["s"]);
  guards.type_attribute(self, type, Name("scale"), n.eval("B.scale").get());
  guards.type_attribute(self, type, Name("names"), n.eval("B.names").get());
  guards.type_attribute(self, type, Name("nothing"), nullptr);
  guards.constant(sources.intern(SourceKind::Item, sources.intern(SourceKind::TypeAttr, self, 0, Name("names")), 0),
                  n.eval("'a'").get());
  Runner run{guards.finish(), Ref::borrow(n["c"])};
  CHECK(run());
  CHECK(run());
  n.exec("B.unrelated = 1");   // a new version of the class, nothing that was guarded
  CHECK(run());
  n.exec("B.scale = 4.0 / 2");
  CHECK(run());
  n.exec("B.scale = 3.0");
  CHECK_FALSE(run());
  CHECK(run.why() == "class C: 'scale' is 2.0 (now 3.0)");
  n.exec("B.scale = 2.0; B.names[0] = 'b'");
  CHECK_FALSE(run());
  CHECK(run.why() == "self.names[0] == 'a' (now 'b')");
  n.exec("B.names = ['a']");
  CHECK(run());
  n.exec("C.m = lambda self: 5");
  CHECK_FALSE(run());
  n.exec("del C.m; B.p = property(lambda self: 6)");
  CHECK_FALSE(run());
  n.exec("B.p = property(p.fget)");   // the same getter in a new property
  CHECK(run());
  n.exec("B.s = staticmethod(lambda: 7)");
  CHECK_FALSE(run());
  n.exec("B.s = s; B.nothing = 0");
  CHECK_FALSE(run());
  n.exec("del B.nothing");
  CHECK(run());
  n.exec("import sys; sys._clear_type_cache()");
  CHECK(run());
}

TEST_CASE("dicts: keys, order, absence, emptiness") {
  Namespace n(
      "from collections import OrderedDict\nd = {'a': 1, 'b': 2}\no = OrderedDict(d)\nh = OrderedDict()\n"
      "class C: pass\nc = C(); c.d, c.o, c.h = d, o, h");
  SourceTable sources;
  GuardSet guards(sources);
  const Src c = sources.arg(0);
  guards.type(c, Py_TYPE(n["c"]));
  const auto attr = [&](const char* name) { return sources.intern(SourceKind::Attr, c, 0, Name(name)); };
  guards.type(attr("d"), &PyDict_Type);
  guards.keys(attr("d"), n.eval("('a', 'b')").get());
  guards.constant(sources.intern(SourceKind::Key, attr("d"), 0, Name("b")), n.eval("2").get());
  guards.key_absent(attr("d"), n.eval("'z'").get());
  guards.type(attr("o"), &PyODict_Type);
  guards.keys(attr("o"), n.eval("('a', 'b')").get());
  guards.truth(attr("h"), false);
  Runner run{guards.finish(), Ref::borrow(n["c"])};
  CHECK(run());
  CHECK(run());
  n.exec("o.move_to_end('a')");   // bumps no version
  CHECK_FALSE(run());
  n.exec("o.move_to_end('b')");
  CHECK(run());
  n.exec("h['x'] = 1");
  CHECK_FALSE(run());
  CHECK(run.why() == "argument 0.h is false or empty (now true)");
  n.exec("h.clear()");
  CHECK(run());
  n.exec("d['b'] = 3");
  CHECK_FALSE(run());
  CHECK(run.why() == "argument 0.d['b'] == 2 (now 3)");
  n.exec("del d['b']; d['b'] = 2");
  CHECK(run());
  n.exec("del d['a']; d['a'] = 1");   // same items, another order
  CHECK_FALSE(run());
  n.exec("c.d = {'a': 1, 'b': 2}");
  CHECK(run());
  n.exec("c.d['z'] = 0");
  CHECK_FALSE(run());
}

TEST_CASE("a foreign __eq__ is never called") {
  Namespace n(
      "called = []\nclass K:\n  def __hash__(self): return hash('key')\n"
      "  def __eq__(self, other): called.append(1); return True\n"
      "d = {K(): 1}");
  SourceTable sources;
  GuardSet guards(sources);
  guards.key_absent(sources.arg(0), n.eval("'key'").get());
  Runner run{guards.finish(), Ref::borrow(n["d"])};
  CHECK_FALSE(run());   // can't be known natively
  CHECK(n.eval("len(called)").get() == n.eval("0").get());
}

TEST_CASE("same, distinct, slots, super and methods") {
  Namespace n(
      "class S:\n  __slots__ = ('v', 'w')\n  def m(self): pass\nclass T(S):\n  __slots__ = ()\n  def m(self): pass\n"
      "x, y = object(), object()\ns = T(); s.v = x; s.w = x\nbase = S.m");
  SourceTable sources;
  GuardSet guards(sources);
  const Src s = sources.arg(0);
  guards.type(s, Py_TYPE(n["s"]));
  const Src v = sources.intern(SourceKind::Member, s, 0, Name("v"));
  const Src w = sources.intern(SourceKind::Member, s, 0, Name("w"));
  guards.same(v, w);
  guards.distinct(v, s);
  guards.identity(sources.intern(SourceKind::SuperAttr, s, 0, Name("m"), n["T"]), n["base"]);
  CHECK(guards.fetch(v) == 0);
  Runner run{guards.finish(), Ref::borrow(n["s"])};
  CHECK(run());
  n.exec("s.w = y");
  CHECK_FALSE(run());
  n.exec("s.v = y");
  CHECK(run());
  PyObject* fetched[1];
  PyObject* args[] = {n["s"]};
  CHECK(run.program->run({Py_None, args, 1}, fetched));
  CHECK(fetched[0] == n["y"]);
  n.exec("del s.v");
  CHECK_FALSE(run());
  n.exec("s.v = y; S.m = T.m");
  CHECK_FALSE(run());
}

TEST_CASE("guards on many unchanged instances are cheap") {
  Namespace n(
      "class M:\n  def __init__(self, i):\n    self.__dict__['training'] = False\n    self.i = i\n    self.hooks = {}\n"
      "    self.parts = {'w': object(), 'b': None}\n"
      "root = M(0)\nroot.all = {str(i): M(i) for i in range(200)}");
  SourceTable sources;
  GuardSet guards(sources);
  auto* type = reinterpret_cast<PyTypeObject*>(n["M"]);
  const Src all = sources.intern(SourceKind::Attr, sources.arg(0), 0, Name("all"));
  guards.type(sources.arg(0), type);
  guards.type(all, &PyDict_Type);
  for (int i = 0; i < 200; i++) {
    const Src m = sources.intern(SourceKind::Key, all, 0, Name(std::to_string(i).c_str()));
    guards.type(m, type);
    for (const char* name : {"forward", "__call__", "other"}) guards.absent(m, Name(name));
    guards.type_attribute(m, type, Name("nothing"), nullptr);
    guards.identity(sources.intern(SourceKind::Attr, m, 0, Name("training")), Py_False);
    guards.constant(sources.intern(SourceKind::Attr, m, 0, Name("i")), n.eval(std::to_string(i).c_str()).get());
    const Src hooks = sources.intern(SourceKind::Attr, m, 0, Name("hooks"));
    guards.type(hooks, &PyDict_Type);
    guards.truth(hooks, false);
    const Src parts = sources.intern(SourceKind::Attr, m, 0, Name("parts"));
    guards.type(parts, &PyDict_Type);
    guards.identity(sources.intern(SourceKind::Key, parts, 0, Name("b")), Py_None);
    guards.fetch(sources.intern(SourceKind::Key, parts, 0, Name("w")));
  }
  Runner run{guards.finish(), Ref::borrow(n["root"])};
  CHECK(run());
  const auto start = std::chrono::steady_clock::now();
  constexpr int kRuns = 200;
  for (int i = 0; i < kRuns; i++) run();
  const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / kRuns;
  MESSAGE("200 instances, 2,400 requirements, " << run.program->size() << " instructions: " << us << " us a run");
  n.exec("root.all['117'].parts['b'] = 1");
  CHECK_FALSE(run());
  CHECK(run.why() == "argument 0.all['117'].parts['b'] is None (now 1)");
  n.exec("root.all['117'].parts['b'] = None; root.all['3'].training = True");
  CHECK_FALSE(run());
}

}  // namespace braze::capture::test
