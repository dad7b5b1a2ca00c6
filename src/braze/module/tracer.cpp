#include "braze/module/tracer.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "braze/capture/guards/object.h"
#include "braze/capture/natives/natives.h"
#include "braze/capture/probes.h"
#include "braze/jit/jit.h"
#include "braze/module/errors.h"
#include "braze/trace/compiler.h"

namespace braze::module {

namespace {

std::atomic<bool> started = false, starting = false;

// Tables that are built by importing modules let other threads in. Built here, under a lock that is waited for without
// the GIL, and not where one thread would wait for them with it.
void build_tables() {
  jit::preload();   // the compiler's library is opened meanwhile
  trace::register_tracer();
  capture::find_native(Py_None);
  capture::object::versions_work();
  capture::python_behaves();
}

}  // namespace

bool start_tracer() {
  if (started) return true;
  while (starting.exchange(true)) {
    Py_BEGIN_ALLOW_THREADS;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Py_END_ALLOW_THREADS;
    if (started) return true;
  }
  if (!started) {
    try {
      build_tables();
      started = true;
    } catch (const std::exception& error) {
      if (PyErr_Occurred() == nullptr) raise_internal_error(error.what());
    }
  }
  starting = false;
  return started;
}

}  // namespace braze::module
