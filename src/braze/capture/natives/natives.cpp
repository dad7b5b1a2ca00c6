#include "braze/capture/natives/natives.h"

#include "braze/capture/natives/arity.h"

#include "braze/capture/differentiation.h"

#include <unordered_map>
#include <utility>
#include <vector>

namespace braze::capture {

namespace {

// Everything stays alive as long as the process.
struct Tables {
  std::unordered_map<const void*, Native> by_object;   // also PyMethodDef*
  // Rows of modules that the program has not imported: looked for again when there are other modules than then.
  std::vector<std::pair<const char*, Native>> missing;
  Py_ssize_t n_modules = 0;
  const Native* find(const void* key) const {
    const auto it = by_object.find(key);
    return it == by_object.end() ? nullptr : &it->second;
  }
};

PyMethodDef* definition(PyObject* callable) {
  if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  if (Py_TYPE(callable) == &PyMethodDescr_Type || Py_TYPE(callable) == &PyClassMethodDescr_Type) {
    return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
  }
  return nullptr;
}

// Functions that pybind11 makes share nothing else: their PyMethodDef is their own, too.
void put(Tables& tables, PyObject* object, Native native) {
  if (Py_TYPE(object) == &PyClassMethod_Type || Py_TYPE(object) == &PyStaticMethod_Type) {
    const Ref inner = Ref::steal(PyObject_GetAttrString(object, "__func__"));
    if (inner) put(tables, inner.get(), native);
    return PyErr_Clear();
  }
  Ref::borrow(object).release();
  tables.by_object[object] = native;
  PyMethodDef* def = definition(object);
  if (def != nullptr && std::string(def->ml_name) != "__new__") tables.by_object[def] = native;
}

Ref attribute_of(PyObject* owner, const std::string& name) {
  if (PyType_Check(owner)) {
    const Ref key = Ref::steal(PyUnicode_FromString(name.c_str()));
    return Ref::borrow(_PyType_Lookup(reinterpret_cast<PyTypeObject*>(owner), key.get()));
  }
  // A module's own names only: its __getattr__ may import (torch._dynamo, say).
  if (PyModule_Check(owner)) return Ref::borrow(PyDict_GetItemString(PyModule_GetDict(owner), name.c_str()));
  return Ref::steal(PyObject_GetAttrString(owner, name.c_str()));
}

// "a.b.C.d": the longest prefix that names a module, then attributes. Torch is never imported from here.
Ref resolve(const std::string& dotted) {
  const bool optional = dotted.rfind("torch", 0) == 0;
  for (size_t end = dotted.rfind('.'); end != std::string::npos && end > 0; end = dotted.rfind('.', end - 1)) {
    const std::string module_name = dotted.substr(0, end);
    const Ref name = Ref::steal(PyUnicode_FromString(module_name.c_str()));
    Ref owner = Ref::steal(PyImport_GetModule(name.get()));
    if (!owner && !optional) owner = Ref::steal(PyImport_Import(name.get()));
    PyErr_Clear();
    if (!owner) continue;
    size_t at = end + 1;
    while (owner && at <= dotted.size()) {
      size_t next = dotted.find('.', at);
      if (next == std::string::npos) next = dotted.size();
      owner = attribute_of(owner.get(), dotted.substr(at, next - at));
      PyErr_Clear();
      at = next + 1;
    }
    if (owner) return owner;
  }
  return {};
}

Owned call_mode(Executor& x, Value callable, const Arguments& a) {
  for (int64_t i = 0; i < a.n; i++) x.prov.use_deep(a[i]);
  return x.call_natively(callable.object, a);
}

void put_named(Tables& tables, const char* name, const Native& native) {
  const Ref object = resolve(name);
  if (object) put(tables, object.get(), native);
  else tables.missing.emplace_back(name, native);
}

void put_missing(Tables& tables) {
  const Py_ssize_t n_modules = PyDict_GET_SIZE(PyImport_GetModuleDict());
  if (n_modules == tables.n_modules || tables.missing.empty()) return;
  tables.n_modules = n_modules;
  for (const auto& [name, native] : std::exchange(tables.missing, {})) put_named(tables, name, native);
  PyErr_Clear();
}

void put_all(Tables& tables, const char* name, bool of_type) {
  const Ref owner = of_type ? resolve(name) : Ref::steal(PyImport_ImportModule(name));
  PyErr_Clear();
  if (!owner) return;
  const Ref dict = Ref::steal(PyObject_GetAttrString(owner.get(), "__dict__"));
  const Ref values = dict ? Ref::steal(PyMapping_Values(dict.get())) : Ref();
  if (!values) return PyErr_Clear();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(values.get()); i++) {
    PyObject* v = PyList_GET_ITEM(values.get(), i);
    PyTypeObject* type = Py_TYPE(v);
    if (type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type || type == &PyClassMethodDescr_Type ||
        (type == &PyCFunction_Type && !of_type)) {
      put(tables, v, {NativeKind::Pure, nullptr, nullptr, name});
    } else if (type == &PyStaticMethod_Type) {
      const Ref inner = Ref::steal(PyObject_GetAttrString(v, "__func__"));
      if (inner) put(tables, inner.get(), {NativeKind::Pure, nullptr, nullptr, name});
    }
  }
}

Tables& tables() {
  static Tables* const built = [] {
    auto* t = new Tables;
#define PURE(name) put_named(*t, name, {NativeKind::Pure, nullptr, nullptr, name});
#define PURE_TYPE(name) put_all(*t, name, true);
#define PURE_MODULE(name) put_all(*t, name, false);
#define MODE(name) put_named(*t, name, {NativeKind::Modelled, call_mode, nullptr, name});
#include "braze/capture/natives/natives.def"
#undef PURE
#undef PURE_TYPE
#undef PURE_MODULE
#undef MODE
    for (const auto& [name, function] : polyfills())
      put_named(*t, name, {NativeKind::Polyfilled, nullptr, Ref(function).release(), name});
    for (const ModelRow& row : shortcuts()) {
      if (const Ref object = resolve(row.name)) t->by_object.at(object.get()).model = row.model;
    }
    for (const auto* rows : {&builtin_models(), &container_models(), &object_models(), &library_models(), &autograd_models()}) {
      for (const ModelRow& row : *rows)
        put_named(*t, row.name, {NativeKind::Modelled, row.model, nullptr, row.name, row.gives_result});
    }
    PyErr_Clear();
    return t;
  }();
  return *built;
}

}  // namespace

