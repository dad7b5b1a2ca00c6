// Ref: an owned reference to a Python object. The only place that calls Py_DECREF on behalf of others.
#pragma once

#include <utility>

#include "braze/capture/cpython/exported.h"

namespace braze::capture {

class Ref {
 public:
  Ref() = default;
  static Ref steal(PyObject* object) { Ref r; r.object_ = object; return r; }   // takes over a new reference
  static Ref borrow(PyObject* object) { Py_XINCREF(object); return steal(object); }
  Ref(const Ref& other) : object_(other.object_) { Py_XINCREF(object_); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept { std::swap(object_, other.object_); return *this; }
  ~Ref() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

}  // namespace braze::capture
