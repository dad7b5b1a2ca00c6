#include "braze/module/run_entry.h"

#include <vector>

namespace braze::module {

namespace {

// A few pointers on the stack, many on the heap.
class Pointers {
 public:
  explicit Pointers(size_t n) {
    if (n > kFew) many_.resize(n);
    data_ = n > kFew ? many_.data() : few_;
  }
  Pointers(const Pointers&) = delete;
  Pointers& operator=(const Pointers&) = delete;
  PyObject** data() { return data_; }

 private:
  static constexpr size_t kFew = 16;
  PyObject* few_[kFew];
  std::vector<PyObject*> many_;
  PyObject** data_;
};

}  // namespace

PyObject* run_entry(const capture::Entry& entry, const capture::Fetched& fetched,
                    std::optional<capture::LiveFrames>& frames, bool& computed) {
  const capture::Segment& segment = entry.segment;
  PyObject* const* inputs = fetched.data();
  const size_t n_inputs = segment.inputs.size();
  Pointers gathered(entry.inputs_in_order ? 0 : n_inputs);
  if (!entry.inputs_in_order) {
    for (size_t i = 0; i < n_inputs; i++) gathered.data()[i] = inputs[segment.inputs[i]];
    inputs = gathered.data();
  }
  const auto n_outputs = static_cast<size_t>(entry.n_outputs);
  Pointers outputs(n_outputs);
  if (segment.executable != nullptr &&
      !segment.executable->run(inputs, static_cast<int64_t>(n_inputs), outputs.data())) {
    return nullptr;
  }
  computed = true;
  if (n_outputs == 1 && entry.single_output == 0) return outputs.data()[0];
  Pointers roots(segment.exit.n_roots());
  PyObject* result = segment.exit.run(fetched.data(), outputs.data(), roots.data());
  for (size_t i = 0; i < n_outputs; i++) capture::Ref::steal(outputs.data()[i]);
  if (result != nullptr && !segment.frames.empty()) frames.emplace(segment.frames, roots.data());
  return result;
}

}  // namespace braze::module
