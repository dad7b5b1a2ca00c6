#include "braze/module/run_entry.h"

#include <algorithm>
#include <vector>

namespace braze::module {

namespace {

// A few pointers on the stack, many on the heap.
class Pointers {
 public:
  explicit Pointers(size_t n) : size_(n) {
    if (n > kFew) many_.resize(n);
    data_ = n > kFew ? many_.data() : few_;
  }
  Pointers(const Pointers&) = delete;
  Pointers& operator=(const Pointers&) = delete;
  PyObject** data() { return data_; }
  PyObject* const* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kFew = 16;
  PyObject* few_[kFew];
  std::vector<PyObject*> many_;
  PyObject** data_;
  size_t size_;
};

// The numbers that the segment computes from sizes and from numbers that change between calls.
class Numbers {
 public:
  Numbers(const capture::Segment& segment, const capture::Fetched& fetched)
      : n_(segment.numbers == nullptr ? 0 : static_cast<size_t>(segment.numbers->count())),
        n_operands_(segment.n_number_operands), values_(n_) {
    if (n_ == 0) return;
    std::vector<PyObject*> inputs;
    for (const int32_t i : segment.inputs) inputs.push_back(fetched.data()[i]);
    for (const int32_t i : segment.number_inputs) inputs.push_back(fetched.data()[i]);
    failed_ = !segment.numbers->run(inputs.data(), values_.data());
  }
  ~Numbers() {
    for (size_t i = 0; i < n_ && !failed_; i++) capture::Ref::steal(values_.data()[i]);
  }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  bool failed() const { return failed_; }
  PyObject* const* operands() const { return values_.data(); }
  PyObject* const* results() const { return values_.data() + n_operands_; }

 private:
  size_t n_;
  int64_t n_operands_;
  Pointers values_;
  bool failed_ = false;
};

}  // namespace

PyObject* run_entry(const capture::Entry& entry, const capture::Fetched& fetched,
                    std::optional<capture::LiveFrames>& frames, bool& computed) {
  const capture::Segment& segment = entry.segment;
  PyObject* const* inputs = fetched.data();
  const size_t n_inputs = segment.inputs.size();
  const Numbers numbers(segment, fetched);
  if (numbers.failed()) return nullptr;
  Pointers gathered(entry.inputs_in_order && segment.n_number_operands == 0
                        ? 0 : n_inputs + static_cast<size_t>(segment.n_number_operands));
  if (gathered.size() > 0) {
    for (size_t i = 0; i < n_inputs; i++) gathered.data()[i] = inputs[segment.inputs[i]];
    std::copy_n(numbers.operands(), segment.n_number_operands, gathered.data() + n_inputs);
    inputs = gathered.data();
  }
  const auto n_outputs = static_cast<size_t>(entry.n_outputs);
  Pointers outputs(n_outputs);
  if (segment.executable != nullptr &&
      !segment.executable->run(inputs, static_cast<int64_t>(n_inputs) + segment.n_number_operands, outputs.data())) {
    return nullptr;
  }
  computed = true;
  if (n_outputs == 1 && entry.single_output == 0) return outputs.data()[0];
  Pointers roots(segment.exit.n_roots());
  PyObject* result = segment.exit.run(fetched.data(), outputs.data(), roots.data(), numbers.results());
  for (size_t i = 0; i < n_outputs; i++) capture::Ref::steal(outputs.data()[i]);
  if (result != nullptr && !segment.frames.empty()) frames.emplace(segment.frames, roots.data());
  return result;
}

}  // namespace braze::module
