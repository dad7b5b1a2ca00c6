#include "braze/module/tracer.h"

#include "braze/module/errors.h"
#include "braze/trace/compiler.h"

namespace braze::module {

bool start_tracer() {
  static bool started = false;
  if (started) return true;
  try {
    trace::register_tracer();
    started = true;
  } catch (const std::exception& error) {
    if (PyErr_Occurred() == nullptr) raise_internal_error(error.what());
  }
  return started;
}

}  // namespace braze::module
