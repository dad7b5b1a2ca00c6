#include "braze/module/compiled_function.h"

#include <structmember.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <optional>
#include <set>
#include <unordered_map>

#include "braze/capture/observers.h"
#include "braze/capture/probes.h"
#include "braze/capture/value.h"
#include "braze/module/arguments.h"
#include "braze/module/counters.h"
#include "braze/module/custom_passes.h"
#include "braze/module/errors.h"
#include "braze/module/pipeline.h"
#include "braze/module/run_entry.h"
#include "braze/module/tracer.h"
#include "braze/support/log.h"
#include "braze/trace/compiler.h"

namespace braze::module {

using capture::Call;
using capture::CaptureFailure;
using capture::Entry;
using capture::EntryCache;
using capture::EntryOptions;
using capture::Fetched;
using capture::LiveFrames;
using capture::must_propagate;
using capture::Ref;
using capture::Skip;

namespace {

struct State {
  State(EntryOptions entry_options, PipelineOptions pipeline_options, bool full)
      : cache(std::move(entry_options)), pipeline(std::move(pipeline_options)), fullgraph(full) {}
  EntryCache cache;
  // What runs on after graph breaks, by the state of the frames.
  std::unordered_map<std::string, std::shared_ptr<EntryCache>> continuations;
  PipelineOptions pipeline;
  bool fullgraph;
  int unexpected_branches = 0;       // see TraceSession::assume()
  std::set<std::string> said, stepped;
  std::vector<std::string> breaks;   // reason and stack, each once
};

struct CompiledFunction {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* callee;
  PyObject* dict;
  PyObject* weakrefs;
  State* state;
};

PyTypeObject* compiled_function_type = nullptr;

std::set<CompiledFunction*>& live_functions() {
  static std::set<CompiledFunction*> functions;
  return functions;
}

thread_local int eager_depth = 0;
thread_local int tracing_depth = 0;

struct Tracing {
  Tracing() { tracing_depth++; }
  ~Tracing() { tracing_depth--; }
};

std::string function_name(PyObject* callee) {
  Ref name = Ref::steal(PyObject_GetAttrString(callee, "__qualname__"));
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (text == nullptr) return PyErr_Clear(), Py_TYPE(callee)->tp_name;
  return text;
}

// Counts the call and says why, once per reason and function.
void note_skip(CompiledFunction* self, const Skip& skip) {
  counters().skipped[skip.reason]++;
  const std::string text = skip.failure != nullptr ? failure_text(*skip.failure) : skip.detail.empty() ? skip.reason : skip.detail;
  if (!self->state->said.insert(skip.failure != nullptr ? text : skip.reason).second) return;
  const std::string line = function_name(self->callee) + " runs eagerly: " + text;
  if (skip.internal || !skip.detail.empty()) warn_once(line);
  else if (log_enabled(Topic::kGraphBreaks)) log(Topic::kGraphBreaks, line);
}

void note_break(CompiledFunction* self, const CaptureFailure& broken) {
  if (broken.silent) return;
  counters().breaks[broken.reason]++;
  const std::string text = failure_text(broken);
  auto& breaks = self->state->breaks;
  if (std::find(breaks.begin(), breaks.end(), text) != breaks.end()) return;
  breaks.push_back(text);
  if (log_enabled(Topic::kGraphBreaks)) log(Topic::kGraphBreaks, "graph break in " + function_name(self->callee) + ": " + text);
}

// Who gave the types of the traced operators since then.
std::string types_text(const trace::TypeStatistics& before) {
  const trace::TypeStatistics now = trace::type_statistics();
  return "types: " + std::to_string(now.native - before.native) + " by rules, " +
         std::to_string(now.structured - before.structured) + " by at::meta, " +
         std::to_string(now.cpp_meta - before.cpp_meta) + " by C++ meta kernels, " +
         std::to_string(now.python_meta - before.python_meta) + " by Python meta kernels";
}

void note_compiled(CompiledFunction* self, const Entry& entry, double total_ms, const trace::TypeStatistics& types_before) {
  if (entry.segment.broken != nullptr) note_break(self, *entry.segment.broken);
  if (entry.segment.executable == nullptr) return;
  counters().graphs++;
  counters().graphs_ever++;
  const double trace_ms = trace::take_trace_time();
  const double capture_ms = total_ms - take_pipeline_time() - trace_ms;
  if (!phase_reports().empty()) {
    auto& phases = phase_reports().back().phases;
    if (phases.empty() || phases.front().first != "capture") {
      phases.insert(phases.begin(), {{"capture", capture_ms}, {"trace", trace_ms}});
      phase_reports().back().note += "; " + types_text(types_before);
    }
  }
  if (log_enabled(Topic::kPerf)) {
    log(Topic::kPerf, "capture: " + std::to_string(capture_ms) + " ms, trace: " + std::to_string(trace_ms) + " ms, guards: " +
                          std::to_string(entry.segment.guards->size()) + " instructions");
  }
}

PyObject* call_eagerly(CompiledFunction* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  return PyObject_Vectorcall(self->callee, args, nargsf, kwnames);
}

using Made = std::variant<std::shared_ptr<const Entry>, Skip>;

Made compile_entry(CompiledFunction* self, EntryCache& cache, const Call& call, Fetched& fetched) {
  const auto start = std::chrono::steady_clock::now();
  take_pipeline_time();
  trace::take_trace_time();
  const trace::TypeStatistics types_before = trace::type_statistics();
  const Tracing tracing;
  const PipelineScope scope(self->state->pipeline);
  Made made = cache.compile(call, fetched);
  if (auto* entry = std::get_if<std::shared_ptr<const Entry>>(&made)) {
    note_compiled(self, **entry, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count(),
                   types_before);
  }
  return made;
}

// The entries for frames in this state; nullptr once there are too many states.
std::shared_ptr<EntryCache> continuation_of(State& state, const std::string& key) {
  constexpr size_t kMostStates = 256;
  auto& caches = state.continuations;
  if (const auto known = caches.find(key); known != caches.end()) return known->second;
  if (caches.size() >= kMostStates) return nullptr;
  return caches.emplace(key, std::make_shared<EntryCache>(state.cache.options())).first->second;
}

// The text of the current error, which is cleared.
std::string take_error_text() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  const Ref owned_type = Ref::steal(type), owned_value = Ref::steal(value), owned_traceback = Ref::steal(traceback);
  const Ref text = value != nullptr ? Ref::steal(PyObject_Str(value)) : Ref();
  const char* words = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  return words == nullptr ? "?" : words;
}

// True if a program failed since a branch was not as expected. Where that comes often, such branches break the graph
// instead, but under fullgraph.
bool note_unexpected_branch(CompiledFunction* self, const std::string& error) {
  constexpr int kMostUnexpected = 3;
  if (!error.starts_with(capture::kUnexpectedBranch)) return false;
  State& state = *self->state;
  if (++state.unexpected_branches == kMostUnexpected && !state.fullgraph) {
    state.cache.stop_expecting_branches();
    state.continuations.clear();
  }
  return true;
}

// After a graph break: the instruction that broke the graph runs for real, then a segment that starts behind it, and
// so on. CPython runs a frame to its end where none can start in it, and all of them where that leads nowhere.
PyObject* run_on(CompiledFunction* self, std::optional<LiveFrames> frames) {
  constexpr int kMostIdleSteps = 48;   // without a graph in between
  bool end_innermost = false;
  std::vector<PyObject*> values;
  std::string key;
  for (int idle = 0; idle < kMostIdleSteps; idle++) {
    PyObject* result = nullptr;
    if (!(end_innermost ? frames->end_innermost(result) : frames->step(result))) return result;
    end_innermost = false;
    if (capture::is_observed()) break;
    if (!frames->describe(values, key)) break;
    const std::shared_ptr<EntryCache> cache = continuation_of(*self->state, key);
    if (cache == nullptr) {
      counters().skipped["too many graph breaks"]++;
      break;
    }
    const Call call{values[0], values.data(), static_cast<int64_t>(values.size()), nullptr, &*frames};
    Fetched fetched;
    std::shared_ptr<const Entry> entry = cache->find(call, fetched);
    if (entry == nullptr) {
      Made made = compile_entry(self, *cache, call, fetched);
      if (auto* skip = std::get_if<Skip>(&made)) {
        if (skip->error_set) break;   // raised inside the frames, whose handlers then run
        if (skip->failure != nullptr && skip->failure->at_start) {
          // Known from then on: counted once, as the segments that break are.
          if (self->state->stepped.insert(skip->failure->reason + skip->failure->stack).second) note_break(self, *skip->failure);
          continue;
        }
        if (skip->failure == nullptr || !skip->failure->user_error) note_skip(self, *skip);
        end_innermost = true;
        continue;
      }
      entry = std::get<std::shared_ptr<const Entry>>(std::move(made));
    }
    if (entry->segment.executable != nullptr) idle = 0;
    std::optional<LiveFrames> next;
    bool computed = false;
    result = run_entry(*entry, fetched, next, computed);
    if (result == nullptr) {
      // The program's own operations say what is wrong, where, and inside the program's handlers.
      if (computed || !PyErr_ExceptionMatches(PyExc_Exception) || must_propagate(PyErr_Occurred())) break;
      note_unexpected_branch(self, take_error_text());
      end_innermost = true;
      continue;
    }
    if (!next) return result;
    Ref::steal(result);
    frames.emplace(std::move(*next));
  }
  return frames->finish();
}

// Nothing outside has changed when a program fails: the call is made once more, by CPython, so that type, message and
// traceback are eager's. Where eager succeeds, what was traced does not hold for these arguments.
PyObject* run_again(CompiledFunction* self, const Call& call, size_t nargsf) {
  const std::string error = take_error_text();
  const bool unexpected = note_unexpected_branch(self, error);
  PyObject* const result = call_eagerly(self, call.args, nargsf, call.kwnames);
  if (result != nullptr && !unexpected)
    note_skip(self, {"a compiled program failed", "a compiled program failed where eager does not: " + error, nullptr});
  return result;
}

PyObject* run(CompiledFunction* self, const std::shared_ptr<const Entry>& entry, Fetched& fetched, const Call& call,
              size_t nargsf) {
  std::optional<LiveFrames> frames;
  bool computed = false;
  PyObject* result = run_entry(*entry, fetched, frames, computed);
  if (result == nullptr && !computed && PyErr_ExceptionMatches(PyExc_Exception) && !must_propagate(PyErr_Occurred())) {
    fetched.release();
    return run_again(self, call, nargsf);
  }
  if (!frames) [[likely]] return result;
  Ref::steal(result);
  fetched.release();
  return run_on(self, std::move(frames));
}

// No entry fits: compiles one, or runs the function itself.
PyObject* call_without_entry(CompiledFunction* self, const Call& call, size_t nargsf) {
  const auto eagerly = [&] { return call_eagerly(self, call.args, nargsf, call.kwnames); };
  if (!arguments_fit(call)) return eagerly();
  if (capture::is_observed()) {
    note_skip(self, {"a debugger or profiler is active", "", nullptr});
    return eagerly();
  }
  if (!start_tracer()) return nullptr;
  if (!capture::python_behaves()) {
    counters().skipped["an unknown build of Python"]++;
    warn_once("this build of Python " PY_VERSION " does not behave as its version does: everything runs eagerly");
    return eagerly();
  }
  Fetched fetched;
  Made made = compile_entry(self, self->state->cache, call, fetched);
  if (auto* entry = std::get_if<std::shared_ptr<const Entry>>(&made)) return run(self, *entry, fetched, call, nargsf);
  const Skip& skip = std::get<Skip>(made);
  if (skip.error_set) return nullptr;
  if (self->state->fullgraph && skip.failure != nullptr && !skip.failure->user_error) {
    if (skip.internal) raise_internal_error(failure_text(*skip.failure));
    else raise_unsupported(*skip.failure);
    return nullptr;
  }
  note_skip(self, skip);
  return eagerly();
}

PyObject* call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  auto* self = reinterpret_cast<CompiledFunction*>(object);
  if (self->callee == nullptr) {   // collected as part of a cycle, called by a finalizer
    PyErr_SetString(PyExc_ReferenceError, "this compiled function no longer exists");
    return nullptr;
  }
  if (eager_depth + tracing_depth > 0) [[unlikely]] return call_eagerly(self, args, nargsf, kwnames);
  const Call request{self->callee, args, PyVectorcall_NARGS(nargsf), kwnames};
  // The callee may drop the last reference to this object while it runs.
  const Ref alive = Ref::borrow(object);
  try {
    {
      Fetched fetched;
      if (const auto entry = self->state->cache.find(request, fetched)) [[likely]] return run(self, entry, fetched, request, nargsf);
    }
    return call_without_entry(self, request, nargsf);
  } catch (const std::exception& error) {
    if (!PyErr_Occurred()) raise_internal_error(error.what());
    return nullptr;
  }
}

