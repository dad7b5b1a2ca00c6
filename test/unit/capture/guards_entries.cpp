#include <doctest/doctest.h>

#include <stdexcept>

#include "braze/capture/entry_cache.h"
#include "embedded_python.h"

namespace braze::capture::test {

namespace {

int traces = 0;

// Guards the first argument's value; fails for strings, for "interrupt" with KeyboardInterrupt set.
CaptureOutcome trace_value(const CallTarget& target, const TraceOptions&) {
  traces++;
  if (PyUnicode_Check(target.args[0])) {
    if (PyUnicode_CompareWithASCIIString(target.args[0], "interrupt") == 0) PyErr_SetNone(PyExc_KeyboardInterrupt);
    if (PyUnicode_CompareWithASCIIString(target.args[0], "bug") == 0) throw std::runtime_error("a bug");
    return CaptureFailure{.reason = "a string"};
  }
  SourceTable sources;
  sources.set_argument_names({"x"});
  GuardSet guards(sources);
  guards.constant(sources.arg(0), target.args[0]);
  guards.fetch(sources.arg(0));
  Segment segment;
  segment.guards = guards.finish();
  segment.exit.set_result(segment.exit.add(RecipeOp::Fetched, 0));
  return segment;
}

struct Caller {
  Caller() { traces = 0; }
  EntryCache cache{EntryOptions{.recompile_limit = 3}, trace_value};
  Namespace n;

  // "hit", "compiled" or the reason of the skip.
  std::string operator()(const char* argument, PyObject* kwnames = nullptr) {
    Ref value = n.eval(argument);
    PyObject* args[] = {value.get()};
    const Call call{Py_None, args, kwnames == nullptr ? 1 : 0, kwnames};
    Fetched fetched;
    if (const auto entry = cache.find(call, fetched)) {
      CHECK(fetched.data()[0] == value.get());
      return "hit";
    }
    auto made = cache.compile(call, fetched);
    if (const auto* skip = std::get_if<Skip>(&made)) {
      if (skip->error_set) PyErr_Clear();
      return skip->error_set ? "error" : skip->reason;
    }
    return "compiled";
  }
};

}  // namespace

TEST_CASE("entries are found again, by call shape") {
  Caller call;
  CHECK(call("1") == "compiled");
  CHECK(call("1") == "hit");
  CHECK(call("2") == "compiled");
  CHECK(call("1") == "hit");
  Ref names = call.n.eval("('x',)"), equal_names = call.n.eval("tuple(['x'])"), other = call.n.eval("('y',)");
  CHECK(call("1", names.get()) == "compiled");
  CHECK(call("1", equal_names.get()) == "hit");
  CHECK(call("1", other.get()) == "compiled");
  CHECK(call.cache.size() == 4);
  call.cache.clear();
  CHECK(call("1") == "compiled");
}

TEST_CASE("a shape is recompiled up to the limit") {
  Caller call;
  for (const char* value : {"1", "2", "3"}) CHECK(call(value) == "compiled");
  CHECK(call("4") == "recompile limit reached");
  CHECK(call("2") == "hit");
  CHECK(traces == 3);
}

TEST_CASE("a failure is remembered for calls like it") {
  Caller call;
  for (int i = 0; i < 10; i++) CHECK(call("'a'") == "a string");
  CHECK(traces == 1);
  CHECK(call("1") == "compiled");
  for (int i = 0; i < 20; i++) CHECK(call("'a'") == "a string");
  CHECK(traces == 3);   // tried once more
}

TEST_CASE("a trace that fails with symbolic sizes is done again without") {
  static std::vector<bool> symbolic;
  symbolic.clear();
  EntryCache cache(EntryOptions{.dynamic = true}, [](const CallTarget& target, const TraceOptions& options) -> CaptureOutcome {
    symbolic.push_back(options.dynamic);
    if (options.dynamic) return CaptureFailure{.reason = "a symbolic size"};
    return trace_value(target, options);
  });
  Namespace n;
  Ref value = n.eval("1");
  PyObject* args[] = {value.get()};
  Fetched fetched;
  const auto made = cache.compile(Call{Py_None, args, 1, nullptr}, fetched);
  CHECK(std::holds_alternative<std::shared_ptr<const Entry>>(made));
  REQUIRE(symbolic.size() == 2);
  CHECK(symbolic[0]);
  CHECK_FALSE(symbolic[1]);
}

TEST_CASE("interrupts are passed on and forgotten; bugs are not tried again") {
  Caller call;
  CHECK(call("'interrupt'") == "error");
  CHECK(call("'interrupt'") == "error");
  CHECK(traces == 2);
  for (int i = 0; i < 40; i++) CHECK(call("'bug'") == "internal error: a bug");
  CHECK(traces == 3);
}

}  // namespace braze::capture::test
