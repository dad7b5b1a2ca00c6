#include "braze/capture/entry_cache.h"

#include <algorithm>
#include <utility>
#include <atomic>
#include <chrono>
#include <thread>

#include "braze/capture/guards/constant.h"
#include "braze/capture/guards/object.h"
#include "braze/support/check.h"
#include "braze/support/hash.h"
#include "braze/support/log.h"

namespace braze::capture {

// A capture that failed. What guards would have seen is only partly in the fingerprint, so after some skipped calls the
// trace is tried again, ever more rarely.
struct EntryCache::Failure {
  uint64_t fingerprint = 0;
  std::shared_ptr<const CaptureFailure> failure;
  bool internal = false;
  int64_t skipped = 0, retry_at = 16;
};

struct EntryCache::Shape {
  int64_t n_positional = 0;
  Ref kwnames;
  std::vector<std::shared_ptr<const Entry>> entries;
  std::vector<Failure> failures;
  std::vector<std::pair<std::string, int64_t>> dynamic_dims;
  std::vector<std::string> changing_numbers;
  bool limit_explained = false;
  // A trace with symbolic sizes or numbers failed where one without succeeded.
  bool sizes_stay_static = false, numbers_stay_static = false;
  int compiled = 0, failed = 0;
  std::atomic<bool> tracing = false;
  std::string failing_guard;        // the last one
};

namespace {

bool same_names(PyObject* a, PyObject* b) {
  if (a == b) return true;
  const Py_ssize_t n = a == nullptr ? 0 : PyTuple_GET_SIZE(a);
  if (n != (b == nullptr ? 0 : PyTuple_GET_SIZE(b))) return false;
  for (Py_ssize_t i = 0; i < n; i++) {
    if (!constants_equal(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
  }
  return true;
}

// Cheap traits of a call that often decide whether it can be captured: its types, its plain values, torch's modes, and
// whether a module (the callee or the first argument) is in training mode.
uint64_t fingerprint_of(const Call& call) {
  static PyObject* const training = PyUnicode_InternFromString("training");
  uint64_t h = domain().modes();
  const auto add_training = [&](PyObject* object) {
    uint16_t hint = 0;
    bool known = true;
    h = mix(h, reinterpret_cast<uintptr_t>(
                   object::storage_lookup(object::instance_storage(object), training, hint, known)));
  };
  add_training(PyMethod_Check(call.callee) ? PyMethod_GET_SELF(call.callee) : call.callee);
  if (call.n_args() > 0) add_training(call.args[0]);
  for (int64_t i = 0; i < call.n_args(); i++) {
    PyObject* argument = call.args[i];
    h = mix(h, reinterpret_cast<uintptr_t>(Py_TYPE(argument)));
    if (domain().is_tensor(argument)) h = mix(h, domain().traits(argument));
    else if (is_value_constant(argument)) h = mix(h, hash_constant(argument));
  }
  return h;
}

// Until the trace of another thread ends.
void wait_without_gil(const std::atomic<bool>& tracing) {
  PyThreadState* const state = PyEval_SaveThread();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (tracing && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  PyEval_RestoreThread(state);
}

template <class T>
void add_new(std::vector<T>& known, std::vector<T> items) {
  for (T& item : items) {
    if (std::find(known.begin(), known.end(), item) == known.end()) known.push_back(std::move(item));
  }
}

// The callee is known by identity, but its code may be replaced.
PyObject* code_of(PyObject* callee) {
  if (PyMethod_Check(callee)) callee = PyMethod_GET_FUNCTION(callee);
  return PyFunction_Check(callee) ? PyFunction_GET_CODE(callee) : nullptr;
}

}  // namespace

PyObject** Fetched::reserve(int64_t n) {
  release();
  if (n > kFew) {
    many_.resize(static_cast<size_t>(n));
    values_ = many_.data();
  }
  return values_;
}

void Fetched::own(int64_t n) {
  for (int64_t i = 0; i < n; i++) Ref::borrow(values_[i]).release();
  owned_ = n;
}

void Fetched::release() {
  for (int64_t i = 0; i < owned_; i++) Ref::steal(values_[i]);
  owned_ = 0;
}

EntryCache::EntryCache(EntryOptions options, Tracer tracer) : options_(std::move(options)), tracer_(tracer) {
  options_.trace.dynamic = options_.dynamic.value_or(false);
}

EntryCache::~EntryCache() = default;

EntryCache::Shape* EntryCache::shape_of(const Call& call) {
  for (const auto& shape : shapes_) {
    if (shape->n_positional == call.n_positional && same_names(shape->kwnames.get(), call.kwnames)) return shape.get();
  }
  return nullptr;
}

EntryCache::Shape& EntryCache::add_shape(const Call& call) {
  auto shape = std::make_shared<Shape>();
  shape->n_positional = call.n_positional;
  shape->kwnames = Ref::borrow(call.kwnames);
  shapes_.push_back(std::move(shape));
  return *shapes_.back();
}

std::shared_ptr<const Entry> EntryCache::find(const Call& call, Fetched& fetched) {
  Shape* const shape = shape_of(call);
  if (shape == nullptr) return nullptr;
  const CallArgs arguments{call.callee, call.args, call.n_args()};
  PyObject* const code = code_of(call.callee);
  for (size_t i = 0; i < shape->entries.size(); i++) {
    if (shape->entries[i]->code.get() != code) continue;
    const GuardProgram& guards = *shape->entries[i]->segment.guards;
    const int64_t n = guards.n_fetched();
    if (!guards.run(arguments, fetched.reserve(n))) continue;
    fetched.own(n);
    if (i > 0) std::rotate(shape->entries.begin(), shape->entries.begin() + static_cast<int64_t>(i), shape->entries.begin() + static_cast<int64_t>(i) + 1);
    return shape->entries.front();
  }
  return nullptr;
}

// Why the entries do not fit: for the log, and to learn which sizes change.
void EntryCache::note_misses(Shape& shape, const Call& call) {
  std::erase_if(shape.entries, [](const auto& entry) { return !entry->segment.guards->alive(); });
  const CallArgs arguments{call.callee, call.args, call.n_args()};
  bool sizes_known = options_.dynamic.has_value();
  const bool numbers_known = options_.dynamic == false;
  for (const auto& entry : shape.entries) {
    shape.failing_guard = entry->code.get() != code_of(call.callee) ? "the function has the code that was compiled"
                                                                     : entry->segment.guards->explain_failure(arguments);
    if (log_enabled(Topic::kRecompiles)) log(Topic::kRecompiles, "failing guard: " + shape.failing_guard);
    if (sizes_known && numbers_known) continue;
    GuardProgram::Differences differences = entry->segment.guards->differences(arguments);
    if (!numbers_known) add_new(shape.changing_numbers, std::move(differences.numbers));
    if (sizes_known || differences.sizes.empty()) continue;
    sizes_known = true;
    add_new(shape.dynamic_dims, std::move(differences.sizes));
  }
}

std::optional<Skip> EntryCache::reason_to_skip(Shape& shape, const Call& call, uint64_t fingerprint) {
  if (shape.tracing) return Skip{"another call is being compiled", "", nullptr};
  if (shape.compiled >= options_.recompile_limit) {
    if (!std::exchange(shape.limit_explained, true)) note_misses(shape, call);
    return Skip{"recompile limit reached",
                "the recompile limit (" + std::to_string(options_.recompile_limit) +
                    ") is reached; further calls that fit no entry run eagerly. The guard that failed last: " +
                    shape.failing_guard,
                nullptr};
  }
  for (Failure& f : shape.failures) {
    if (f.fingerprint != fingerprint) continue;
    f.skipped++;
    if (f.internal || f.skipped < f.retry_at || shape.failed >= 4 * options_.recompile_limit) {
      return Skip{f.failure->reason, "", f.failure, f.internal};
    }
    f.retry_at *= 16;
    note_misses(shape, call);
    return std::nullopt;
  }
  if (shape.failed >= 4 * options_.recompile_limit) {
    return Skip{shape.failures.back().failure->reason, "", shape.failures.back().failure};
  }
  note_misses(shape, call);
  return std::nullopt;
}

CaptureOutcome EntryCache::trace(Shape& shape, const Call& call, Symbolic symbolic, bool& internal) const {
  TraceOptions trace_options = options_.trace;
  trace_options.dynamic = symbolic.sizes && options_.trace.dynamic;
  if (symbolic.sizes) trace_options.dynamic_dims = shape.dynamic_dims;
  if (symbolic.numbers) trace_options.changing_numbers = shape.changing_numbers;
  CaptureOutcome outcome = CaptureFailure{};
  shape.tracing = true;
  try {
    outcome = tracer_({call.callee, call.args, call.n_positional, call.kwnames, call.frames}, trace_options);
  } catch (const std::exception& error) {   // a bug of ours; also what libtorch throws where no one expected it
    internal = true;
    outcome = CaptureFailure{.reason = std::string("internal error: ") + error.what()};
  }
  shape.tracing = false;
  return outcome;
}

// The new entry, if it fits the call that it was made for.
std::shared_ptr<const Entry> EntryCache::add_entry(Shape& shape, Segment segment, const Call& call, Fetched& fetched) {
  auto entry = std::make_shared<Entry>();
  entry->segment = std::move(segment);
  entry->n_outputs = entry->segment.executable == nullptr ? 0 : entry->segment.executable->n_outputs();
  entry->single_output = entry->segment.exit.single_output();
  entry->code = Ref::borrow(code_of(call.callee));
  entry->inputs_in_order = true;
  for (size_t i = 0; i < entry->segment.inputs.size(); i++) {
    if (entry->segment.inputs[i] != static_cast<int32_t>(i)) entry->inputs_in_order = false;
  }
  const GuardProgram& guards = *entry->segment.guards;
  if (log_enabled(Topic::kGuards)) log(Topic::kGuards, guards.describe());
  const CallArgs arguments{call.callee, call.args, call.n_args()};
  if (!guards.run(arguments, fetched.reserve(guards.n_fetched()))) {
    shape.failing_guard = guards.explain_failure(arguments);
    return nullptr;
  }
  fetched.own(guards.n_fetched());
  shape.compiled++;
  shape.entries.insert(shape.entries.begin(), entry);
  return entry;
}

EntryCache::Symbolic EntryCache::symbolic_now(const Shape& shape) const {
  return {.sizes = !shape.sizes_stay_static && (options_.trace.dynamic || !shape.dynamic_dims.empty()),
          .numbers = !shape.numbers_stay_static && !shape.changing_numbers.empty()};
}

// With symbolic numbers and sizes; where that fails or breaks the graph, without numbers, then without both.
CaptureOutcome EntryCache::trace_symbolic(Shape& shape, const Call& call, bool& internal) const {
  const auto is_whole = [](const CaptureOutcome& outcome) {
    const auto* segment = std::get_if<Segment>(&outcome);
    return segment != nullptr && segment->frames.empty();
  };
  Symbolic symbolic = symbolic_now(shape);
  CaptureOutcome outcome = trace(shape, call, symbolic, internal);
  while ((symbolic.numbers || symbolic.sizes) && !is_whole(outcome) && PyErr_Occurred() == nullptr) {
    const bool without_numbers = symbolic.numbers;
    if (const auto* failure = std::get_if<CaptureFailure>(&outcome); failure != nullptr && log_enabled(Topic::kRecompiles)) {
      log(Topic::kRecompiles, std::string("traced again without symbolic ") + (without_numbers ? "numbers: " : "sizes: ") + failure->reason);
    }
    (without_numbers ? symbolic.numbers : symbolic.sizes) = false;
    bool internal_too = false;
    CaptureOutcome other = trace(shape, call, symbolic, internal_too);
    const bool better = is_whole(other) || std::holds_alternative<CaptureFailure>(outcome);
    if (!better) continue;
    if (std::holds_alternative<Segment>(other)) (without_numbers ? shape.numbers_stay_static : shape.sizes_stay_static) = true;
    outcome = std::move(other);
    internal = internal_too;
  }
  return outcome;
}

std::variant<std::shared_ptr<const Entry>, Skip> EntryCache::compile(const Call& call, Fetched& fetched) {
  Shape* found = shape_of(call);
  if (found == nullptr) found = &add_shape(call);
  // clear() may run while the trace lets other threads in: this call keeps its shape.
  const std::shared_ptr<Shape> shape = *std::find_if(shapes_.begin(), shapes_.end(), [&](const auto& s) { return s.get() == found; });
  if (shape->tracing && options_.wait_for_others) {
    wait_without_gil(shape->tracing);
    if (auto entry = find(call, fetched)) return entry;
  }
  const uint64_t fingerprint = fingerprint_of(call);
  if (auto skip = reason_to_skip(*shape, call, fingerprint)) return std::move(*skip);

  bool internal = false;
  CaptureOutcome outcome = trace_symbolic(*shape, call, internal);

  // Other threads may change the state that was traced; but guards that never hold are a bug.
  for (int attempt = 1; auto* segment = std::get_if<Segment>(&outcome); attempt++) {
    if (auto entry = add_entry(*shape, std::move(*segment), call, fetched)) return entry;
    if (attempt < 4) {
      outcome = trace(*shape, call, symbolic_now(*shape), internal);
    } else {
      internal = true;
      outcome = CaptureFailure{.reason = "internal error: a guard fails right after the trace: " + shape->failing_guard};
    }
  }

  auto failure = std::make_shared<const CaptureFailure>(std::move(std::get<CaptureFailure>(outcome)));
  internal = internal || failure->reason.starts_with("internal error");
  Skip skip{failure->reason, "", failure, internal, PyErr_Occurred() != nullptr};
  if (skip.error_set) return skip;   // an interrupted trace says nothing about the function
  shape->failed++;
  const auto before = std::find_if(shape->failures.begin(), shape->failures.end(),
                                   [&](const Failure& f) { return f.fingerprint == fingerprint; });
  if (before == shape->failures.end()) shape->failures.push_back({fingerprint, failure, internal});
  else before->failure = failure;
  return skip;
}

void EntryCache::clear() { shapes_.clear(); }

void EntryCache::stop_expecting_branches() {
  if (!std::exchange(options_.trace.expect_branches, false)) return;
  clear();
}

int64_t EntryCache::size() const {
  int64_t n = 0;
  for (const auto& shape : shapes_) n += static_cast<int64_t>(shape->entries.size());
  return n;
}

std::string EntryCache::describe() const {
  std::string out;
  for (const auto& shape : shapes_) {
    for (const auto& entry : shape->entries) out += entry->segment.guards->describe() + "\n";
  }
  return out;
}

}  // namespace braze::capture
