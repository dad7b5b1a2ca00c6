// In its own file: doctest has a CHECK too.
#define DOCTEST_CONFIG_NO_SHORT_MACRO_NAMES
#include "braze/support/check.h"

#include <doctest/doctest.h>

#include <string>

DOCTEST_TEST_CASE("a failed CHECK shows both sides, the expression and the message") {
  const auto message = [](int a, int b) -> std::string {
    try {
      CHECK(a == b, "while adding " << 7);
    } catch (const braze::InternalError& e) {
      return e.what();
    }
    return "";
  };
  DOCTEST_CHECK_EQ(message(1, 1), "");
  const std::string text = message(1, 2);
  DOCTEST_CHECK_NE(text.find("a == b (1 == 2): while adding 7"), std::string::npos);
  DOCTEST_CHECK_NE(text.find("check_test.cpp"), std::string::npos);
}

DOCTEST_TEST_CASE("CHECK takes plain conditions and conjunctions") {
  const int* const pointer = nullptr;
  CHECK(pointer == nullptr);
  CHECK(1 < 2 && 3 < 4);
  DOCTEST_CHECK_THROWS_AS(CHECK(1 < 2 && 4 < 3), braze::InternalError);
  DOCTEST_CHECK_THROWS_AS(CHECK(pointer), braze::InternalError);
}
