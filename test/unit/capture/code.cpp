#include "braze/capture/code.h"

#include <doctest/doctest.h>

#include "embedded_python.h"

using namespace braze::capture;

namespace {

const Code& compiled(const char* body) {
  test::Namespace scope(body);
  return decode(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(scope["f"])));
}

size_t count(const Code& code, Op op) {
  size_t n = 0;
  for (const Insn& insn : code.insns) n += insn.op == op;
  return n;
}

}  // namespace

TEST_CASE("jumps point at decoded instructions") {
  const Code& code = compiled("def f(x):\n    while x:\n        x -= 1\n    return x\n");
  for (const Insn& insn : code.insns) {
    if (insn.op == Op::PopJumpIfFalse || insn.op == Op::PopJumpIfTrue) {
      REQUIRE(insn.target < code.insns.size());
      const Op at = code.insns[insn.target].op;
      CHECK((at == Op::LoadFast));   // the body, or `return x`
    }
  }
  CHECK(count(code, Op::ReturnValue) >= 1);
  CHECK(count(code, Op::Unknown) == 0);
}

TEST_CASE("extended arguments are folded into their instruction") {
  std::string body = "def f():\n    x = 0\n";
  for (int i = 0; i < 300; i++) body += "    x = 'c" + std::to_string(i) + "'\n";
  const Code& code = compiled((body + "    return x\n").c_str());
  uint32_t largest = 0;
  for (const Insn& insn : code.insns) {
    if (insn.op == Op::LoadConst) largest = std::max(largest, insn.arg);
  }
  CHECK(largest == 301);   // None, 0 and 300 strings
  CHECK(code.index_of(code.insns.back().native) == code.insns.size() - 1);
}

TEST_CASE("handlers cover the instructions of their try block") {
  const Code& code = compiled("def f(x):\n    try:\n        g(x)\n    except KeyError:\n        return 1\n    return 2\n");
  uint32_t call = 0;
  while (code.insns[call].op != Op::Call) call++;
  const Handler* h = code.handler_of(call);
  REQUIRE(h != nullptr);
  CHECK(code.insns[h->target].op == Op::PushExcInfo);
  CHECK(h->depth == 0);
  uint32_t after = call;
  while (code.insns[after].op != Op::ReturnValue) after++;
  CHECK(code.handler_of(after) == nullptr);   // return 2
}

TEST_CASE("a code object is decoded once") {
  const Code& a = compiled("def f():\n    yield 1\n");
  CHECK(&a == &decode(a.object));
  CHECK(a.generator);
  CHECK(!a.coroutine);
}
