// What capture and a tensor domain that traces derivatives say to each other. Without one, custom autograd functions,
// checkpoints and backward passes inside a call are not captured.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "braze/capture/natives/natives.h"

namespace braze::capture {

// Interprets the backward of a custom autograd function: takes a traced tensor or None for each result of its forward,
// gives a tuple of such, one for each argument. Called with the GIL.
using Backward = std::function<Result<Ref>(std::span<PyObject* const> gradients)>;

// A TraceSession that traces derivatives is one of these, too.
class Differentiation {
 public:
  virtual ~Differentiation() = default;
  // The number by which record_function names the function. `backward` is called in call() or finish() of the session.
  virtual int64_t add_function(Backward backward) = 0;
  // Calls `hook` with the gradient of this traced tensor, which it may replace: it gives another one or None. A native
  // takes the number to remove it.
  virtual Result<int64_t> add_hook(PyObject* traced, Backward hook) = 0;
  // How often inputs and these objects, as far as they are tensors, were changed in place so far.
  virtual uint64_t n_changes(std::span<PyObject* const> objects) const = 0;

  // `.grad` of stand-ins. What the caller's tensor has is told once, before the traced program sees or changes it;
  // gradients are traced tensors or None.
  virtual bool knows_gradient(PyObject* stand_in) const = 0;
  virtual Status tell_gradient(PyObject* stand_in, PyObject* gradient) = 0;
  virtual Status set_gradient(PyObject* stand_in, PyObject* gradient) = 0;
  virtual Ref gradient(PyObject* stand_in) const = 0;
  // Before backward(): the stand-ins whose gradients a backward pass from these tensors can change.
  virtual Result<std::vector<PyObject*>> receivers(std::span<PyObject* const> roots) = 0;
  struct NewGradient {
    PyObject* stand_in;
    Ref gradient;
  };
  // Those that are other objects than they were told.
  virtual std::vector<NewGradient> new_gradients() const = 0;
};

// Natives of kind Tensor that models and polyfills call; the domain registers them before the first trace:
//   record_function(number, materialize, inputs, outputs, dirty, non_differentiable, saved, has_setup_context) -> list
//     after a forward; tuples hold tensors and None. Gives the outputs, which autograd now tracks.
//   set_recompute(on) -> bool: what is recorded from now on belongs to a checkpoint; gives what it was.
//   run_backward(...): the engine's method of this name.
//   remove_hook(number): of add_hook.
void register_native(const char* name, PyObject* native);
PyObject* registered_native(const char* name);   // borrowed; nullptr: there is none

// The side effects of a trace so far; differs after new ones.
std::vector<PyObject*> side_effects(Executor& x);

// The traced tensor for one that the program uses; aborts if it can't be traced.
Ref stand_in(Executor& x, Value tensor);

// Whether `.grad` of the tensor is a matter of the two functions below: it stands for one of the caller's.
bool has_callers_gradient(Executor& x, Value tensor);
Owned get_gradient(Executor& x, Value tensor);
bool set_gradient(Executor& x, Value tensor, Value gradient);
// The receivers of a backward pass from these tensors are told their gradients.
void load_gradients(Executor& x, Value roots);

const std::vector<ModelRow>& autograd_models();

}  // namespace braze::capture
