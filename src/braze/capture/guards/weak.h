// The user's objects that a guard program compares pointers with. They are held by weak references; the death of one
// ends the program, so that a new object at the same address can't pass for it.
#pragma once

#include <memory>
#include <unordered_set>
#include <vector>

#include "braze/capture/ref.h"

namespace braze::capture {

class WeakObjects {
 public:
  WeakObjects();
  WeakObjects(const WeakObjects&) = delete;
  WeakObjects& operator=(const WeakObjects&) = delete;

  // Keeps `object`'s address meaningful: by a weak reference where its type allows, and not at all for what lives as
  // long as the process. Natives without weak references (method descriptors, dtypes) are held strongly.
  void watch(PyObject* object);
  bool all_alive() const { return *alive_; }

 private:
  std::shared_ptr<bool> alive_;
  Ref callback_;                  // owns a share of alive_, so that it may outlive this object
  std::vector<Ref> held_;         // weak references, and natives
  std::unordered_set<PyObject*> watched_;
};

}  // namespace braze::capture
