#include "braze/trace/shape_check.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

namespace braze::trace {
namespace {

const void* storage_of(PyObject* tensor) {
  return THPVariable_Unpack(tensor).unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

class InputsCheck final : public capture::ShapeCheck {
 public:
  InputsCheck(EnvPtr env, NumberReads reads, std::vector<MemoryGroup> groups, int32_t n_tensors)
      : env_(std::move(env)), has_numbers_(!env_->integers().empty() || !reads.floats.empty()),
        reader_(*env_, std::move(reads)), n_tensors_(n_tensors) {
    for (const sym::Guard& guard : env_->guards()) {
      slots_.push_back(reader_.add(guard.predicate));
      predicates_.push_back(guard.predicate);
    }
    for (MemoryGroup& group : groups)
      if (group.written || group.members.size() > 1) groups_.push_back(std::move(group));
  }

  bool is_trivial() const { return slots_.empty() && groups_.empty() && !has_numbers_; }

  bool run(PyObject* const* inputs) const override {
    return failing_number(inputs) == kNone && memory_problem(inputs) == nullptr;
  }

  std::string explain(PyObject* const* inputs) const override {
    const int failed = failing_number(inputs);
    if (failed == kUncomputed) return "a number is out of the bounds within which it may change";
    if (failed >= 0 && static_cast<size_t>(failed) < slots_.size()) return words(predicates_[static_cast<size_t>(failed)]);
    if (failed >= 0) return env_->describe(env_->float_guards()[static_cast<size_t>(failed) - slots_.size()]);
    const char* problem = memory_problem(inputs);
    return problem == nullptr ? "" : problem;
  }

 private:
  static constexpr int kNone = -1, kUncomputed = -2;

  // The number of the first guard that fails: predicates over integers, then those over floats.
  int failing_number(PyObject* const* inputs) const {
    if (slots_.empty() && !has_numbers_) return kNone;
    NumberReader::Values values;
    if (!reader_.read(inputs, values)) return kUncomputed;
    for (size_t i = 0; i < slots_.size(); ++i)
      if (values.integers[static_cast<size_t>(slots_[i])] == 0) return static_cast<int>(i);
    const std::vector<FloatGuard>& guards = env_->float_guards();
    for (size_t i = 0; i < guards.size(); ++i)
      if (compare(guards[i].how, values.floats[static_cast<size_t>(guards[i].a)],
                  values.floats[static_cast<size_t>(guards[i].b)]) != guards[i].holds)
        return static_cast<int>(slots_.size() + i);
    return kNone;
  }

  const char* memory_problem(PyObject* const* tensors) const {
    for (const MemoryGroup& group : groups_) {
      const void* storage = storage_of(tensors[group.members[0]]);
      for (int32_t member : group.members)
        if (storage_of(tensors[member]) != storage) return "inputs that shared memory do not any more";
      if (!group.written) continue;
      for (int32_t i = 0; i < n_tensors_; ++i)
        if (storage_of(tensors[i]) == storage &&
            std::find(group.members.begin(), group.members.end(), i) == group.members.end())
          return "an input that is written now shares memory with another input";
    }
    return nullptr;
  }

  // The predicate with the user's names for its sizes.
  std::string words(sym::Expr predicate) const {
    std::string text = to_string(predicate);
    std::vector<sym::Expr> symbols;
    collect_symbols(predicate, symbols);
    text += " (";
    for (size_t i = 0; i < symbols.size(); ++i)
      text += (i == 0 ? "" : ", ") + symbols[i].symbol_name() + " = " + env_->name_of(symbols[i]);
    return text + ")";
  }

  EnvPtr env_;
  bool has_numbers_;
  NumberReader reader_;
  std::vector<int> slots_;
  std::vector<sym::Expr> predicates_;
  std::vector<MemoryGroup> groups_;
  int32_t n_tensors_;
};

}  // namespace

std::shared_ptr<const capture::ShapeCheck> make_shape_check(const EnvPtr& env, NumberReads reads,
                                                            std::vector<MemoryGroup> groups, int32_t n_tensors) {
  auto check = std::make_shared<InputsCheck>(env, std::move(reads), std::move(groups), n_tensors);
  if (check->is_trivial()) return nullptr;
  return check;
}

}  // namespace braze::trace