// ---- Construction

bool read_strings(PyObject* list, std::vector<std::string>& out) {
  Ref items = Ref::steal(PySequence_Fast(list, "pass names must be a list of str"));
  if (!items) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); i++) {
    const char* text = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(items.get(), i));
    if (text == nullptr) return false;
    out.emplace_back(text);
  }
  return true;
}

PyObject* create(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  const char* names[] = {"callee", "fullgraph", "dynamic", "backend", "recompile_limit", "fusion", "verify",
                         "enable_passes", "disable_passes", "activation_memory_budget", "autotune",
                         kCustomPassNames[0], kCustomPassNames[1], kCustomPassNames[2], kCustomPassNames[3], nullptr};
  PyObject *callee = nullptr, *dynamic = Py_None, *enable = nullptr, *disable = nullptr;
  int fullgraph = 0, recompile_limit = 8, fusion = 1, verify = 0, autotune = 0;
  const char* backend = "braze";
  double memory_budget = 1.0;
  std::array<PyObject*, 4> custom{};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$pOsippOOdpOOOO:CompiledFunction", const_cast<char**>(names), &callee,
                                   &fullgraph, &dynamic, &backend, &recompile_limit, &fusion, &verify, &enable,
                                   &disable, &memory_budget, &autotune, &custom[0], &custom[1], &custom[2], &custom[3])) {
    return nullptr;
  }
  if (!PyCallable_Check(callee)) {
    return PyErr_Format(PyExc_TypeError, "braze.compile needs a callable, got %s", Py_TYPE(callee)->tp_name);
  }
  EntryOptions options;
  options.recompile_limit = recompile_limit;
  if (dynamic != Py_None) options.dynamic = PyObject_IsTrue(dynamic) == 1;
  options.trace.backend = backend;
  options.wait_for_others = fullgraph != 0;
  options.trace.graph_breaks = fullgraph == 0;
  PipelineOptions pipeline{fusion != 0, verify != 0, memory_budget, autotune != 0, {}, {}, CustomPasses::make(custom)};
  if ((enable != nullptr && !read_strings(enable, pipeline.enable_passes)) ||
      (disable != nullptr && !read_strings(disable, pipeline.disable_passes))) {
    return nullptr;
  }
  auto* self = reinterpret_cast<CompiledFunction*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = call;
  self->callee = Ref::borrow(callee).release();
  self->dict = PyDict_New();
  self->state = new State(std::move(options), std::move(pipeline), fullgraph != 0);
  live_functions().insert(self);
  return reinterpret_cast<PyObject*>(self);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<CompiledFunction*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->callee);
  Py_VISIT(self->dict);
  return 0;
}

