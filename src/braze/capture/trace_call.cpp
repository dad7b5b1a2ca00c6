#include "braze/capture/trace_call.h"

#include "braze/capture/differentiation.h"
#include "braze/capture/execute/executor.h"
#include "braze/capture/exits/exit.h"
#include "braze/capture/natives/natives.h"
#include "braze/capture/observers.h"

namespace braze::capture {

namespace {

// The state of the thread that a trace may leave changed, whatever its outcome.
class ThreadStateScope {
 public:
  ThreadStateScope() : gc_was_enabled_(PyGC_Disable() != 0), thread_(PyThreadState_Get()), recursion_(recursion_left()) {
    exc_info_ = thread_->exc_info;
    handled_ = Ref::borrow(exc_info_->exc_value);
  }
  ~ThreadStateScope() {
    thread_->exc_info = exc_info_;
    if (exc_info_->exc_value != handled_.get()) {
      const Ref left = Ref::steal(exc_info_->exc_value);
      exc_info_->exc_value = Ref(handled_).release();
    }
    restore_recursion(recursion_);
    if (gc_was_enabled_) PyGC_Enable();
  }
  ThreadStateScope(const ThreadStateScope&) = delete;
  ThreadStateScope& operator=(const ThreadStateScope&) = delete;

 private:
  bool gc_was_enabled_;
  PyThreadState* thread_;
  RecursionLeft recursion_;
  _PyErr_StackItem* exc_info_ = nullptr;
  Ref handled_;
};

std::vector<std::string> argument_names(const CallTarget& target) {
  std::vector<std::string> names;
  if (target.frames != nullptr) {
    const std::vector<LiveState> states = target.frames->states();
    for (const LiveState& state : states) {
      const auto* code = state.code->object;
      names.emplace_back(PyUnicode_AsUTF8(code->co_name));
      for (size_t i = 0; i < state.slots.size(); i++) {
        if (state.slots[i] == nullptr || index_of_generator(states, state.slots[i]) >= 0) continue;
        const auto slot = static_cast<Py_ssize_t>(i);
        const Py_ssize_t n = PyTuple_GET_SIZE(code->co_localsplusnames);
        names.push_back(slot < n ? PyUnicode_AsUTF8(PyTuple_GET_ITEM(code->co_localsplusnames, slot))
                                 : "stack[" + std::to_string(slot - n) + "]");
      }
      if (state.handled != nullptr) names.emplace_back("sys.exception()");
    }
    return names;
  }
  PyObject* function = target.callee;
  int64_t skip = 0;
  if (PyMethod_Check(function)) function = PyMethod_GET_FUNCTION(function), skip = 1;
  for (int64_t i = 0; i < target.n_positional; i++) {
    std::string name = "args[" + std::to_string(i) + "]";
    if (PyFunction_Check(function)) {
      auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
      if (i + skip < code->co_argcount) name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(code->co_localsplusnames, i + skip));
    }
    names.push_back(std::move(name));
  }
  const int64_t n_keywords = target.kwnames == nullptr ? 0 : PyTuple_GET_SIZE(target.kwnames);
  for (int64_t k = 0; k < n_keywords; k++) names.emplace_back(PyUnicode_AsUTF8(PyTuple_GET_ITEM(target.kwnames, k)));
  return names;
}

CaptureFailure failure(const Executor* x, const Unsupported& why) {
  CaptureFailure out;
  out.reason = why.reason;
  out.remedy = why.remedy;
  if (x != nullptr) {
    out.file = x->abort_file;
    out.line = x->abort_line;
    out.source_line = x->abort_line_text;
    out.stack = x->abort_stack();
  }
  return out;
}

CaptureFailure failure(const Executor& x, const Abort& abort) {
  CaptureFailure out = failure(&x, abort.why);
  out.position = abort.position;
  out.silent = abort.silent;
  return out;
}

// The error that the traced program raised, as a reason; left set only if the caller must see it now.
std::string describe_error(bool& propagate) {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  propagate = type != nullptr && must_propagate(type);
  if (propagate) {
    PyErr_Restore(type, value, traceback);
    return "interrupted";
  }
  PyErr_NormalizeException(&type, &value, &traceback);
  const Ref t = Ref::steal(type), v = Ref::steal(value), tb = Ref::steal(traceback);
  std::string out = "the call raises ";
  out += t ? reinterpret_cast<PyTypeObject*>(t.get())->tp_name : "an error";
  const Ref text = v ? Ref::steal(PyObject_Str(v.get())) : Ref();
  if (text && PyUnicode_Check(text.get())) out += std::string(": ") + PyUnicode_AsUTF8(text.get());
  PyErr_Clear();
  return out;
}

// The frames with the sources of what they hold. Their generators are stood in for by others in the same state, so that
// the trace changes nothing; where it ends they are made anew.
std::vector<EntryFrame> entry_frames(Executor& x, const LiveFrames& frames) {
  Provenance& provenance = x.prov;
  SourceTable& sources = provenance.sources();
  const std::vector<LiveState> states = frames.states();
  std::vector<EntryFrame> out;
  std::vector<PyObject*> stand_ins;
  for (const LiveState& state : states) {
    stand_ins.push_back(nullptr);
    if (state.generator == nullptr) continue;
    const Ref made = Ref::steal(new_generator(state.function, state.code->object));
    if (!made) PyErr_Clear(), unsupported("a generator that can't be made anew");
    provenance.add_fresh(made.get());
    stand_ins.back() = made.get();
  }
  int64_t argument = 0;
  for (size_t k = 0; k < states.size(); k++) {
    const LiveState& state = states[k];
    const bool running = k < frames.frames().size();
    EntryFrame entry{running ? frames.frames()[k].at : FramePoint{state.code},
                     provenance.found(state.function, sources.arg(argument++)), {}, {}, {stand_ins[k], kNoSource}};
    const int n_slots = state.code->n_slots, first_free = n_slots - state.code->object->co_nfreevars;
    for (size_t i = 0; i < state.slots.size(); i++) {
      PyObject* const object = state.slots[i];
      const int64_t generator = index_of_generator(states, object);
      if (object == nullptr || generator >= 0) {
        entry.slots.push_back({object == nullptr ? nullptr : stand_ins[static_cast<size_t>(generator)], kNoSource});
        continue;
      }
      const auto slot = static_cast<int>(i);
      const bool captured = first_free <= slot && slot < n_slots && PyCell_Check(object);
      const Src src = sources.arg(argument++);
      entry.slots.push_back(provenance.found(
          object, captured ? provenance.intern(SourceKind::ClosureCell, entry.function.src, slot - first_free) : src));
    }
    if (state.handled != nullptr) entry.handled = provenance.found(state.handled, sources.arg(argument++));
    if (state.generator != nullptr) {
      std::vector<PyObject*> objects;
      std::vector<Src> srcs(static_cast<size_t>(n_slots + state.code->n_stack) + 1, kNoSource);
      for (const Value& v : entry.slots) srcs[objects.size()] = v.src, objects.push_back(v.object);
      GeneratorState as_now = state.state;
      as_now.handled = entry.handled.object;
      set_generator(stand_ins[k], as_now, objects.data(), objects.size());
      Fresh& record = *provenance.find_fresh(stand_ins[k]);
      record.slots = std::move(srcs);
      record.function = entry.function;
    }
    if (running) out.push_back(std::move(entry));
    else x.note_suspended(stand_ins[k]);
  }
  return out;
}

// Calls the callee, or runs the frames on. True: the trace was cut.
bool run(Executor& x, const CallTarget& target, Owned& result) {
  Provenance& provenance = x.prov;
  SourceTable& sources = provenance.sources();
  try {
    if (target.frames != nullptr) {
      result = x.resume(entry_frames(x, *target.frames));
      return false;
    }
    const int64_t n_keywords = target.kwnames == nullptr ? 0 : PyTuple_GET_SIZE(target.kwnames);
    ArgumentList arguments;
    for (int64_t i = 0; i < target.n_positional + n_keywords; i++) {
      arguments.add(provenance.found(target.args[i], sources.arg(i)));
    }
    arguments.set_keyword_names(target.kwnames);
    const Value callee = provenance.found(target.callee, sources.callee());
    if (PyFunction_Check(callee.object)) provenance.assume_constant(callee.src);
    result = x.call_outermost(callee, arguments.get());
    return false;
  } catch (const Abort&) {
    if (x.cut_frames().empty()) throw;
  }
  PyErr_Clear();
  x.forget_abort();
  return true;
}

// `cut_at`: the instruction before which the trace is to end; 0: none. `retry` becomes true if the same trace can succeed with inputs that enter as views of their storages.
CaptureOutcome trace(const CallTarget& target, const TraceOptions& options, SourceTable& sources, uint64_t cut_at,
                     bool& retry) {
  Result<std::unique_ptr<TraceSession>> session = domain().begin(options);
  if (!session.ok()) return failure(nullptr, session.why());
  const auto give_up = [&](const Executor* x, const Unsupported& why) {
    retry = (*session)->retry_with_storage_bases();
    return failure(x, why);
  };
  GuardSet guards(sources);
  Segment segment;
  std::unique_ptr<Executor> executor;
  try {
    Provenance provenance(sources, guards);
    executor = std::make_unique<Executor>(provenance, **session);
    HookScope hook(executor.get());
    Executor& x = *executor;
    guards.modes((*session)->modes());
    x.cut_at(cut_at);
    Owned result;
    const bool was_cut = run(x, target, result);
    if (!was_cut && !result) {
      bool propagate = false;
      CaptureFailure raised = give_up(nullptr, {describe_error(propagate), ""});
      retry = retry && !propagate;
      raised.user_error = !propagate;
      return raised;
    }
    ExitBuilder exit(x, segment.exit);
    if (was_cut) {
      exit.frames(x.cut_frames());
      for (const CutFrame& frame : x.cut_frames()) segment.frames.push_back(frame.at);
    } else {
      exit.result(result.get());
    }
    exit.side_effects();
    exit.dropped_generators();
    Result<std::vector<TraceSession::ModeCall>> calls = (*session)->leave_modes();
    if (!calls.ok()) throw Abort{calls.why()};
    exit.calls(*calls);

    // What backward functions do beside returning gradients would come too late.
    const std::vector<PyObject*> effects = side_effects(x);
    Result<TraceSession::Finished> finished = (*session)->finish(exit.outputs());
    if (side_effects(x) != effects) {
      const char* const what = x.first_hook() == 0 ? "the backward of a custom autograd function" : "a hook on a gradient";
      throw Abort{{std::string(what) + " has side effects", ""}, x.first_hook()};
    }
    if (!finished.ok()) {
      CaptureFailure failed = give_up(nullptr, finished.why());
      failed.position = x.first_hook();
      return failed;
    }
    // Between two breaks there may be nothing to compute.
    const bool part = was_cut || target.frames != nullptr;
    if (!part || finished->n_ops > 0 || !exit.outputs().empty()) segment.executable = finished->executable;
    segment.graph_text = finished->graph_text;
    segment.n_ops = finished->n_ops;
    std::vector<Src> inputs;
    for (const TraceSession::Input& input : (*session)->inputs()) {
      inputs.push_back(input.src);
      guards.tensor(input.src, input.operand);
      segment.inputs.push_back(exit.fetched(input.src));
    }
    for (const TraceSession::Input& input : (*session)->guarded_only()) guards.tensor(input.src, input.operand);
    for (const Src src : (*session)->changing_numbers()) {
      inputs.push_back(src);
      if (finished->numbers) segment.number_inputs.push_back(exit.fetched(src));
    }
    segment.numbers = finished->numbers;
    segment.n_number_operands = finished->n_number_operands;
    if (finished->shapes) guards.shapes(finished->shapes, inputs);
    std::vector<Src> keys = provenance.keys(), tensors = (*session)->distinct();
    guards.all_distinct(std::move(keys));
    guards.all_distinct(std::move(tensors));
    segment.guards = guards.finish();
  } catch (const Abort& abort) {
    PyErr_Clear();
    retry = (*session)->retry_with_storage_bases();
    return failure(*executor, abort);
  } catch (const std::exception& error) {
    PyErr_Clear();
    return failure(executor.get(), {std::string("internal error: ") + error.what(), ""});
  }
  return segment;
}

}  // namespace

