// The executor: runs the bytecode of a call and of all that it calls, on real frames and real objects, and records
// where values come from. Opcodes stand by family in opcodes_*.cpp, the attribute protocol in attributes*.cpp, calls
// in calls*.cpp, models of native callables in models_*.cpp.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "braze/capture/code.h"
#include "braze/capture/exits/effects.h"
#include "braze/capture/exits/frame_hook.h"
#include "braze/capture/exits/frames.h"
#include "braze/capture/provenance.h"
#include "braze/capture/tensor_domain.h"
#include "braze/capture/value.h"

namespace braze::capture {

// One interpreted Python frame. Slots are the native frame's own; src runs beside them.
struct Frame {
  const Code* code = nullptr;
  PyObject** slots = nullptr;
  PyObject** sp = nullptr;        // one past the top of the stack
  Src* src = nullptr;
  uint32_t pc = 0;                // the instruction being executed
  PyObject* kwnames = nullptr;    // between KwNames and Call
  FrameView view{};
  NativeFrame* native = nullptr;
  Value function;
  Frame* caller = nullptr;
  uint64_t started = 0;           // the number of the instruction being executed
  int64_t operands = 0;           // of a call being executed: stack entries that its result replaces
  bool suspended = false;         // a generator's, left at a yield
  Value kept;                     // of a call being executed: what then stands below its result
  After returned = After::None;   // what the caller does with this frame's result
  bool can_be_cut = false;        // the frame, and all that called it, can be rebuilt

  void push(Owned v) {
    src[sp - slots] = v.src;
    *sp++ = v.ref.release();
  }
  void push_null() {
    src[sp - slots] = kNoSource;
    *sp++ = nullptr;
  }
  // A callable without self.
  void push_callable(Owned v) {
    if (!kNullAboveCallable) push_null();
    push(std::move(v));
    if (kNullAboveCallable) push_null();
  }
  Owned pop() {
    --sp;
    return Owned::steal(*sp, src[sp - slots]);
  }
  Value top(int64_t depth = 1) const { return {sp[-depth], src[sp - depth - slots]}; }
  void drop(int64_t n) {
    for (; n > 0; n--) Ref::steal(*--sp);
  }
  PyObject* name(uint32_t i) const { return PyTuple_GET_ITEM(code->names, i); }
  PyObject* constant(uint32_t i) const { return PyTuple_GET_ITEM(code->constants, i); }
  // Tells CPython where the stack ends, when the frame leaves us; until then it reads no slot.
  void sync() { *view.n_slots_used = static_cast<int>(sp - slots); }
};

// Arguments built in place: a few live on the C stack.
class ArgumentList {
 public:
  void reserve(size_t n) { objects_.reserve(n), srcs_.reserve(n); }
  void add(Value v) { objects_.push_back(v.object), srcs_.push_back(v.src); }
  void add(const Arguments& a, int64_t first = 0) {
    for (int64_t i = first; i < a.n; i++) add(a[i]);
  }
  void keep(Ref object) { kept_.push_back(std::move(object)); }
  void set_keyword_names(PyObject* kwnames) { kwnames_ = kwnames; }
  Arguments get() const { return {objects_.data(), srcs_.data(), static_cast<int64_t>(objects_.size()), kwnames_}; }

 private:
  std::vector<PyObject*> objects_;
  std::vector<Src> srcs_;
  std::vector<Ref> kept_;
  PyObject* kwnames_ = nullptr;
};

// A frame at which the trace starts: real slots, with their sources.
struct EntryFrame {
  FramePoint at;
  Value function;
  std::vector<Value> slots;
  Value handled;          // where `at` says so
  Value generator;        // of a generator's frame: the one that stands for it
};

// A frame at which the trace ended.
struct CutFrame {
  FramePoint at;
  Owned function;
  std::vector<Owned> slots;
  Owned handled;          // where `at` says so
  Owned generator;        // whose frame it is
  uint64_t started = 0;   // the number of the instruction that it is in
};

// What LoadMethod finds: a function to be called with `self` before the other arguments, or (self empty) a callable.
struct Method {
  Owned function;
  Owned self;
};

// Of a suspended generator, which then runs on when it is closed.
bool has_handler_where_it_stands(PyObject* generator);

class Executor final : public FrameRunner {
 public:
  Executor(Provenance& provenance, TraceSession& tensors) : prov(provenance), session(tensors) {
    prov.set_clock(&cut_position_);
    has_changing_numbers_ = session.has_changing_numbers();
  }