int clear(PyObject* object) {
  auto* self = reinterpret_cast<CompiledFunction*>(object);
  Ref::steal(std::exchange(self->callee, nullptr));
  Ref::steal(std::exchange(self->dict, nullptr));
  return 0;
}

void destroy(PyObject* object) {
  auto* self = reinterpret_cast<CompiledFunction*>(object);
  PyObject_GC_UnTrack(object);
  if (self->weakrefs != nullptr) PyObject_ClearWeakRefs(object);
  live_functions().erase(self);
  clear(object);
  delete self->state;
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Ref::steal(reinterpret_cast<PyObject*>(type));
}

PyObject* bind(PyObject* self, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Ref::borrow(self).release();
  return PyMethod_New(self, instance);
}

PyObject* represent(PyObject* object) {
  return PyUnicode_FromFormat("<braze.CompiledFunction of %R>", reinterpret_cast<CompiledFunction*>(object)->callee);
}

PyObject* entry_count(PyObject* object, PyObject*) {
  const State& state = *reinterpret_cast<CompiledFunction*>(object)->state;
  int64_t n = state.cache.size();
  for (const auto& [key, cache] : state.continuations) n += cache->size();
  return PyLong_FromLongLong(n);
}

PyObject* describe_guards(PyObject* object, PyObject*) {
  const State& state = *reinterpret_cast<CompiledFunction*>(object)->state;
  std::string text = state.cache.describe();
  for (const auto& [key, cache] : state.continuations) {
    if (cache->size() > 0) text += "after a graph break:\n" + cache->describe();
  }
  return PyUnicode_FromString(text.c_str());
}