Owned model_native_new(Executor& x, Value callable, const Arguments& a);

bool fits_native(PyObject* callable, const Arguments& a) {
  const PyTypeObject* const kind = Py_TYPE(callable);
  PyTypeObject* owner = nullptr;
  const PyMethodDef* method = nullptr;
  if (kind == &PyMethodDescr_Type || kind == &PyWrapperDescr_Type) owner = PyDescr_TYPE(callable);
  if (kind == &PyMethodDescr_Type) method = reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
  if (PyCFunction_CheckExact(callable)) method = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  if (owner != nullptr && (a.n_positional() == 0 || !PyObject_TypeCheck(a.objects[0], owner))) return false;
  const int64_t n = a.n - (owner != nullptr ? 1 : 0);
  if (method != nullptr && (method->ml_flags & METH_NOARGS) != 0) return n == 0;
  if (method != nullptr && (method->ml_flags & METH_O) != 0) return n == 1 && a.n_keywords() == 0;
  return true;
}

NativeCall find_native(PyObject* callable) {
  static const Native kNew{NativeKind::Modelled, model_native_new, nullptr, "__new__"};
  Tables& t = tables();
  put_missing(t);
  NativeCall out;
  out.native = t.find(callable);
  if (PyCFunction_Check(callable)) {
    PyObject* self = PyCFunction_GET_SELF(callable);
    PyMethodDef* def = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
    const bool is_new = self != nullptr && PyType_Check(self) && std::string(def->ml_name) == "__new__";
    if (out.native == nullptr && is_new) out.native = &kNew;
    if (out.native == nullptr) out.native = t.find(def);
    if (self != nullptr && !PyModule_Check(self) && !is_new) {
      PyObject* raw = _PyType_Lookup(Py_TYPE(self), interned(def->ml_name));
      if (raw != nullptr && definition(raw) == def) {
        out.descriptor = raw;
        out.self = self;
      } else if (PyType_Check(self) && out.native != nullptr && out.native->kind == NativeKind::Modelled) {
        out.self = self;   // class methods in C
      }
    }
  } else if (Py_TYPE(callable) == method_wrapper_type()) {
    const Ref self = Ref::steal(PyObject_GetAttrString(callable, "__self__"));
    const Ref name = Ref::steal(PyObject_GetAttrString(callable, "__name__"));
    const Ref owner = Ref::steal(PyObject_GetAttrString(callable, "__objclass__"));
    if (!self || !name || !owner) return PyErr_Clear(), NativeCall{};
    out.descriptor = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(owner.get()), name.get());
    out.self = self.get();   // the wrapper holds it
    out.native = t.find(out.descriptor);
  } else if (out.native == nullptr) {
    if (PyMethodDef* def = definition(callable)) out.native = t.find(def);
  }
  return out;
}

PyObject* interned(const char* text) {
  // Few distinct literals; looked up by address first.
  static auto& by_address = *new std::unordered_map<const void*, PyObject*>;
  PyObject*& entry = by_address[text];
  if (entry == nullptr || PyUnicode_CompareWithASCIIString(entry, text) != 0) entry = PyUnicode_InternFromString(text);
  return entry;
}

Value builtin(const char* name) {
  PyObject* found = PyDict_GetItem(PyEval_GetBuiltins(), interned(name));
  if (found == nullptr) unsupported(std::string("the builtin ") + name + " is missing");
  return {found, kNoSource};
}

void require_arity(const char* name, const Arguments& a, int64_t least, int64_t most) {
  if (a.n_keywords() > 0 || a.n < least || a.n > most) {
    unsupported(std::string("call of ") + name + " with arguments that it does not take");
  }
}

}  // namespace braze::capture
