// The compiled entries of one function: which one fits a call, and when to make a new one.
//
// Entries are kept per call shape (number of positionals, keyword names), the most recently used first. A call that
// fits none is traced, until a shape has `recompile_limit` entries. One call at a time traces a shape; others run
// eagerly meanwhile, or wait. A size or number that made an entry unfit is symbolic in the next trace; a trace that
// fails so is done again without. Everything here needs the GIL.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braze/capture/trace_call.h"

namespace braze::capture {

struct EntryOptions {
  int recompile_limit = 8;
  bool wait_for_others = false;     // for the trace of another thread: at most a minute, since it may wait for us
  std::optional<bool> dynamic;      // all sizes symbolic; none; nullopt: those that were seen to change
  TraceOptions trace;
};

struct Call {
  PyObject* callee;
  PyObject* const* args;            // positionals, then keyword values
  int64_t n_positional;
  PyObject* kwnames;                // tuple or nullptr
  const LiveFrames* frames = nullptr;   // of a graph break: `args` are their values(), `callee` the outermost function
  int64_t n_args() const { return n_positional + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames)); }
};

struct Entry {
  Segment segment;
  Ref code;                         // of the callee, if it is a function
  int64_t n_outputs = 0;
  int32_t single_output = -1;       // Recipe::single_output()
  bool inputs_in_order = false;     // the executable's inputs are the fetched values as they stand
};

// The guards' fetched values. Owned while the entry runs: the executable may let other threads drop them.
class Fetched {
 public:
  Fetched() = default;
  Fetched(const Fetched&) = delete;
  Fetched& operator=(const Fetched&) = delete;
  ~Fetched() { release(); }
  PyObject** reserve(int64_t n);
  void own(int64_t n);
  PyObject* const* data() const { return values_; }
  void release();

 private:
  static constexpr int64_t kFew = 24;
  PyObject* few_[kFew];
  std::vector<PyObject*> many_;
  PyObject** values_ = few_;
  int64_t owned_ = 0;
};

// Why a call without a fitting entry runs eagerly.
struct Skip {
  std::string reason;               // a counter's key
  std::string detail;               // to be said once; may be empty
  std::shared_ptr<const CaptureFailure> failure;   // if capture failed: now, or before for such a call
  bool internal = false;            // a bug of ours
  bool error_set = false;           // KeyboardInterrupt or MemoryError is set: propagate it
};

class EntryCache {
 public:
  using Tracer = CaptureOutcome (*)(const CallTarget&, const TraceOptions&);

  explicit EntryCache(EntryOptions options, Tracer tracer = trace_call);
  ~EntryCache();
  EntryCache(const EntryCache&) = delete;
  EntryCache& operator=(const EntryCache&) = delete;

  // The entry whose guards hold, with their values; nullptr if there is none.
  std::shared_ptr<const Entry> find(const Call& call, Fetched& fetched);
  // After find() gave nothing: traces and compiles, unless that is known to be useless.
  std::variant<std::shared_ptr<const Entry>, Skip> compile(const Call& call, Fetched& fetched);

  void clear();
  // From then on branches on tensors are what traces can't go through, whatever their sides do.
  void stop_expecting_branches();
  int64_t size() const;
  // All guards of all entries, for explain().
  std::string describe() const;
  const EntryOptions& options() const { return options_; }

 private:
  struct Failure;
  struct Shape;
  Shape* shape_of(const Call& call);
  Shape& add_shape(const Call& call);
  struct Symbolic { bool sizes, numbers; };
  CaptureOutcome trace(Shape& shape, const Call& call, Symbolic symbolic, bool& internal) const;
  Symbolic symbolic_now(const Shape& shape) const;
  CaptureOutcome trace_symbolic(Shape& shape, const Call& call, bool& internal) const;
  std::shared_ptr<const Entry> add_entry(Shape& shape, Segment segment, const Call& call, Fetched& fetched);
  std::optional<Skip> reason_to_skip(Shape& shape, const Call& call, uint64_t fingerprint);
  void note_misses(Shape& shape, const Call& call);

  EntryOptions options_;
  Tracer tracer_;
  std::vector<std::shared_ptr<Shape>> shapes_;
};

}  // namespace braze::capture
