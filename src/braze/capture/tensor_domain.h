// TensorDomain: all that capture knows of tensors. The folder trace implements it over torch and registers it; capture's
// own tests register a dummy. With no domain registered no object is a tensor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braze/capture/ref.h"
#include "braze/capture/source.h"
#include "braze/support/executable.h"
#include "braze/support/result.h"

namespace braze::capture {

// A tensor guard's operand, made by the domain for one tensor as it was seen in the trace. Owned by the domain's
// shared_ptr; `check` is called on the hot path: false if the object differs.
struct TensorOperand {
  std::shared_ptr<const void> state;
  bool (*check)(const void* state, PyObject* object) = nullptr;
  std::string (*describe)(const void* state, PyObject* object) = nullptr;   // object may be nullptr: what is expected; else what differs
  // True if nothing but sizes (and the strides that follow from them) differs; then `dimensions` receives their numbers.
  bool (*changed_sizes)(const void* state, PyObject* object, std::vector<int64_t>* dimensions) = nullptr;
};

// Predicates over the sizes of guarded tensors (dynamic shapes) and over numbers. `inputs`: the fetched graph inputs in
// order, then the numbers that may change, whose types have been checked.
class ShapeCheck {
 public:
  virtual ~ShapeCheck() = default;
  virtual bool run(PyObject* const* inputs) const = 0;
  virtual std::string explain(PyObject* const* inputs) const = 0;
};

// The numbers that a call computes before it runs: operands of the executable, and results of the program.
class CallNumbers {
 public:
  virtual ~CallNumbers() = default;
  virtual int64_t count() const = 0;
  // inputs: as ShapeCheck's. Fills out[0..count()) with new references; false with an error set, then none is owned.
  virtual bool run(PyObject* const* inputs, PyObject** out) const = 0;
};

enum class NativeKind : uint8_t {
  Unknown,    // may do anything: break the graph before the call
  Pure,       // reads only its (exact builtin) arguments and immutable state; run it for real on guarded values
  Tensor,     // a torch operation: run it on stand-ins, the domain records
  Modelled,   // capture has a C++ model
  Polyfilled, // capture has a Python polyfill, whose frame is interpreted
  Effect,     // returns None, acts outside only (print): recorded in order
  Break,      // known to need the data (item, numpy, tolist): break with a good reason
};

// What an operand that is an attribute read on a tensor gives: a value and whether it is a fresh traced tensor.
// The error of a program in which a traced tensor was not as TraceSession::assume said.
inline constexpr std::string_view kUnexpectedBranch = "a branch that raises is taken";

class TraceSession {
 public:
  virtual ~TraceSession() = default;

  // The traced tensor that stands for an existing tensor found at `src`; the same object for the same tensor.
  // The caller has not guarded it: the session asks for the tensor guard through `operand`.
  virtual Result<Ref> stand_in(PyObject* real, Src src) = 0;
  // True for tensors that this session made (stand-ins and results).
  virtual bool is_traced(PyObject* object) const = 0;
  // Functional transforms run for real while tracing. Whether the traced program is inside of one now, and whether a
  // traced tensor belongs to one, which may be over: neither can outlive the trace.
  virtual bool in_transform() const { return false; }
  virtual bool is_transformed(PyObject*) const { return false; }
  // The existing tensor behind a stand-in, or nullptr for a fresh one.
  virtual PyObject* real_of(PyObject* traced) const = 0;

  // Calls a native callable (builtin, method descriptor, type) of kind Tensor on arguments whose tensors are already
  // traced ones; n_args counts the keyword values at the end too. Unsupported: nothing has happened. A Python error of the op itself comes back as Unsupported too,
  // with its text: eager will raise it at the right place.
  virtual Result<Ref> call(PyObject* callable, PyObject* const* args, int64_t n_args, PyObject* kwnames) = 0;
  // getattr(tensor, name) for data attributes (shape, dtype, T, grad_fn, ...). The result may be a traced tensor.
  virtual Result<Ref> get_attribute(PyObject* traced, PyObject* name) = 0;

  // The program fails, with kUnexpectedBranch, unless bool(traced) is `truth`. False: it is known now, or bool() raises.
  virtual bool expects_branches() const { return false; }
  virtual Result<bool> assume(PyObject* /*traced*/, bool /*truth*/) { return false; }

