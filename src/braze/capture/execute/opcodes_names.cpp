// Locals, cells, globals and imports.
#include "braze/capture/execute/opcodes.h"

namespace braze::capture {

bool Opcodes::unbound_local(Frame& f, uint32_t slot) {
  PyErr_Format(PyExc_UnboundLocalError, "cannot access local variable '%.200s' where it is not associated with a value",
               PyUnicode_AsUTF8(PyTuple_GET_ITEM(f.code->object->co_localsplusnames, slot)));
  return false;
}

bool Opcodes::make_cell(Executor& x, Frame& f, uint32_t slot) {
  const Owned initial = Owned::steal(f.slots[slot], f.src[slot]);
  f.slots[slot] = PyCell_New(initial.ref.get());
  f.src[slot] = kNoSource;
  if (f.slots[slot] == nullptr) return false;
  x.prov.add_fresh(f.slots[slot]);
  x.prov.stored(f.slots[slot], initial.get());
  return true;
}

bool Opcodes::load_deref(Executor& x, Frame& f, uint32_t slot) {
  PyObject* cell = f.slots[slot];
  const Src src = x.prov.found(cell, f.src[slot]).src;
  if (Shadow* shadow = x.prov.has_shadows() ? x.prov.find_shadow(cell) : nullptr) {
    f.push(Owned::borrow(shadow->attributes[0].value.get()));
    return true;
  }
  PyObject* content = PyCell_GET(cell);
  if (content == nullptr) {
    const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(f.code->object->co_localsplusnames, slot));
    if (static_cast<int>(slot) >= f.code->n_slots - f.code->object->co_nfreevars) {
      PyErr_Format(PyExc_NameError,
                   "cannot access free variable '%s' where it is not associated with a value in enclosing scope", name);
    } else {
      PyErr_Format(PyExc_UnboundLocalError,
                   "cannot access local variable '%s' where it is not associated with a value", name);
    }
    return false;
  }
  if (src == kNoSource) {
    f.push(Owned::borrow(content, x.prov.recall(cell, content)));
    return true;
  }
  const Source& s = x.prov.sources()[src];
  static PyObject* const contents = PyUnicode_InternFromString("cell_contents");
  f.push(Owned::borrow(x.prov.found(
      content, s.kind == SourceKind::ClosureCell ? x.prov.intern(SourceKind::Closure, s.base, s.index)
                                                 : x.prov.intern(SourceKind::Member, src, 0, contents))));
  return true;
}

bool Opcodes::store_deref(Executor& x, Frame& f, uint32_t slot) {
  PyObject* cell = f.slots[slot];
  if (!x.prov.is_fresh(cell)) {
    const Value existing = x.prov.found(cell, f.src[slot]);
    if (existing.src == kNoSource) x.fail("assignment to a captured variable of unknown origin");
    Shadow& shadow = x.prov.shadow(existing);
    static PyObject* const contents = PyUnicode_InternFromString("cell_contents");
    if (shadow.attributes.empty()) shadow.attributes.push_back({Ref::borrow(contents), Owned()});
    shadow.attributes[0].value = f.pop();
    return true;
  }
  Owned value = f.pop();
  x.prov.stored(cell, value.get());
  PyCell_Set(cell, value.ref.get());
  return true;
}

bool Opcodes::copy_free_vars(Executor& x, Frame& f, uint32_t n) {
  PyObject* closure = f.view.function->func_closure;
  const int64_t first = f.code->n_slots - static_cast<int64_t>(n);
  for (int64_t i = 0; i < static_cast<int64_t>(n); i++) {
    PyObject* cell = PyTuple_GET_ITEM(closure, i);
    Src src = kNoSource;
    if (f.function.src != kNoSource) {
      src = x.prov.found(cell, x.prov.intern(SourceKind::ClosureCell, f.function.src, i)).src;
    } else {
      src = x.prov.recall(closure, cell);
    }
    f.slots[first + i] = Ref::borrow(cell).release();
    f.src[first + i] = src;
  }
  return true;
}

Src Executor::globals_source(const Frame& f) {
  Src& src = globals_sources_[f.view.globals];
  if (src == kNoSource) src = f.function.src;
  return src;
}

Value Executor::globals_value(const Frame& f) {
  static PyObject* const name = PyUnicode_InternFromString("__globals__");
  const Src base = globals_source(f);
  if (base == kNoSource) fail("assignment to a global variable of a function of unknown origin");
  return prov.found(f.view.globals, prov.intern(SourceKind::Member, base, 0, name));
}

Owned Executor::load_global(Frame& f, PyObject* name) {
  if (has_changed(f.view.globals)) {
    const Value v = dict_get(globals_value(f), {name, kNoSource});
    if (v.object != nullptr) return Owned::borrow(v);
    if (PyErr_Occurred()) return {};
    PyObject* inherited = PyDict_GetItemWithError(f.view.builtins, name);
    if (inherited == nullptr && !PyErr_Occurred()) {
      PyErr_Format(PyExc_NameError, "name '%.200s' is not defined", PyUnicode_AsUTF8(name));
    }
    return inherited == nullptr ? Owned() : Owned::borrow(inherited);
  }
  PyObject* v = PyDict_GetItemWithError(f.view.globals, name);
  if (v == nullptr) v = PyDict_GetItemWithError(f.view.builtins, name);
  if (v == nullptr) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_NameError, "name '%.200s' is not defined", PyUnicode_AsUTF8(name));
    return {};
  }
  const Src base = globals_source(f);
  if (base == kNoSource) return Owned::borrow(v);
  return Owned::borrow(prov.found(v, prov.intern(SourceKind::Global, base, 0, name)));
}

bool Opcodes::import_name(Executor&, Frame& f, uint32_t arg) {
  const Value from = f.top(), level = f.top(2);
  const int at = static_cast<int>(PyLong_AsLong(level.object));
  if (at < 0 && PyErr_Occurred()) return false;
  // Importing runs each module once in a process, as the eager program would.
  Ref module = Ref::steal(PyImport_ImportModuleLevelObject(f.name(arg), f.view.globals, Py_None, from.object, at));
  if (!module) return false;
  return replace(f, 2, Owned(module));
}

bool Opcodes::import_from(Executor& x, Frame& f, uint32_t arg) {
  const Value module = f.top();
  Owned value = x.find_attribute(module, f.name(arg));
  if (!value) {
    if (PyErr_Occurred()) return false;
    Ref package = Ref::steal(PyObject_GetAttrString(module.object, "__name__"));
    if (!package) return false;
    const Ref full = Ref::steal(PyUnicode_FromFormat("%U.%U", package.get(), f.name(arg)));
    const Ref submodule = full ? Ref::steal(PyImport_GetModule(full.get())) : Ref();
    if (!submodule) {
      if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ImportError, "cannot import name %R from %R", f.name(arg), package.get());
      }
      return false;
    }
    value = Owned(submodule);
  }
  f.push(std::move(value));
  return true;
}

}  // namespace braze::capture
