#include "braze/capture/exits/storage.h"

#include "braze/capture/execute/executor.h"
#include "braze/capture/guards/object.h"

namespace braze::capture {

void require_unchanged_storage(Executor& x, PyObject* object) {
  PyObject* const dict = object::instance_storage(object).dict;
  if (dict != nullptr && x.has_changed(dict)) x.fail("an attribute of an object whose __dict__ the call has changed");
}

void require_no_shadow_over(Executor& x, Value dict) {
  if (!x.prov.has_shadows() || dict.src == kNoSource || !PyDict_CheckExact(dict.object) ||
      x.prov.sources()[dict.src].kind == SourceKind::Dict) {
    return;
  }
  for (const auto& shadow : x.prov.shadows()) {
    PyObject* const owner = shadow->owner.get();
    if (PyCell_Check(owner) || PyType_Check(owner) || Py_TYPE(owner)->tp_dictoffset == 0) continue;
    if (object::instance_storage(owner).dict == dict.object) x.fail("the __dict__ of an object that the call has changed");
  }
}

}  // namespace braze::capture
