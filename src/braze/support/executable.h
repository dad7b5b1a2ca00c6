// What a compiled segment runs. Capture holds one per segment and never sees a buffer; runtime implements it.
#pragma once

#include <cstdint>

struct _object;  // PyObject; support includes no Python header

namespace braze {

class Executable {
 public:
  virtual ~Executable() = default;
  // inputs: `n_inputs` borrowed Python tensors (or ints for symbolic-size inputs), in the graph's input order.
  // outputs: `n_outputs()` slots that receive new references. Returns false with a Python error set; then no
  // output slot is owned and no input was written. Needs the GIL on entry; may drop it while kernels run.
  virtual bool run(_object* const* inputs, int64_t n_inputs, _object** outputs) = 0;
  virtual int64_t n_outputs() const = 0;
};

}  // namespace braze
