// Guards: what must hold for a compiled entry to be used, collected during a trace and run as a flat program.
//
// GuardSet collects requirements on sources (each once; a source's base is always checked before it). finish() makes a
// GuardProgram: flat 12-byte instructions over registers, about 5 ns a guard, and whole groups of guards are skipped
// where a dict or a class has not changed since they last held. The program holds no user object strongly: functions,
// classes and modules by weak references whose death makes the guards fail.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "braze/capture/guards/requirement.h"
#include "braze/capture/hash_index.h"
#include "braze/capture/source.h"
#include "braze/capture/tensor_domain.h"
#include "braze/support/result.h"

namespace braze::capture {

class GuardProgram;

class GuardSet {
 public:
  explicit GuardSet(SourceTable& sources);
  ~GuardSet();
  GuardSet(const GuardSet&) = delete;
  GuardSet& operator=(const GuardSet&) = delete;

  void type(Src src, PyTypeObject* type);             // type(x) is type
  void identity(Src src, PyObject* object);           // x is object (None, True, functions, classes, modules, ...)
  // Exact type and exact value (1/True/1.0, -0.0 and NaN are told apart): int, float, bool, complex, str, bytes,
  // None, Ellipsis, torch dtypes/devices/layouts and other immutable natives, enums, tuples and frozensets of these.
  void constant(Src src, PyObject* value);
  void truth(Src src, bool value);                    // bool(x) of an exact builtin: emptiness of a container, int != 0
  void absent(Src owner, PyObject* name);             // the instance dict has no such attribute
  void key_absent(Src dict, PyObject* key);
  void lookup_absent(Src dict, Src key);              // a key that is compared by identity
  void empty_slot(Src owner, PyObject* name);         // of the class's __slots__; the type is guarded
  void length(Src src, int64_t n);                    // list, tuple, dict, set, str storage
  void keys(Src dict, PyObject* tuple_of_keys);       // exact keys in exact order
  void same(Src a, Src b);                            // a is b
  void distinct(Src a, Src b);                        // a is not b
  void tensor(Src src, TensorOperand operand);        // type, dtype, device, sizes, strides, requires_grad, key set
  // A class attribute found by MRO: type(base)'s lookup of `name` gives `found` (nullptr: nothing). Uses type
  // version tags when they are valid.
  void type_attribute(Src type_source, PyTypeObject* type, PyObject* name, PyObject* found);
  // Which special methods the class has, and whether they are native: those that it lacks stay away.
  void type_slots(PyTypeObject* type);
  void abc_token();                                   // no class is registered with an abstract one from now on
  void modes(uint64_t expected);                      // grad, inference, autocast, default dtype... packed by the domain
  // Predicates over tensor sizes and numbers, run after all guards on the single values of `inputs` (the graph's inputs
  // in order, then numbers).
  void shapes(std::shared_ptr<const ShapeCheck> check, std::vector<Src> inputs);

  void all_distinct(std::vector<Src> srcs);           // no two are one object
  // Makes the value of `src` available after the guards: the register index is the order of the calls.
  int32_t fetch(Src src);

  std::unique_ptr<GuardProgram> finish();

 private:
  friend class GuardCompiler;
  void add(Requirement requirement);
  SourceTable& sources_;
  std::vector<Requirement> requirements_;
  HashIndex index_;
  std::vector<Ref> held_;                             // what the requirements point to, during the trace
  std::vector<TensorOperand> operands_;
  std::vector<std::pair<std::shared_ptr<const ShapeCheck>, std::vector<Src>>> shapes_;
  std::vector<std::vector<Src>> distinct_;
  std::vector<Src> fetched_;
};

// What the caller provides: the callee and its arguments as vectorcall passed them (positionals, then keywords).
struct CallArgs {
  PyObject* callee;
  PyObject* const* args;
  int64_t n_args;
};

class GuardProgram {
 public:
  virtual ~GuardProgram() = default;
  // True if all hold; then fetched[i] is a borrowed reference to the i-th fetched source's value. Runs no Python code,
  // leaves no error set.
  virtual bool run(const CallArgs& call, PyObject** fetched) const = 0;
  virtual int64_t n_fetched() const = 0;
  // The first guard that fails, in words: "self.training is True" / "x.size(0) == 4 (now 5)"; "" if none does.
  virtual std::string explain_failure(const CallArgs& call) const = 0;
  // What differs, if nothing but sizes of tensors and values of ints and floats does; else empty.
  struct Differences {
    std::vector<std::pair<std::string, int64_t>> sizes;   // source text, dimension
    std::vector<std::string> numbers;                     // source texts
    bool empty() const { return sizes.empty() && numbers.empty(); }
  };
  virtual Differences differences(const CallArgs& call) const = 0;
  // False for ever once a function, class or module that the guards name has died.
  virtual bool alive() const = 0;
  virtual std::string describe() const = 0;           // all guards, one per line
  virtual int64_t size() const = 0;                   // instructions
};

}  // namespace braze::capture