  // --- the call, or frames that were cut (cut.cpp). What comes back is the result of the outermost frame.
  Owned call_outermost(Value callable, const Arguments& arguments);
  Owned resume(const std::vector<EntryFrame>& frames);
  // Ends the trace, by an abort, before the instruction of this number; 1 is the first.
  void cut_at(uint64_t instruction) { cut_at_ = instruction; }
  // Where it ended so, outermost first; empty if it did not.
  const std::vector<CutFrame>& cut_frames() const { return cut_; }
  // The instruction before which the trace could end now.
  uint64_t cut_position() const { return cut_position_; }
  void forget_abort() { aborted_ = false; }
  // The same for the first functional transform that the trace entered; 0: there was none, or it can't end there.
  uint64_t first_transform() const { return first_transform_; }
  // And for the first hook on a gradient.
  uint64_t first_hook() const { return first_hook_; }
  void note_hook() { first_hook_ = first_hook_ == 0 ? cut_position_ : first_hook_; }

  // --- calls (calls.cpp)
  Owned call(Value callable, const Arguments& arguments);
  Owned call(Value callable, std::initializer_list<Value> arguments);
  Owned call_method(const Method& method, std::initializer_list<Value> arguments);
  Owned call_function(Value function, const Arguments& arguments);
  Owned call_type(Value type, const Arguments& arguments);
  Owned instantiate(Value type, const Arguments& arguments);
  Owned call_tensor(PyObject* callable, const Arguments& arguments);
  Owned call_pure(PyObject* callable, const Arguments& arguments);
  // A slot of a native type called by its name (x.__next__(), int.__add__): false if it is no known operator, or the
  // object's class has another.
  bool call_slot(PyObject* descriptor, const Arguments& arguments, Owned& out);
  // Calls for real; the caller has seen to guards. Aborts if the call ran Python code.
  Owned call_natively(PyObject* callable, const Arguments& arguments);
  bool call_getter(Value getter, const Arguments& arguments, Owned& out);
  // *args and **kwargs spread out.
  Owned call_spread(Value callable, Value positional, Value keywords);
  // A special method found on the type, bound for a call: `function` is empty if there is none.
  Method special(Value object, PyObject* name);
  PyObject* run_frame(NativeFrame* native, bool throwing) override;
  bool owns(PyObject* generator) override;

  // --- attributes (attributes.cpp)
  Owned get_attribute(Value object, PyObject* name);
  // As get_attribute, but empty without an error if the attribute is missing.
  Owned find_attribute(Value object, PyObject* name);
  Owned generic_attribute(Value object, PyObject* name, bool suppress);
  Owned type_attribute(Value type, PyObject* name, bool suppress);
  Owned module_attribute(Value module, PyObject* name, bool suppress);
  Owned super_attribute(Value super, PyObject* name, bool suppress, Method* method);
  Method load_method(Value object, PyObject* name);
  bool set_attribute(Value object, PyObject* name, Value value);      // value.object == nullptr: delete
  bool generic_set_attribute(Value object, PyObject* name, Value value);
  bool set_class_attribute(Value object, PyObject* name, Value value);
  bool set_module_attribute(Value module, PyObject* name, Value value);
  Value module_globals(Value module);
  // descriptor.__get__(object, type)
  Owned bind(Value descriptor, Value object, PyTypeObject* type, PyObject* name);
  // The value in an object's own storage, or empty.
  Value own_attribute(Value object, PyObject* name);
  Owned instance_dict(Value object);

