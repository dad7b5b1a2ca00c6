#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "braze/support/arena.h"
#include "braze/support/dtype.h"
#include "braze/support/hash.h"
#include "braze/support/log.h"
#include "braze/support/result.h"
#include "braze/support/small_vector.h"

using namespace braze;

TEST_CASE("an arena destroys its objects in reverse order and keeps large ones") {
  std::vector<int> gone;
  struct Noisy {
    Noisy(std::vector<int>& list, int number) : out(list), id(number) {}
    ~Noisy() { out.push_back(id); }
    std::vector<int>& out;
    int id;
  };
  struct Large {
    char bytes[200000];
  };
  {
    Arena arena;
    Noisy* first = arena.make<Noisy>(gone, 1);
    arena.make<Large>()->bytes[199999] = 7;
    arena.make<Noisy>(gone, 2);
    CHECK_EQ(first->id, 1);
    CHECK_EQ(reinterpret_cast<uintptr_t>(arena.make<double>()) % alignof(double), 0);
  }
  CHECK_EQ(gone, std::vector<int>{2, 1});
}

TEST_CASE("a small vector moves to the heap and back into copies") {
  SmallVector<int, 2> v{1, 2};
  v.push_back(3);
  v.insert(1, 9);
  CHECK_EQ(std::vector<int>(v.begin(), v.end()), std::vector<int>{1, 9, 2, 3});
  SmallVector<int, 2> copy = v;
  v.erase(0);
  v.resize(5, 4);
  CHECK_EQ(std::vector<int>(v.begin(), v.end()), std::vector<int>{9, 2, 3, 4, 4});
  CHECK_EQ(copy.size(), 4);
  copy = v;
  CHECK_EQ(copy.back(), 4);
}

TEST_CASE("dtypes: text, size, kind") {
  CHECK_EQ(text_of(DType::BF16), "bf16");
  CHECK_EQ(torch_name_of(DType::C64), "complex64");
  CHECK_EQ(dtype_from_text("u8"), DType::U8);
  CHECK_FALSE(dtype_from_text("float").has_value());
  CHECK_EQ(size_of(DType::C128), 16);
  CHECK(is_integral(DType::Bool, true));
  CHECK_FALSE(is_integral(DType::Bool, false));
  CHECK_EQ(compute_type(DType::F16), DType::F32);
  CHECK_EQ(compute_type(DType::F64), DType::F64);
  CHECK_EQ(text_of(Device{Device::Kind::Cuda, 1}), "cuda:1");
}

// The table of torch.promote_types; "" where it raises. test/python/test_type_rules.py has all pairs.
TEST_CASE("promotion") {
  CHECK_EQ(try_promote(DType::U8, DType::I8), DType::I16);
  CHECK_EQ(try_promote(DType::U8, DType::I64), DType::I64);
  CHECK_EQ(try_promote(DType::Bool, DType::U8), DType::U8);
  CHECK_EQ(try_promote(DType::F16, DType::BF16), DType::F32);
  CHECK_EQ(try_promote(DType::I64, DType::F16), DType::F16);
  CHECK_EQ(try_promote(DType::F64, DType::C64), DType::C128);
  CHECK_EQ(try_promote(DType::BF16, DType::C32), DType::C64);
  CHECK_EQ(try_promote(DType::U16, DType::F32), DType::F32);
  CHECK_EQ(try_promote(DType::U16, DType::U16), DType::U16);
  CHECK_FALSE(try_promote(DType::U16, DType::I32).has_value());
  CHECK_FALSE(try_promote(DType::U16, DType::C64).has_value());
  CHECK_FALSE(try_promote(DType::F8E5M2, DType::F32).has_value());
  CHECK_FALSE(try_promote(DType::QI8, DType::F32).has_value());
}

TEST_CASE("content hashes tell texts apart") {
  CHECK_EQ(content_hash("kernel").size(), 32);
  CHECK_EQ(content_hash("kernel"), content_hash(std::string("ker") + "nel"));
  CHECK_NE(content_hash("kernel"), content_hash("kernel "));
  CHECK_NE(content_hash(""), content_hash(std::string(1, '\0')));
  CHECK_NE(content_hash(std::string(8, '\0')), content_hash(std::string(16, '\0')));
}

TEST_CASE("log topics") {
  CHECK_EQ(set_log_topics("graph,perf"), "");
  CHECK(log_enabled(Topic::kGraph));
  CHECK_FALSE(log_enabled(Topic::kGuards));
  CHECK_EQ(set_log_topics("graph,nonsense"), "nonsense");
  CHECK(log_enabled(Topic::kPerf));
  CHECK_EQ(set_log_topics(""), "");
  CHECK_FALSE(log_enabled(Topic::kGraph));
}

namespace {

Result<int> parse_digit(char c) {
  if (c < '0' || c > '9') return Unsupported{"no digit", "give one"};
  return c - '0';
}
Result<int> sum_of_digits(const std::string& text) {
  int sum = 0;
  for (const char c : text) {
    TRY(const int digit, parse_digit(c));
    sum += digit;
  }
  return sum;
}

}  // namespace

TEST_CASE("results pass on why they failed") {
  CHECK_EQ(sum_of_digits("123").value(), 6);
  CHECK_EQ(sum_of_digits("1x3").why().reason, "no digit");
}
