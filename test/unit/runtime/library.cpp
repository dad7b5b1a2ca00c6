#include "braze/runtime/library.h"

#include <doctest/doctest.h>

#include "braze/graph/text.h"
#include "braze/runtime/cpu/matmul.h"

using namespace braze;

namespace {

// The row that takes the first node of a graph; "": none.
std::string row_of(const std::string& text) {
  const auto graph = graph::parse(text);
  for (const graph::Node* node : graph->nodes)
    if (const auto call = runtime::find_library_call(*node)) return call->name();
  return "";
}

std::string attention(const std::string& type, const std::string& mask) {
  const std::string t = type + "[2, 4, 33, 16]";
  return "graph @g(%q: " + t + ", %k: " + t + ", %v: " + t + (mask.empty() ? "" : ", %m: " + mask + "[33, 33]") + ") {\n" +
         "  %1, %2 = aten._scaled_dot_product_flash_attention_for_cpu(%q, %k, %v, 0.0, false, " +
         (mask.empty() ? "none" : "%m") + ", none)\n  return %1\n}\n";
}

}  // namespace

TEST_CASE("products and attention of each element type are rows of the library") {
  if (!runtime::matmul_available()) return;
  for (const char* type : {"f32", "bf16", "f16"}) {
    const std::string t(type);
    CHECK(row_of("graph @g(%a: " + t + "[3, 4], %b: " + t + "[4, 5]) {\n  %1 = aten.mm(%a, %b)\n  return %1\n}\n") == "matmul");
    CHECK(row_of(attention(t, "")) == "attention");
    CHECK(row_of(attention(t, t)) == "attention");
  }
  CHECK(row_of(attention("bf16", "f32")) == "attention");
  CHECK(row_of("graph @g(%a: f64[3, 4], %b: f64[4, 5]) {\n  %1 = aten.mm(%a, %b)\n  return %1\n}\n") == "");
}
