// The flat guard program: its instructions, and what they refer to.
//
// Every instruction that loads a value writes the register of its own number; constants have registers above the code.
// Registers keep their (borrowed) values from run to run. A group holds the loads from one dict, instance or class and
// the checks on them that can't change while it does not; when its version is the one seen at the last success, the
// group is skipped and its registers still hold. State changes at run time happen under the GIL only.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "braze/capture/guards/guards.h"
#include "braze/capture/guards/weak.h"

namespace braze::capture {

enum class GuardOp : uint8_t {
  // Loads. a: the base's register, b: a key (constant), a number, or an index.
  Callee, Arg,
  Handled,        // b: 1: also in the frames around the caller's generator
  Global,         // a: function, b: key
  Closure, ClosureCell, FuncDefaults, FuncKwDefaults, FuncCode,
  Attr,           // b: key
  MemberObject,   // b: byte offset of an object field; flag: an empty one reads as None
  Member,         // b: key; hint: number of the temporary; flag: what it gives has another owner
  TypeAttr,       // b: key; a: an object or a class
  TypeOf, DictOf, Item,
  Key,            // b: key
  DictKey, DictValue,   // b: position
  Lookup,         // b: the key's register
  KeyTuple,       // a: its number
  Method,
  SuperAttr,      // b: key; the class is constant b + 1
  ConstDictKey,   // a: group, b: key
  ConstTypeAttr,  // a: group, b: key
  ConstSuperAttr, // a: group, b: key; the class is constant b + 1
  // Tests. a: register.
  Is,             // b: constant
  Equals,         // b: constant
  Type,           // b: constant
  TypeOrSelf,     // b: constant: the value or its type is it
  Truth, Length,  // b: number
  Absent, KeyAbsent,   // b: key
  ConstKeyAbsent, // a: group, b: key
  LookupAbsent,   // b: the key's register
  EmptySlot,      // b: byte offset of an object field
  Keys,           // b: constant tuple
  Same, Distinct, // b: register
  Tensor,         // b: operand
  TypeAttribute,  // a: group, b: found record
  TypeSlots,      // a: group, b: number
  AbcToken,       // b: number
  FunctionCode,   // constants b and b + 1: a known function, and the code that it has
  Modes,          // b: number
  Shapes,         // b: check
  AllDistinct,    // b: list
  // Groups. b: group; a: register.
  InstanceGroup, DictGroup, ConstDictGroup, ConstTypeGroup, GroupEnd,
};

struct GuardInsn {
  GuardOp op;
  uint8_t flag = 0;
  uint16_t hint = 0;       // where the key stood last
  uint32_t a = 0, b = 0;
};
static_assert(sizeof(GuardInsn) == 12);

// What a class attribute must be: by value, by (watched) pointer, or for property, staticmethod and classmethod by the
// functions inside, so that nothing of the user's is held.
struct FoundRecord {
  enum class How : uint8_t { Nothing, Pointer, Value, Wrapper, Container } how = How::Nothing;
  PyObject* name = nullptr;
  PyObject* object = nullptr;             // Pointer, Value
  PyTypeObject* type = nullptr;           // Wrapper, Container
  PyObject* inner[3] = {nullptr, nullptr, nullptr};
};

class FlatProgram final : public GuardProgram {
 public:
  bool run(const CallArgs& call, PyObject** fetched) const override;
  int64_t n_fetched() const override { return static_cast<int64_t>(fetched_.size()); }
  std::string explain_failure(const CallArgs& call) const override;
  Differences differences(const CallArgs& call) const override;
  std::string describe() const override;
  int64_t size() const override { return static_cast<int64_t>(code_.size()); }
  bool alive() const override { return watched_.all_alive(); }

 private:
  friend class GuardCompiler;
  struct Group {
    uint64_t version = 0;                 // at the last success; 0: none
    uint64_t pending = 0;                 // of this run
    uint32_t end = 0;                     // the instruction after the group
    PyObject* object = nullptr;           // of a constant dict or class
  };
  struct ShapeRow {
    std::shared_ptr<const ShapeCheck> check;
    std::vector<uint32_t> tensors;        // registers
  };
  struct KeyTuple {
    std::vector<uint32_t> elements;       // registers
    Ref made;                             // until the run ends
  };
  static constexpr int64_t kAllHold = -1;

  // The number of the first instruction at or after `start` whose guard fails.
  int64_t first_failure(const CallArgs& call, size_t start) const;
  bool check_shapes(const ShapeRow& row) const;
  PyObject* make_key_tuple(KeyTuple& tuple) const;
  bool all_distinct(const std::vector<uint32_t>& registers) const;
  void forget_versions() const;
  std::string requirement_text(const Requirement& requirement) const;
  std::string found_text(const GuardInsn& insn, const CallArgs& call) const;   // "now False"
  std::string failure_text(size_t pc, const CallArgs& call) const;

  mutable std::vector<GuardInsn> code_;
  mutable std::vector<PyObject*> registers_;
  mutable std::vector<Group> groups_;
  mutable std::vector<Ref> temporaries_;  // results of native getters, until the next run
  mutable std::vector<KeyTuple> key_tuples_;
  std::vector<PyObject*> constants_;
  std::vector<int64_t> numbers_;
  std::vector<FoundRecord> found_;
  std::vector<TensorOperand> operands_;
  std::vector<ShapeRow> shapes_;
  std::vector<std::vector<uint32_t>> distinct_;   // registers
  std::vector<uint32_t> fetched_;         // registers
  std::vector<Ref> held_;                 // constants and keys
  WeakObjects watched_;
  // To explain: per instruction the requirement it checks (or -1) and the source it loads or tests.
  struct Why { int32_t requirement; Src src; };
  std::vector<Why> why_;
  std::vector<Requirement> requirements_;
  SourceTable sources_;
};

}  // namespace braze::capture
