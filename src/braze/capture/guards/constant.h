// Exact constants: immutable natives that guards compare by value, with 1, True and 1.0, 0.0 and -0.0 told apart.
// Nothing here runs Python code or leaves an error set.
#pragma once

#include <cstdint>
#include <string>

#include "braze/capture/ref.h"

namespace braze::capture {

// Exact int, float, bool, complex, str, bytes, None, Ellipsis, NotImplemented, range, slice, torch's dtypes, devices and
// their like, and tuples (also named tuples and torch.Size), frozensets and sets of these: what can be compared by value.
bool is_value_constant(PyObject* object);
// Same exact type and same bits. For objects that are no value constants: the same object.
bool constants_equal(PyObject* a, PyObject* b);
// Equal for equal constants.
uint64_t hash_constant(PyObject* object);
// As source text: 'gelu', 0.1, (1, 2); "a Foo" for anything whose repr could run Python code.
std::string constant_text(PyObject* object);

}  // namespace braze::capture
