// Lowering against ATen: test/python/test_lowering.py writes a file of graphs with inputs and ATen's results, names it
// in BRAZE_LOWERING_CASES and runs this test. Numbers are little-endian; a tensor is its dtype's text, its sizes, and
// its elements as doubles or int64s; texts and lists start with their length as int64.
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "programs.h"

namespace braze::loop {
namespace {

class Reader {
 public:
  explicit Reader(const char* file) : in_(file, std::ios::binary) { REQUIRE(in_.good()); }

  int64_t integer() { return raw<int64_t>(); }
  bool at_end() { return in_.peek() == std::ifstream::traits_type::eof(); }
  std::string text() {
    std::string out(static_cast<size_t>(integer()), ' ');
    in_.read(out.data(), static_cast<std::streamsize>(out.size()));
    return out;
  }
  HostTensor tensor() {
    HostTensor out{dtype_from_text(text()).value(), {}, {}};
    int64_t n = 1;
    for (int64_t rank = integer(); rank > 0; --rank) {
      out.sizes.push_back(integer());
      n *= out.sizes.back();
    }
    for (; n > 0; --n) {
      if (is_floating(out.dtype)) out.data.push_back({.real = raw<double>()});
      else out.data.push_back({.integer = integer()});
    }
    return out;
  }
  std::vector<HostTensor> tensors() {
    std::vector<HostTensor> out;
    for (int64_t n = integer(); n > 0; --n) out.push_back(tensor());
    return out;
  }

 private:
  template <class T>
  T raw() {
    T value;
    in_.read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  std::ifstream in_;
};

// 16-bit floats to one unit in the last place, f32 to a few: libm is not what ATen calls.
double tolerance(DType dtype) {
  if (dtype == DType::F64) return 1e-10;
  if (dtype == DType::F32) return 4e-6;
  return dtype == DType::F16 ? 0x1p-10 : 0x1p-7;
}

bool agree(Number got, Number expected, DType dtype) {
  if (!is_floating(dtype)) return got.integer == expected.integer;
  if (std::isnan(expected.real)) return std::isnan(got.real);
  if (got.real == expected.real) return true;
  return std::fabs(got.real - expected.real) <= tolerance(dtype) * std::max(std::fabs(expected.real), 1.0);
}

void compare(const HostTensor& got, const HostTensor& expected) {
  REQUIRE(got.dtype == expected.dtype);
  REQUIRE(got.sizes == expected.sizes);
  for (size_t k = 0; k < got.data.size(); ++k) {
    if (agree(got.data[k], expected.data[k], got.dtype)) continue;
    INFO("element ", k, ": ", as_double(got.data[k], got.dtype), " instead of ",
         as_double(expected.data[k], got.dtype));
    CHECK(false);
    return;
  }
}

}  // namespace

TEST_CASE("lowering agrees with ATen" * doctest::skip(std::getenv("BRAZE_LOWERING_CASES") == nullptr)) {
  Reader reader(std::getenv("BRAZE_LOWERING_CASES"));
  while (!reader.at_end()) {
    const std::string text = reader.text();
    const std::vector<HostTensor> inputs = reader.tensors(), expected = reader.tensors();
    INFO(text);
    const Lowered l = lowered(text);
    CHECK(l.program.calls.empty());   // the list holds only calls that have kernels
    if (!l.program.calls.empty()) continue;
    const std::string printed = print(l.program);
    CHECK(print(parse(printed)) == printed);
    const Evaluation out = run(l, inputs);
    for (size_t k = 0; k < expected.size(); ++k) compare(out.outputs.at(k), expected[k]);
  }
}

}  // namespace braze::loop
