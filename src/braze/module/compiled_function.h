// CompiledFunction: the Python object that braze.compile returns for a function. A call checks guards, runs the
// executable and rebuilds the result in C++; Python code runs only where a call can't be compiled.
#pragma once

#include "braze/capture/entry_cache.h"

namespace braze::module {

bool add_compiled_function(PyObject* module);   // false with an error set

// Drops the entries of all compiled functions.
void clear_all_entries();

// While set, compiled functions of this thread run their callee eagerly (tests, debugging, nested traces).
class RunEagerly {
 public:
  RunEagerly();
  ~RunEagerly();
  RunEagerly(const RunEagerly&) = delete;
  RunEagerly& operator=(const RunEagerly&) = delete;
};
bool is_tracing();

}  // namespace braze::module
