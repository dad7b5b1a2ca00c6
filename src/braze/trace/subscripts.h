// Subscripts of tensors with ints that change between calls: torch's own parser takes such an int for its value of now.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "braze/capture/ref.h"

namespace braze::trace {

struct Subscript {
  at::Tensor tensor;   // with the symbolic ints applied, as select() does it
  capture::Ref key;    // what is left of the subscript: a tuple, perhaps empty
};

// nullopt: no symbolic int in the key, or one among things that this does not know.
std::optional<Subscript> select_symbolic(const at::Tensor& tensor, PyObject* key);

// Whether the callable reads or writes a subscript: operator.getitem, Tensor.__setitem__ and their like.
bool reads_subscript(PyObject* callable);
bool writes_subscript(PyObject* callable);

}  // namespace braze::trace
