// From a GuardSet to a FlatProgram.
//
// The sources that matter form a forest. Its roots are the callee, the arguments, and what stands in containers known
// when the program is made: the globals of a function or module that is guarded by identity, and classes. Each value
// is loaded once; then come the checks that hold as long as the container it came from is unchanged (inside the
// container's group), the checks that must run every time, the group of its own attributes, and its children. What is
// found in a dict at a key that must be loaded itself (Late) comes after all these.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "braze/capture/guards/program.h"

namespace braze::capture {

class GuardCompiler {
 public:
  explicit GuardCompiler(GuardSet& set);
  std::unique_ptr<GuardProgram> compile();

 private:
  using Reg = uint32_t;
  static constexpr Reg kNoReg = UINT32_MAX;
  static constexpr Reg kConstant = 0x80000000u;   // marks a constant's register until the code's length is known

  enum class Place : uint8_t { Unneeded, Root, Child, ConstDict, ConstType, Late };
  struct Node {
    Place place = Place::Unneeded;
    bool load = false;                   // its value is needed at run time
    bool has_tensor_guard = false;
    size_t container = 0;                // ConstDict, ConstType
    PyObject* known = nullptr;           // the object that it must be
    PyTypeObject* type = nullptr;        // the exact type that it must have
    Reg reg = kNoReg;
    std::vector<int32_t> requirements;
    std::vector<Src> children;           // those loaded from this value
  };
  struct Container {
    bool is_type = false;
    PyObject* object = nullptr;
    uint32_t group = 0;
    std::vector<Src> loads;
    std::vector<int32_t> requirements;
  };

  // Analysis.
  void attach_requirements();
  void resolve(Src src);
  void place_in_container(Src src, bool is_type, PyObject* object);
  size_t container(bool is_type, PyObject* object);
  void move_to_containers();
  void mark_loads();
  PyObject* known_class_attribute(const Source& s) const;
  bool is_gradient(Src src) const;
  bool implied(const Requirement& r) const;        // another requirement already says so
  bool checked_at_load(const Requirement& r) const;
  bool in_instance_group(const Requirement& r) const { return r.kind == GuardKind::Absent; }
  bool in_dict_group(const Requirement& r) const;
  bool loaded_from_instance(Src child) const { return source(child).kind == SourceKind::Attr; }
  bool loaded_from_dict(Src child) const;

  // Emission.
  void emit_container(size_t i);
  void emit_load(Src src, Reg base);
  void emit_body(Src src);
  template <class Take>
  void emit_group(Src src, GuardOp op, size_t cheap, const Take& take_requirement, const std::vector<Src>& children);
  void emit_check(int32_t requirement, Reg reg);
  void emit_last(const Requirement& r, int32_t number);
  void emit_function_codes();
  void bind_constant_registers();

  Reg emit(GuardOp op, Reg a, uint32_t b, int32_t requirement, Src src);
  uint32_t open_group(GuardOp op, Reg a, PyObject* object, Src src);
  void close_group(uint32_t group, bool is_type);
  uint32_t constant(PyObject* object);             // kept strongly
  uint32_t watched_constant(PyObject* object);     // the user's: kept by weak reference
  Reg constant_register(PyObject* object);
  uint32_t number(int64_t value);
  uint32_t found(const Requirement& r);
  uint32_t key_and_class(const Source& s);
  uint32_t slot_offset(const Requirement& r) const;
  void keep_printable(PyObject*& object);

  const Source& source(Src src) const { return set_.sources_[src]; }
  const Requirement& requirement(int32_t i) const { return set_.requirements_[static_cast<size_t>(i)]; }

  GuardSet& set_;
  std::unique_ptr<FlatProgram> program_;
  std::vector<Node> nodes_;
  std::vector<Container> containers_;
  std::map<std::pair<bool, PyObject*>, size_t> container_of_;
  std::map<std::pair<PyObject*, PyObject*>, PyObject*> class_attributes_;   // (class, name) to what is found
  std::unordered_map<PyObject*, uint32_t> constant_index_;
  std::unordered_map<PyObject*, Reg> constant_registers_;
  std::vector<PyObject*> register_values_;
};

}  // namespace braze::capture
