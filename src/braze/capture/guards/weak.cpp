#include "braze/capture/guards/weak.h"

#include "braze/support/check.h"

namespace braze::capture {

namespace {

constexpr const char* kFlagName = "braze.alive";

void release_flag(PyObject* capsule) {
  delete static_cast<std::shared_ptr<bool>*>(PyCapsule_GetPointer(capsule, kFlagName));
}

PyObject* on_death(PyObject* capsule, PyObject*) {
  **static_cast<std::shared_ptr<bool>*>(PyCapsule_GetPointer(capsule, kFlagName)) = false;
  Py_RETURN_NONE;
}

PyMethodDef kOnDeath = {"braze_guarded_object_died", on_death, METH_O, nullptr};

bool lives_for_ever(PyObject* object) {
  return object == Py_None || object == Py_True || object == Py_False || object == Py_Ellipsis ||
         object == Py_NotImplemented ||
         (PyType_Check(object) && !PyType_HasFeature(reinterpret_cast<PyTypeObject*>(object), Py_TPFLAGS_HEAPTYPE));
}

}  // namespace

WeakObjects::WeakObjects() : alive_(std::make_shared<bool>(true)) {
  auto share = std::make_unique<std::shared_ptr<bool>>(alive_);
  Ref capsule = Ref::steal(PyCapsule_New(share.get(), kFlagName, release_flag));
  CHECK(capsule, "no memory for a capsule");
  share.release();
  callback_ = Ref::steal(PyCFunction_New(&kOnDeath, capsule.get()));
  CHECK(callback_, "no memory for a callback");
}

void WeakObjects::watch(PyObject* object) {
  if (lives_for_ever(object) || !watched_.insert(object).second) return;
  if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) {
    Ref weak = Ref::steal(PyWeakref_NewRef(object, callback_.get()));
    if (weak) {
      held_.push_back(std::move(weak));
      return;
    }
    PyErr_Clear();
  }
  held_.push_back(Ref::borrow(object));
}

}  // namespace braze::capture
