// str(), repr() and format().
#include "braze/capture/executor.h"
#include "braze/capture/natives.h"
#include "braze/capture/operators.h"

namespace braze::capture {

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
  if (prov.category(v.object) == Category::Identity &&
      (type->tp_repr == PyBaseObject_Type.tp_repr)) {
    fail("the text of an object that shows its address");
  }
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
  prov.use_deep(v);
  return Owned::steal(PyObject_Format(v.object, spec));
}

}  // namespace braze::capture
