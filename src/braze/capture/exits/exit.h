// The exit of a trace: the recipe that rebuilds what the traced program returned, and its side effects.
#pragma once

#include <span>
#include <vector>

#include "braze/capture/execute/executor.h"
#include "braze/capture/exits/recipe.h"

namespace braze::capture {

class ExitBuilder {
 public:
  ExitBuilder(Executor& x, Recipe& recipe) : x_(x), recipe_(recipe) {}

  // Aborts for values that can't be rebuilt.
  void result(Value v) { recipe_.set_result(slot(v)); }
  // The frames' functions and slots, as roots of the recipe. An abort names the position of an earlier end that can be
  // tried instead.
  void frames(const std::vector<CutFrame>& frames);
  void side_effects();
  // Aborts if a generator would run on when it is dropped with what the trace made and the exit does not rebuild.
  void dropped_generators();
  void calls(const std::vector<TraceSession::ModeCall>& calls);
  // Traced tensors that the graph must return, in the order of the recipe's Output instructions.
  std::span<PyObject* const> outputs() const { return outputs_; }
  int32_t fetched(Src src);

 private:
  int32_t slot(Value v);
  int32_t build(Value v);
  int32_t fresh_instance(Value v);
  int32_t dict_of(int32_t owner);
  void delete_attribute(Src owner, PyObject* name);
  int32_t fresh_exception(PyObject* exception);   // made; not yet filled
  void fill_exception(PyObject* exception, int32_t made);
  int32_t traceback(PyObject* traceback);
  int32_t part(PyObject* owner, PyObject* object);
  int32_t fresh_function(Value v);
  int32_t fresh_iterator(Value v);
  int32_t fresh_generator(PyObject* generator);
  // Aborts, with the place where the object was made.
  [[noreturn]] void refuse(PyObject* object, const std::string& reason);
  int32_t add(RecipeOp op, int32_t a = 0, std::span<const int32_t> operands = {}, PyObject* object = nullptr) {
    return recipe_.add(op, a, operands, object);
  }

  Executor& x_;
  Recipe& recipe_;
  PointerMap<int32_t> slots_;            // identity objects: slot + 1, so that sharing and cycles survive
  std::vector<PyObject*> outputs_;
  std::vector<int32_t> fetched_;         // by source: index + 1
  std::vector<Ref> kept_;
  int depth_ = 0;                        // of the object that is built, in others
};

}  // namespace braze::capture