  // Torch modes entered by the traced code are real while tracing (no_grad's __enter__ runs natively); the session
  // restores the state it found at its start when it ends, also after an error.
  // Finishes the graph with these outputs (traced tensors, in order) and compiles it. The inputs are the sources of
  // inputs() in order.
  struct Finished {
    std::shared_ptr<Executable> executable;
    std::shared_ptr<const ShapeCheck> shapes;   // may be null
    std::shared_ptr<const CallNumbers> numbers; // may be null: none are needed
    int64_t n_number_operands = 0;              // the first of these are the executable's, after the tensors
    std::string graph_text;                     // for explain(); empty unless asked for
    int64_t n_ops = 0;
  };
  virtual Result<Finished> finish(std::span<PyObject* const> outputs) = 0;
  // After finish(): the source of each graph input, and its guard operand.
  struct Input {
    Src src;
    TensorOperand operand;
  };
  virtual std::vector<Input> inputs() const = 0;
  // Tensors whose metadata alone was read (no graph input): they need guards too.
  virtual std::vector<Input> guarded_only() const = 0;

  // --- Python numbers that change between calls (TraceOptions::changing_numbers)
  virtual bool has_changing_numbers() const { return false; }
  // The symbolic number that stands for an exact int or float found at `src`, the same one each time; nullptr: it has
  // to stay what it is. The caller guards the type.
  virtual PyObject* changing_number(PyObject*, Src) { return nullptr; }
  // After finish(): the sources of these numbers, in the order in which they follow the inputs().
  virtual std::vector<Src> changing_numbers() const { return {}; }
  // Before finish(): a symbolic int or float leaves the trace; its place among the results that follow the operands in
  // Finished::numbers, or -1.
  virtual int64_t add_number_result(PyObject*) { return -1; }
  // Before finish(): of a symbolic float that the graph alone knows, a traced tensor that will hold it; empty: it is none.
  virtual Result<Ref> number_output(PyObject*) { return Ref(); }
  // math.<function>(a), max(a, b) or min(a, b) of floats of which one is symbolic; empty: not known here.
  virtual Result<Ref> math(const char* /*function*/, PyObject* /*a*/, PyObject* /*b*/) { return Ref(); }
  // Tensors whose gradients the trace has computed or set: no two of them may be one.
  virtual std::vector<Src> distinct() const { return {}; }
  virtual uint64_t modes() const = 0;           // the torch state under which the trace started, packed
  // Before finish(): the modes that the traced code has changed and not left. The calls set them for real, after the
  // segment; the session goes back to the modes of its start.
  struct ModeCall {
    Ref callable;
    std::vector<Ref> arguments;
  };
  virtual Result<std::vector<ModeCall>> leave_modes();   // by default no change is possible
  // After Unsupported: the same trace can succeed under TraceOptions::storage_bases (the program writes inputs that
  // share memory or are not contiguous). A failure under that option is final.
  virtual bool retry_with_storage_bases() const { return false; }
};

struct TraceOptions {
  std::string backend = "braze";                // "braze", "eager", "aot_eager", or a registered name
  bool dynamic = false;                         // every size of user inputs symbolic
  // (source text path, dimension) pairs that changed before: symbolic now
  std::vector<std::pair<std::string, int64_t>> dynamic_dims;
  std::vector<std::string> changing_numbers;    // source text paths of ints and floats that changed before
  bool keep_text = false;
  bool graph_breaks = true;                     // a trace may end before the call does
  bool expect_branches = true;                  // of two sides of a branch on a tensor, the one that does not raise
  uint64_t most_instructions = 0;               // it ends after so many, if not 0: for tests
  // The trace's own table: names sources in messages and tells arguments from module state. Outlives the session.
  const SourceTable* sources = nullptr;
  // Inputs enter as views of their whole storages: set for a second attempt, see retry_with_storage_bases().
  bool storage_bases = false;
};

class TensorDomain {
 public:
  virtual ~TensorDomain() = default;
  virtual bool is_tensor(PyObject* object) const = 0;          // torch.Tensor or a subclass
  virtual NativeKind classify(PyObject* callable) const = 0;   // Unknown where the domain has no opinion
  virtual std::string break_reason(PyObject* callable) const = 0;   // for NativeKind::Break
  virtual uint64_t modes() const = 0;                          // packed now; a few nanoseconds
  virtual std::string describe_modes(uint64_t modes) const = 0;
  virtual Result<std::unique_ptr<TraceSession>> begin(const TraceOptions& options) = 0;
  // Traits of a tensor that may decide whether a call can be captured (requires_grad, device, layout), packed.
  virtual uint64_t traits(PyObject*) const { return 0; }
  // Immutable torch objects that may be used as constants: dtype, device, layout, memory_format, Size, finfo.
  virtual bool is_constant(PyObject* object) const = 0;
};

void register_domain(std::unique_ptr<TensorDomain> domain);
TensorDomain& domain();   // the registered one, or one for which nothing is a tensor

}  // namespace braze::capture
