// Classes made by a class statement, and those written in C.
#pragma once

#include <utility>
#include <vector>

#include "braze/capture/ref.h"

namespace braze::capture {

// Many classes written in C are heap types, too.
bool is_python_class(PyTypeObject* type);
// The keys of a dict in its order, as a list, past what its class puts over keys(). Empty: an error is set.
Ref storage_keys(PyObject* dict);
// Keys and values, likewise; no key is hashed again.
bool storage_pairs(PyObject* dict, std::vector<std::pair<Ref, Ref>>& out);
// The type that lays out instances of `type`: the nearest base that no class statement made.
PyTypeObject* native_base(PyTypeObject* type);

}  // namespace braze::capture