PyObject* list_breaks(PyObject* object, PyObject*) {
  const Ref list = Ref::steal(PyList_New(0));
  for (const std::string& text : reinterpret_cast<CompiledFunction*>(object)->state->breaks) {
    const Ref item = Ref::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
    if (!list || !item || PyList_Append(list.get(), item.get()) < 0) return nullptr;
  }
  return Ref(list).release();
}

// Nanoseconds in which the entry for a call is found, guards included: the best mean of many short runs.
PyObject* guard_time(PyObject* object, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  auto* self = reinterpret_cast<CompiledFunction*>(object);
  const Call request{self->callee, args, n, kwnames};
  constexpr int kRuns = 200, kCalls = 20;
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; run++) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; i++) {
      Fetched fetched;
      if (self->state->cache.find(request, fetched) == nullptr) {
        return PyErr_Format(PyExc_ValueError, "no entry fits this call");
      }
    }
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count() / kCalls);
  }
  return PyFloat_FromDouble(best);
}

PyObject* clear_entries(PyObject* object, PyObject*) {
  State& state = *reinterpret_cast<CompiledFunction*>(object)->state;
  state.cache.clear();
  state.continuations.clear();
  Py_RETURN_NONE;
}

PyMemberDef kMembers[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledFunction, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(CompiledFunction, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledFunction, weakrefs), READONLY, nullptr},
    {"callee", T_OBJECT, offsetof(CompiledFunction, callee), READONLY, "The function that was compiled."},
    {}};

