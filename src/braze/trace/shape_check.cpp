#include "braze/trace/shape_check.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "braze/support/small_vector.h"
#include "braze/sym/size_program.h"

namespace braze::trace {
namespace {

const void* storage_of(PyObject* tensor) {
  return THPVariable_Unpack(tensor).unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

std::vector<sym::Expr> symbols_of(const std::vector<SizeRead>& reads) {
  std::vector<sym::Expr> out;
  for (const SizeRead& read : reads) out.push_back(read.symbol);
  return out;
}

class TensorsCheck final : public capture::ShapeCheck {
 public:
  TensorsCheck(EnvPtr env, std::vector<SizeRead> reads, std::vector<MemoryGroup> groups, int32_t n_inputs)
      : env_(std::move(env)), reads_(std::move(reads)), program_(symbols_of(reads_)), n_inputs_(n_inputs) {
    for (const sym::Guard& guard : env_->guards()) {
      slots_.push_back(program_.add(guard.predicate));
      predicates_.push_back(guard.predicate);
    }
    for (MemoryGroup& group : groups)
      if (group.written || group.members.size() > 1) groups_.push_back(std::move(group));
  }

  bool is_trivial() const { return slots_.empty() && groups_.empty(); }

  bool run(PyObject* const* tensors) const override {
    return failing_size(tensors) < 0 && memory_problem(tensors) == nullptr;
  }

  std::string explain(PyObject* const* tensors) const override {
    const int failed = failing_size(tensors);
    if (failed >= 0) return words(predicates_[static_cast<size_t>(failed)]);
    const char* problem = memory_problem(tensors);
    return problem == nullptr ? "" : problem;
  }

 private:
  int failing_size(PyObject* const* tensors) const {
    if (slots_.empty()) return -1;
    SmallVector<int64_t, 64> values(static_cast<size_t>(program_.slots()), 0);
    for (size_t i = 0; i < reads_.size(); ++i)
      values[i] = THPVariable_Unpack(tensors[reads_[i].input]).size(reads_[i].dim);
    program_.run(values.data());
    for (size_t i = 0; i < slots_.size(); ++i)
      if (values[static_cast<size_t>(slots_[i])] == 0) return static_cast<int>(i);
    return -1;
  }

  const char* memory_problem(PyObject* const* tensors) const {
    for (const MemoryGroup& group : groups_) {
      const void* storage = storage_of(tensors[group.members[0]]);
      for (int32_t member : group.members)
        if (storage_of(tensors[member]) != storage) return "inputs that shared memory do not any more";
      if (!group.written) continue;
      for (int32_t i = 0; i < n_inputs_; ++i)
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
  std::vector<SizeRead> reads_;
  sym::SizeProgram program_;
  std::vector<int> slots_;
  std::vector<sym::Expr> predicates_;
  std::vector<MemoryGroup> groups_;
  int32_t n_inputs_;
};

}  // namespace

std::shared_ptr<const capture::ShapeCheck> make_shape_check(const EnvPtr& env, std::vector<SizeRead> reads,
                                                            std::vector<MemoryGroup> groups, int32_t n_inputs) {
  auto check = std::make_shared<TensorsCheck>(env, std::move(reads), std::move(groups), n_inputs);
  if (check->is_trivial()) return nullptr;
  return check;
}

}  // namespace braze::trace
