// str(), repr() and format().
#include "braze/capture/execute/executor.h"
#include "braze/capture/execute/operators.h"
#include "braze/capture/execute/types.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

namespace {

// Walks what a value holds.
struct AddressSearch {
  Provenance& prov;
  PointerMap<bool> seen;
  bool found = false;

  void visit(PyObject* o) {
    if (found || seen.find(o) != nullptr) return;
    seen[o] = true;
    switch (prov.category(o)) {
      case Category::Constant: case Category::Symbolic: case Category::Tensor: case Category::Unset: return;
      case Category::Referent: found = PyFunction_Check(o) && prov.is_fresh(o); return;
      case Category::Identity: case Category::Tuple: case Category::Method: break;
    }
    PyTypeObject* const type = Py_TYPE(o);
    if (PyExceptionInstance_Check(o)) return visit(reinterpret_cast<PyBaseExceptionObject*>(o)->args);
    found = type->tp_repr == PyBaseObject_Type.tp_repr || PyGen_Check(o) || PyCell_Check(o);
    if (found || type->tp_traverse == nullptr || is_python_class(type)) return;
    type->tp_traverse(o, [](PyObject* held, void* search) {
      static_cast<AddressSearch*>(search)->visit(held);
      return 0;
    }, this);
  }
};

}  // namespace

void Executor::reject_shown_address(Value v) {
  AddressSearch search{prov, {}};
  search.visit(seen(v).object);
  if (search.found) fail("the text of an object that shows its address");
}

Owned Executor::to_string(Value v, bool repr) {
  prov.reject_address(v.object);
  const Owned fixed = concrete(seen(v));
  v = fixed.get();
  PyTypeObject* type = Py_TYPE(v.object);
  if (prov.category(v.object) == Category::Tensor) fail("the text of a tensor");
  PyObject* method = nullptr;
  const char* name = repr ? "__repr__" : "__str__";
  if (is_python_method(type, interned(name), method)) return call_method(special(v, interned(name)), {});
  if (!repr && type->tp_str == PyBaseObject_Type.tp_str && is_python_method(type, interned("__repr__"), method)) {
    return to_string(v, true);
  }
  reject_shown_address(v);
  prov.use_deep(v);
  const uint64_t before = frames_run_natively();
  Owned text = Owned::steal(repr ? PyObject_Repr(v.object) : PyObject_Str(v.object));
  if (frames_run_natively() != before && prov.category(v.object) == Category::Identity) {
    fail("the text of an object that calls Python code");
  }
  return text;
}

Owned Executor::format(Value v, PyObject* spec) {
  prov.reject_address(v.object);
  const Owned fixed = concrete(seen(v));
  v = fixed.get();
  PyTypeObject* type = Py_TYPE(v.object);
  PyObject* method = nullptr;
  if (is_python_method(type, interned("__format__"), method)) {
    if (prov.category(v.object) == Category::Tensor) fail("the text of a tensor");
    if (prov.category(v.object) != Category::Constant) {
      return call_method(special(v, interned("__format__")), {{spec != nullptr ? spec : interned(""), kNoSource}});
    }
  }
  const bool empty = spec == nullptr || PyUnicode_GET_LENGTH(spec) == 0;
  const bool object_format = _PyType_Lookup(type, interned("__format__")) ==
                             _PyType_Lookup(&PyBaseObject_Type, interned("__format__"));
  if (object_format && empty) return to_string(v, false);
  reject_shown_address(v);
  prov.use_deep(v);
  return Owned::steal(PyObject_Format(v.object, spec));
}

}  // namespace braze::capture