  // --- operators (operators.cpp, subscripts.cpp, text.cpp)
  Owned binary(uint32_t op, Value a, Value b);
  // Asks the operands' methods after the one of `from`.
  Owned python_operator(uint32_t op, Value a, Value b, After from = After::None);
  Owned unary(Op op, Value v);
  Owned compare(int op, Value a, Value b);
  Owned python_comparison(int op, Value a, Value b, After from = After::None);
  int is_same(Value a, Value b);
  int truth(Value v);                    // -1: error
  // A conditional jump on a tensor of which one side raises (expectations.cpp): true if the other one was taken.
  bool take_expected_branch(Frame& f, const Insn& insn);
  int contains(Value container, Value item);
  Owned subscript(Value container, Value key);
  bool set_subscript(Value container, Value key, Value value);
  bool delete_subscript(Value container, Value key);
  int64_t length(Value v);               // -1: error
  Owned format(Value v, PyObject* spec);
  Owned to_string(Value v, bool repr);
  // Aborts if the text of the value, of its own or of what it holds, has an address in it.
  void reject_shown_address(Value v);

  // --- iteration (iteration.cpp)
  Owned iterate(Value v);
  Owned next(Value iterator);            // empty without an error: the end
  // Sends into a generator; `finished`: the value is what it returned. Its frame may be cut if a result is expected.
  Owned send(Value generator, Value sent, bool& finished);
  // Closes the suspended generators that the program holds no more, as CPython does when it frees them.
  void close_dropped_generators();
  void note_suspended(PyObject* generator);
  const std::vector<PyObject*>& suspended_generators() const { return suspended_generators_; }
  // throw() and close() of a generator of the trace: CPython resumes it, its frame comes to us.
  Owned resume_natively(PyObject* callable, const Arguments& arguments);
  template <class F>
  bool for_each(Value iterable, F f) {   // false: error; f returns false on error
    const Owned iterator = iterate(iterable);
    if (!iterator) return false;
    for (;;) {
      const Owned item = next(iterator.get());
      if (!item) return PyErr_Occurred() == nullptr;
      if (!f(item.get())) return false;
    }
  }

  // --- handled exceptions (opcodes_exceptions.cpp)
  Value handled();                       // by the running frame's own thread or generator; or None
  Value exception_to_reraise();          // by `raise` without an argument; or None
  void require_fresh_exception(Value exception);
  Owned traceback_of(Value exception);   // or None

  // --- symbolic numbers (symbolic.cpp)
  bool has_symbolic(PyObject* object, int depth = 0);   // itself, or in a tuple
  // An int or float that changes between calls as a symbolic number; else the value itself.
  Value number(Value v);
  // Operators of which an operand is symbolic; empty without an error: CPython's on what concrete() gives are to be used.
  Owned symbolic_binary(uint32_t op, Value a, Value b);
  Owned symbolic_compare(int op, Value a, Value b);
  Owned to_symbolic_float(Value v);      // empty: not possible
  // Whether a number is a key of a dict of few ints, by one question a key; -1: not answered so.
  int contains_symbolic(Value dict, Value number);
  // Symbolic numbers replaced by what they are now; the tensor domain guards that they stay so.
  Owned concrete(Value v);

  // --- fresh objects
  Owned fresh(Ref object);               // registers; empty stays empty
  Owned fresh_native(Ref object);        // result of a native call: registers what it holds, too
  Owned make_tuple(const Value* values, int64_t n);
  Owned make_list(const Value* values, int64_t n);
  bool list_append(Value list, Value item);
  bool dict_set(Value dict, Value key, Value value);
  // The value at a key of a dict's storage; empty: absent. May set an error (unhashable keys).
  Value dict_get(Value dict, Value key);
  bool dict_delete(Value dict, Value key);
  // The same for keys that Python code hashes or compares (dict_keys.cpp); `payload` may be changed.
  Value dict_get_in_python(Value dict, Value key);
  bool store_in_python(Value payload, Value key, Value value);
  bool remove_in_python(Value payload, Value key);
  bool require_fresh(Value v, const char* action);   // always true: aborts otherwise