CaptureOutcome trace_call(const CallTarget& target, const TraceOptions& options) {
  if (is_observed()) {
    return failure(nullptr, {"a debugger or profiler is active", "compiled code gives it no events"});
  }
  bool bases = options.storage_bases;
  const auto attempt_once = [&](uint64_t cut_at, bool& retry) {
    const ThreadStateScope scope;
    SourceTable sources;
    sources.set_argument_names(argument_names(target));
    if (target.frames == nullptr && PyFunction_Check(target.callee)) {
      sources.set_callee_name(PyUnicode_AsUTF8(reinterpret_cast<PyFunctionObject*>(target.callee)->func_name));
    }
    TraceOptions complete = options;
    complete.sources = &sources;
    complete.storage_bases = bases;
    return trace(target, complete, sources, cut_at, retry);
  };
  const auto attempt = [&](uint64_t cut_at) {
    bool retry = false;
    CaptureOutcome outcome = attempt_once(cut_at, retry);
    if (!retry || bases || std::holds_alternative<Segment>(outcome)) return outcome;
    bases = true;
    return attempt_once(cut_at, retry);
  };
  CaptureOutcome outcome = attempt(options.most_instructions);
  if (!options.graph_breaks || std::holds_alternative<Segment>(outcome) || PyErr_Occurred()) return outcome;
  // The trace is done again and ends before the instruction that it can't take; where the exit can't rebuild an object,
  // before the one that made it.
  constexpr int kMostAttempts = 12;
  auto first = std::make_shared<CaptureFailure>(std::get<CaptureFailure>(std::move(outcome)));
  uint64_t position = first->position;
  for (int i = 0; i < kMostAttempts && position > 0; i++) {
    if (target.frames != nullptr && position == 1) {
      first->at_start = true;
      return *first;
    }
    CaptureOutcome cut = attempt(position);
    if (PyErr_Occurred()) return cut;
    if (auto* segment = std::get_if<Segment>(&cut)) {
      if (!segment->frames.empty()) segment->broken = first;
      return cut;
    }
    const uint64_t earlier = std::get<CaptureFailure>(cut).position;
    position = earlier < position ? earlier : 0;
  }
  return *first;
}

}  // namespace braze::capture
