#include <algorithm>

#include "braze/capture/guards/compiler.h"
#include "braze/capture/guards/constant.h"
#include "braze/capture/guards/guards.h"
#include "braze/capture/guards/load.h"
#include "braze/support/check.h"
#include "braze/support/hash.h"

namespace braze::capture {

namespace {

uint64_t hash_requirement(const Requirement& r) {
  uint64_t h = mix(mix(static_cast<uint64_t>(r.kind), r.src), r.other);
  if (r.kind == GuardKind::Tensor) return h;   // one operand a source
  h = mix(mix(h, static_cast<uint64_t>(r.number)), hash_constant(r.key));
  return mix(mix(h, hash_constant(r.value)), reinterpret_cast<uintptr_t>(r.found));
}

bool equal(const Requirement& a, const Requirement& b) {
  if (a.kind != b.kind || a.src != b.src || a.other != b.other) return false;
  if (a.kind == GuardKind::Tensor) return true;
  return a.number == b.number && constants_equal(a.key, b.key) && constants_equal(a.value, b.value) &&
         a.found == b.found;
}

Ref interned(PyObject* name) {
  PyObject* object = Ref::borrow(name).release();
  PyUnicode_InternInPlace(&object);
  return Ref::steal(object);
}

}  // namespace

GuardSet::GuardSet(SourceTable& sources) : sources_(sources) {}
GuardSet::~GuardSet() = default;

void GuardSet::add(Requirement r) {
  CHECK(r.src < sources_.size());
  CHECK(r.other < sources_.size());
  const uint64_t h = hash_requirement(r);
  if (index_.find(h, [&](uint32_t row) { return equal(requirements_[row], r); }) >= 0) return;
  for (PyObject* object : {r.key, r.value, r.found}) {
    if (object != nullptr) held_.push_back(Ref::borrow(object));
  }
  index_.insert(h, static_cast<uint32_t>(requirements_.size()));
  requirements_.push_back(r);
}

void GuardSet::type(Src src, PyTypeObject* type) {
  add({.kind = GuardKind::Type, .src = src, .value = reinterpret_cast<PyObject*>(type)});
}

void GuardSet::identity(Src src, PyObject* object) { add({.kind = GuardKind::Identity, .src = src, .value = object}); }

void GuardSet::constant(Src src, PyObject* value) { add({.kind = GuardKind::Constant, .src = src, .value = value}); }

void GuardSet::truth(Src src, bool value) { add({.kind = GuardKind::Truth, .src = src, .number = value ? 1 : 0}); }

void GuardSet::absent(Src owner, PyObject* name) {
  add({.kind = GuardKind::Absent, .src = owner, .key = interned(name).get()});
}

void GuardSet::key_absent(Src dict, PyObject* key) { add({.kind = GuardKind::KeyAbsent, .src = dict, .key = key}); }

void GuardSet::lookup_absent(Src dict, Src key) {
  add({.kind = GuardKind::LookupAbsent, .src = dict, .other = key});
}

void GuardSet::empty_slot(Src owner, PyObject* name) {
  add({.kind = GuardKind::EmptySlot, .src = owner, .key = interned(name).get()});
}

void GuardSet::length(Src src, int64_t n) { add({.kind = GuardKind::Length, .src = src, .number = n}); }

void GuardSet::keys(Src dict, PyObject* tuple_of_keys) {
  CHECK(PyTuple_CheckExact(tuple_of_keys));
  add({.kind = GuardKind::Keys, .src = dict, .value = tuple_of_keys});
}

void GuardSet::same(Src a, Src b) {
  if (a != b) add({.kind = GuardKind::Same, .src = a, .other = b});
}

void GuardSet::distinct(Src a, Src b) { add({.kind = GuardKind::Distinct, .src = a, .other = b}); }

void GuardSet::tensor(Src src, TensorOperand operand) {
  CHECK(operand.check != nullptr);
  const size_t before = requirements_.size();
  add({.kind = GuardKind::Tensor, .src = src, .number = static_cast<int64_t>(operands_.size())});
  if (requirements_.size() > before) operands_.push_back(std::move(operand));
}

void GuardSet::type_attribute(Src type_source, PyTypeObject* type, PyObject* name, PyObject* found) {
  add({.kind = GuardKind::TypeAttribute,
       .src = type_source,
       .key = interned(name).get(),
       .value = reinterpret_cast<PyObject*>(type),
       .found = found});
}

void GuardSet::type_slots(PyTypeObject* type) {
  add({.kind = GuardKind::TypeSlots,
       .number = static_cast<int64_t>(load::type_slots(type)),
       .value = reinterpret_cast<PyObject*>(type)});
}

void GuardSet::abc_token() { add({.kind = GuardKind::AbcToken, .number = load::abc_token()}); }

void GuardSet::modes(uint64_t expected) {
  add({.kind = GuardKind::Modes, .number = static_cast<int64_t>(expected)});
}

void GuardSet::shapes(std::shared_ptr<const ShapeCheck> check, std::vector<Src> tensors) {
  CHECK(check != nullptr);
  add({.kind = GuardKind::Shapes, .number = static_cast<int64_t>(shapes_.size())});
  shapes_.emplace_back(std::move(check), std::move(tensors));
}

void GuardSet::all_distinct(std::vector<Src> srcs) {
  std::ranges::sort(srcs);
  srcs.erase(std::unique(srcs.begin(), srcs.end()), srcs.end());
  if (srcs.size() < 2) return;
  add({.kind = GuardKind::AllDistinct, .number = static_cast<int64_t>(distinct_.size())});
  distinct_.push_back(std::move(srcs));
}

int32_t GuardSet::fetch(Src src) {
  CHECK(src != kNoSource && src < sources_.size());
  fetched_.push_back(src);
  return static_cast<int32_t>(fetched_.size()) - 1;
}

std::unique_ptr<GuardProgram> GuardSet::finish() { return GuardCompiler(*this).compile(); }

}  // namespace braze::capture