  // --- side effects (effects.cpp)
  // A native method that changes its object, called on a fresh object or on an existing one's payload.
  Owned mutate(PyObject* method, const Arguments& arguments);
  // The contents of a container as the traced program sees them: itself, or its payload.
  Value seen(Value container);
  bool is_payload(PyObject* object) const;
  bool has_changed(PyObject* container) { return !changed_.empty() && find_changed(container) != nullptr; }
  void add_effect(PyObject* callable, const Arguments& arguments);
  void guard_aliases();
  // Before the exit: of assignments to a key of an existing dict, those that a later one hides.
  void mark_superseded();
  std::vector<Effect> effects;

  [[noreturn]] void fail(const std::string& reason, const std::string& remedy = {}) { unsupported(reason, remedy); }
  // Rethrows an abort that passed through CPython's own frames.
  void check_abort();
  Frame* frame() const { return frame_; }
  // What the instruction does with the result of the function that is called next. Who calls more than that function
  // takes it, and gives it back before the last call.
  After take_after() { return std::exchange(after_, After::None); }
  void expect(After after) { after_ = after; }
  const std::string& abort_stack() const { return abort_stack_; }

  Provenance& prov;
  TraceSession& session;
  uint64_t n_instructions = 0;

  // Where the abort happened.
  std::string abort_file, abort_line_text;
  int abort_line = 0;

 private:
  friend struct Opcodes;
  struct PendingCall {
    Value function;
    const Arguments* arguments;   // nullptr when resuming a generator
    Src sent;                // of what is sent into a generator
    After after = After::None;
    const std::vector<EntryFrame>* resumed = nullptr;
    size_t index = 0;        // in `resumed`
  };

  void note_handled_at_start();
  Owned resume(const std::vector<EntryFrame>& frames, size_t i, bool& ended);
  void enter_resumed(Frame& f, const PendingCall& call);
  void go_on(Frame& f, After after, Owned result, bool ended);
  [[noreturn]] void cut(Frame& f);
  void note_transform();

  PyObject* interpret(Frame& f, bool throwing);
  bool step(Frame& f, const Insn& insn);
  bool handle_error(Frame& f, bool reraised);
  void bind_sources(Frame& f, const PendingCall& call);
  void note_abort(const Abort& abort);
  Src globals_source(const Frame& f);
  Owned load_global(Frame& f, PyObject* name);
  Value globals_value(const Frame& f);
  void use_function(Value function);
  Changed* find_changed(PyObject* owner);
  Changed& changed(Value v);
  void make_payload(Changed& c);

  std::vector<std::unique_ptr<Changed>> changed_;
  PendingCall pending_{};
  Frame* frame_ = nullptr;
  Src returned_ = kNoSource;             // source of what the last frame returned or yielded
  bool aborted_ = false;
  Abort abort_;
  std::string abort_stack_;
  std::vector<std::vector<Src>> src_buffers_;
  size_t depth_ = 0;
  PointerMap<Src> globals_sources_;      // globals dict -> source of a function that has it
  // What the instruction does with the result of the next function that is called; taken by the call. None unless the
  // caller has nothing left to do with it.
  After after_ = After::None;
  uint64_t cut_position_ = 0, cut_at_ = 0;
  // A trace can't end inside a functional transform: then it ends before the call that entered the outermost one.
  bool in_transform_ = false;
  uint64_t transform_position_ = 0, first_transform_ = 0, first_hook_ = 0;
  bool has_changing_numbers_ = false;
  std::vector<CutFrame> cut_;
  std::vector<PyObject*> suspended_generators_;
  // What the caller handles.
  const _PyErr_StackItem* place_at_start_ = nullptr;
  PyObject* handled_at_start_ = nullptr;
};

}  // namespace braze::capture
