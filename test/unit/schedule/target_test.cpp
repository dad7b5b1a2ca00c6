#include <doctest/doctest.h>

#include "braze/schedule/target.h"

using namespace braze;

TEST_CASE("this machine's target") {
  const schedule::Target t = schedule::cpu_target(3);
  CHECK(t.threads == 3);
  CHECK((t.vector_bytes == 16 || t.vector_bytes == 32 || t.vector_bytes == 64));
  CHECK(t.l1_bytes >= 8 << 10);
  CHECK(t.l1_bytes < t.l2_bytes);
  CHECK(t.supports(DType::F32));
  CHECK(t.supports(DType::BF16));
  CHECK_FALSE(t.supports(DType::C64));
  CHECK(schedule::cpu_target(0).threads == 1);
}
