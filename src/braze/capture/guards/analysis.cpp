// The analysis before the emission of a guard program: where each source is loaded from, what is known of it before the
// program runs, which requirements others imply, and which values must be loaded at all.
#include "braze/capture/guards/compiler.h"
#include "braze/capture/guards/load.h"

namespace braze::capture {

namespace {

// An object of such a type never changes it (`x.__class__ = C` is refused).
bool has_fixed_class(PyTypeObject* type) {
  return (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || PyType_HasFeature(type, Py_TPFLAGS_IMMUTABLETYPE)) &&
         type != &PyModule_Type;
}

bool is_immutable(PyTypeObject* type) {
  return type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || type == &PyComplex_Type ||
         type == &PyUnicode_Type || type == &PyBytes_Type || type == &PyTuple_Type || type == &PyFrozenSet_Type ||
         type == Py_TYPE(Py_None);
}

bool dict_contains(PyObject* dict, PyObject* key) {
  uint16_t hint = 0xffff;
  bool known = true;
  return dict != nullptr && object::dict_lookup(dict, key, hint, known) != nullptr;
}

}  // namespace

void GuardCompiler::attach_requirements() {
  const auto need = [&](Src src) {
    std::vector<Src> open{src};
    while (!open.empty()) {
      const Src next = open.back();
      open.pop_back();
      if (next == kNoSource || nodes_[next].place != Place::Unneeded) continue;
      nodes_[next].place = Place::Child;
      open.push_back(source(next).base);
      if (source(next).kind == SourceKind::Lookup) open.push_back(static_cast<Src>(source(next).index));
      if (source(next).kind == SourceKind::KeyTuple) {
        for (const Src element : set_.sources_.elements(next)) open.push_back(element);
      }
    }
  };
  for (size_t i = 0; i < set_.requirements_.size(); i++) {
    const Requirement& r = set_.requirements_[i];
    if (r.src == kNoSource) continue;
    need(r.src);
    if (r.other != kNoSource) need(r.other);
    nodes_[r.src].requirements.push_back(static_cast<int32_t>(i));
    if (r.kind == GuardKind::Type) nodes_[r.src].type = reinterpret_cast<PyTypeObject*>(r.value);
    if (r.kind == GuardKind::Identity) nodes_[r.src].known = r.value;
    if (r.kind == GuardKind::Tensor) nodes_[r.src].has_tensor_guard = true;
    if (r.kind == GuardKind::TypeAttribute && r.found != nullptr) class_attributes_[{r.value, r.key}] = r.found;
  }
  for (const Src src : set_.fetched_) need(src);
  for (const auto& [check, tensors] : set_.shapes_) {
    for (const Src src : tensors) need(src);
  }
  for (const std::vector<Src>& srcs : set_.distinct_) {
    for (const Src src : srcs) need(src);
  }
}

size_t GuardCompiler::container(bool is_type, PyObject* object) {
  const auto [it, fresh] = container_of_.try_emplace({is_type, object}, containers_.size());
  if (fresh) {
    containers_.push_back({is_type, object, 0, {}, {}});
    if (is_type) program_->watched_.watch(object);
  }
  return it->second;
}

void GuardCompiler::place_in_container(Src src, bool is_type, PyObject* object) {
  Node& node = nodes_[src];
  node.place = is_type ? Place::ConstType : Place::ConstDict;
  node.container = container(is_type, object);
}

PyObject* GuardCompiler::known_class_attribute(const Source& s) const {
  const Node& base = nodes_[s.base];
  PyObject* type = base.known != nullptr && PyType_Check(base.known) ? base.known
                   : base.known != nullptr                           ? reinterpret_cast<PyObject*>(Py_TYPE(base.known))
                                                                     : reinterpret_cast<PyObject*>(base.type);
  const auto it = class_attributes_.find({type, s.key.get()});
  // Lists and dicts of a class are compared by type alone (their contents have guards), so none is known by address.
  return it == class_attributes_.end() || load::is_mutable_container(it->second) ? nullptr : it->second;
}

// Decides where a needed source is loaded from, and what is known of it before the program runs.
void GuardCompiler::resolve(Src src) {
  Node& node = nodes_[src];
  if (node.place == Place::Unneeded) return;
  const Source& s = source(src);
  const Node& base = nodes_[s.base];
  PyObject* const owner = base.known;
  switch (s.kind) {
    case SourceKind::None:
    case SourceKind::Callee:
    case SourceKind::Handled:
    case SourceKind::Arg: node.place = Place::Root; break;
    case SourceKind::Constant:
      node.place = Place::Root;
      node.known = s.extra.get();
      break;
    case SourceKind::ImportedModule: place_in_container(src, false, PyImport_GetModuleDict()); break;
    case SourceKind::Global:
      if (owner != nullptr && PyFunction_Check(owner)) {
        const auto* f = reinterpret_cast<PyFunctionObject*>(owner);
        program_->watched_.watch(owner);
        if (dict_contains(f->func_globals, s.key.get()) || f->func_builtins == nullptr) {
          place_in_container(src, false, f->func_globals);
        } else {
          place_in_container(src, false, f->func_builtins);
        }
      }
      break;
    case SourceKind::Attr:
      if (owner != nullptr && PyModule_Check(owner)) {
        program_->watched_.watch(owner);
        place_in_container(src, false, PyModule_GetDict(owner));
      }
      break;
    case SourceKind::Dict:
      if (owner != nullptr && (PyModule_Check(owner) || PyType_Check(owner))) {
        program_->watched_.watch(owner);
        node.place = Place::Root;
        node.known = load::dict_of(owner);
      }
      break;
    case SourceKind::Key:
      if (source(s.base).kind == SourceKind::Dict && owner != nullptr) place_in_container(src, false, owner);
      break;
    case SourceKind::Type:
      if (node.known == nullptr && base.type != nullptr) node.known = reinterpret_cast<PyObject*>(base.type);
      break;
    case SourceKind::TypeAttr: {
      if (node.known == nullptr) node.known = known_class_attribute(s);
      if (owner != nullptr && PyType_Check(owner)) place_in_container(src, true, owner);
      else if (base.type != nullptr && !PyType_IsSubtype(base.type, &PyType_Type)) {
        place_in_container(src, true, reinterpret_cast<PyObject*>(base.type));
      }
      break;
    }
    case SourceKind::SuperAttr:
      if (base.type != nullptr) place_in_container(src, true, reinterpret_cast<PyObject*>(base.type));
      break;
    case SourceKind::Member:
      if (node.known == nullptr && owner != nullptr) node.known = load::wrapped_function(owner, s.key.get());
      break;
    case SourceKind::KeyTuple:
    case SourceKind::Lookup: node.place = Place::Late; break;
    case SourceKind::Closure:
    case SourceKind::ClosureCell:
    case SourceKind::FuncDefaults:
    case SourceKind::FuncKwDefaults:
    case SourceKind::FuncCode:
    case SourceKind::Item:
    case SourceKind::DictKey:
    case SourceKind::DictValue:
    case SourceKind::Method: break;
  }
  if (node.known != nullptr && node.type == nullptr && has_fixed_class(Py_TYPE(node.known))) node.type = Py_TYPE(node.known);
}

// Requirements that known classes and module dicts answer stand in those containers' groups.
void GuardCompiler::move_to_containers() {
  for (size_t i = 0; i < set_.requirements_.size(); i++) {
    const Requirement& r = set_.requirements_[i];
    if (r.kind == GuardKind::TypeAttribute || r.kind == GuardKind::TypeSlots) {
      containers_[container(true, r.value)].requirements.push_back(static_cast<int32_t>(i));
    } else if (r.kind == GuardKind::Absent && nodes_[r.src].known != nullptr && PyModule_Check(nodes_[r.src].known)) {
      program_->watched_.watch(nodes_[r.src].known);
      containers_[container(false, PyModule_GetDict(nodes_[r.src].known))].requirements.push_back(static_cast<int32_t>(i));
    } else if (r.kind == GuardKind::KeyAbsent && nodes_[r.src].known != nullptr &&
               source(r.src).kind == SourceKind::Dict) {
      containers_[container(false, nodes_[r.src].known)].requirements.push_back(static_cast<int32_t>(i));
    }
  }
  // A global read from the builtins must be absent from the globals.
  for (Src src = 1; src < nodes_.size(); src++) {
    const Node& node = nodes_[src];
    if (node.place != Place::ConstDict || source(src).kind != SourceKind::Global) continue;
    const auto* f = reinterpret_cast<PyFunctionObject*>(nodes_[source(src).base].known);
    if (containers_[node.container].object == f->func_globals) continue;
    const Src owner = source(src).base;
    set_.requirements_.push_back({.kind = GuardKind::KeyAbsent, .src = owner, .key = source(src).key.get()});
    program_->requirements_.push_back(set_.requirements_.back());
    const auto i = static_cast<int32_t>(set_.requirements_.size()) - 1;
    containers_[container(false, f->func_globals)].requirements.push_back(i);
  }
}

bool GuardCompiler::implied(const Requirement& r) const {
  if (r.kind == GuardKind::TypeAttribute) {
    // Said by type(base) is T, or by the class itself being known.
    const Node& node = nodes_[r.src];
    if (node.known == r.value || reinterpret_cast<PyObject*>(node.type) == r.value) return true;
    return source(r.src).kind == SourceKind::Type &&
           reinterpret_cast<PyObject*>(nodes_[source(r.src).base].type) == r.value;
  }
  const Source& s = source(r.src);
  if (r.kind == GuardKind::Identity) {
    if (s.kind == SourceKind::Constant) return true;
    if (s.kind == SourceKind::Type) return reinterpret_cast<PyObject*>(nodes_[s.base].type) == r.value;
    if (s.kind == SourceKind::TypeAttr) return known_class_attribute(s) == r.value;
    if (s.kind == SourceKind::Member) {
      PyObject* owner = nodes_[s.base].known;
      return owner != nullptr && load::wrapped_function(owner, s.key.get()) == r.value;
    }
  }
  if (r.kind == GuardKind::Type && nodes_[r.src].has_tensor_guard) return true;   // which compares the type too
  if (r.kind == GuardKind::Type && nodes_[r.src].known != nullptr) {
    return has_fixed_class(Py_TYPE(nodes_[r.src].known)) && r.value == reinterpret_cast<PyObject*>(Py_TYPE(nodes_[r.src].known));
  }
  const bool in_container = r.kind == GuardKind::Absent || r.kind == GuardKind::KeyAbsent;
  if (in_container && nodes_[r.src].known != nullptr) {
    return PyModule_Check(nodes_[r.src].known) || s.kind == SourceKind::Dict ||
           (r.kind == GuardKind::KeyAbsent && PyFunction_Check(nodes_[r.src].known));
  }
  return false;
}

bool GuardCompiler::checked_at_load(const Requirement& r) const {
  PyTypeObject* const type = nodes_[r.src].type;
  switch (r.kind) {
    case GuardKind::Identity: return true;
    case GuardKind::Constant: return !load::is_mutable_container(r.value);   // a set may change where it stands
    case GuardKind::Type: return has_fixed_class(reinterpret_cast<PyTypeObject*>(r.value));
    case GuardKind::Truth:
    case GuardKind::Length: return type != nullptr && is_immutable(type);
    case GuardKind::Absent:
    case GuardKind::KeyAbsent:
    case GuardKind::LookupAbsent:
    case GuardKind::EmptySlot:
    case GuardKind::Keys:
    case GuardKind::Same:
    case GuardKind::Distinct:
    case GuardKind::Tensor:
    case GuardKind::TypeAttribute:
    case GuardKind::TypeSlots:
    case GuardKind::AbcToken:
    case GuardKind::Modes:
    case GuardKind::AllDistinct:
    case GuardKind::Shapes: return false;
  }
  return false;
}

// What a dict's version vouches for. The order of an OrderedDict is not among it.
bool GuardCompiler::in_dict_group(const Requirement& r) const {
  const bool is_dict = nodes_[r.src].type != nullptr && PyType_IsSubtype(nodes_[r.src].type, &PyDict_Type);
  if (r.kind == GuardKind::KeyAbsent) return true;
  if (r.kind == GuardKind::Keys) return nodes_[r.src].type == &PyDict_Type;
  return (r.kind == GuardKind::Length || r.kind == GuardKind::Truth) && is_dict;
}

bool GuardCompiler::loaded_from_dict(Src child) const {
  const SourceKind kind = source(child).kind;
  return kind == SourceKind::Key || ((kind == SourceKind::DictKey || kind == SourceKind::DictValue) && nodes_[source(child).base].type == &PyDict_Type);
}

// tensor.grad, of tensors that have guards themselves.
bool GuardCompiler::is_gradient(Src src) const {
  const Source& s = source(src);
  return s.kind == SourceKind::Member && nodes_[s.base].has_tensor_guard &&
         PyUnicode_CompareWithASCIIString(s.key.get(), "grad") == 0;
}

void GuardCompiler::mark_loads() {
  for (const Src src : set_.fetched_) nodes_[src].load = true;
  for (const auto& [check, tensors] : set_.shapes_) {
    for (const Src src : tensors) nodes_[src].load = true;
  }
  for (const std::vector<Src>& srcs : set_.distinct_) {
    for (const Src src : srcs) nodes_[src].load = true;
  }
  for (const Requirement& r : set_.requirements_) {
    if (r.other != kNoSource) nodes_[r.other].load = true;
  }
  for (Src src = static_cast<Src>(nodes_.size()) - 1; src > 0; src--) {   // children stand after their bases
    Node& node = nodes_[src];
    if (node.place == Place::Unneeded) continue;
    for (const int32_t i : node.requirements) node.load = node.load || !implied(requirement(i));
    if (node.load && (node.place == Place::Child || node.place == Place::Late)) nodes_[source(src).base].load = true;
    if (!node.load || node.place != Place::Late) continue;
    if (source(src).kind == SourceKind::Lookup) nodes_[static_cast<size_t>(source(src).index)].load = true;
    else for (const Src element : set_.sources_.elements(src)) nodes_[element].load = true;
  }
  for (Src src = 1; src < nodes_.size(); src++) {
    Node& node = nodes_[src];
    if (!node.load) continue;
    if (node.place == Place::Child) nodes_[source(src).base].children.push_back(src);
    if (node.place == Place::ConstDict || node.place == Place::ConstType) containers_[node.container].loads.push_back(src);
  }
}

}  // namespace braze::capture