PyGetSetDef kGetSet[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {}};

PyMethodDef kMethods[] = {
    {"entry_count", entry_count, METH_NOARGS, "The number of compiled entries."},
    {"guards", describe_guards, METH_NOARGS, "All guards of all entries, one a line."},
    {"breaks", list_breaks, METH_NOARGS, "Why and where graphs ended before the call did, a text each."},
    {"guard_time", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(guard_time)), METH_FASTCALL | METH_KEYWORDS,
     "Nanoseconds in which the entry for a call with these arguments is found."},
    {"clear", clear_entries, METH_NOARGS, "Drops all entries."},
    {}};

PyType_Slot kSlots[] = {
    {Py_tp_new, reinterpret_cast<void*>(create)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
    {Py_tp_repr, reinterpret_cast<void*>(represent)},
    {Py_tp_members, kMembers},
    {Py_tp_getset, kGetSet},
    {Py_tp_methods, kMethods},
    {0, nullptr}};

PyType_Spec kSpec = {
    "braze._braze.CompiledFunction", sizeof(CompiledFunction), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
        Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_IMMUTABLETYPE,
    kSlots};

}  // namespace

bool add_compiled_function(PyObject* module) {
  Ref type = Ref::steal(PyType_FromSpec(&kSpec));
  if (!type || PyModule_AddObjectRef(module, "CompiledFunction", type.get()) < 0) return false;
  compiled_function_type = reinterpret_cast<PyTypeObject*>(type.get());
  return true;
}

void clear_all_entries() {
  for (CompiledFunction* f : live_functions()) {
    f->state->cache.clear();
    f->state->continuations.clear();
    f->state->said.clear();
    f->state->stepped.clear();
    f->state->breaks.clear();
  }
}

RunEagerly::RunEagerly() { eager_depth++; }
RunEagerly::~RunEagerly() { eager_depth--; }
bool is_tracing() { return tracing_depth > 0; }

}  // namespace braze::module
