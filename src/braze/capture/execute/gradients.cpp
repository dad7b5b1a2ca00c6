// `.grad` of the caller's tensors: read from where it stands, changed in the trace, written back at the exit.
#include "braze/capture/differentiation.h"

namespace braze::capture {

Ref stand_in(Executor& x, Value tensor) {
  if (x.session.is_traced(tensor.object)) return Ref::borrow(tensor.object);
  if (tensor.src == kNoSource) x.fail("a tensor of unknown origin");
  Result<Ref> made = x.session.stand_in(tensor.object, tensor.src);
  if (!made.ok()) throw Abort{made.why()};
  return *made;
}

namespace {

Differentiation& differentiation(Executor& x) {
  auto* out = dynamic_cast<Differentiation*>(&x.session);
  if (out == nullptr) x.fail("the gradient of a tensor from outside");
  return *out;
}

void check(const Status& status) {
  if (!status.ok()) throw Abort{status.why()};
}

// `traced` stands for the caller's tensor `real`.
void load_gradient(Executor& x, PyObject* traced, PyObject* real) {
  Differentiation& d = differentiation(x);
  if (d.knows_gradient(traced)) return;
  const Ref is_leaf = Ref::steal(PyObject_GetAttr(real, interned("is_leaf")));
  if (is_leaf.get() != Py_True) {
    PyErr_Clear();
    x.fail("the gradient of a tensor that is no leaf");
  }
  const Src src = x.prov.recall(real, real);
  if (src == kNoSource) x.fail("a tensor of unknown origin");
  const Ref now = Ref::steal(PyObject_GetAttr(real, interned("grad")));
  if (!now) {
    PyErr_Clear();
    x.fail("a gradient that can't be read");
  }
  const Value gradient = x.prov.found(now.get(), x.prov.intern(SourceKind::Member, src, 0, interned("grad")));
  if (now.get() == Py_None) {
    x.prov.use_constant(gradient);
    return check(d.tell_gradient(traced, Py_None));
  }
  check(d.tell_gradient(traced, stand_in(x, gradient).get()));
}

}  // namespace

bool has_callers_gradient(Executor& x, Value tensor) {
  return !x.session.is_traced(tensor.object) || x.session.real_of(tensor.object) != nullptr;
}

Owned get_gradient(Executor& x, Value tensor) {
  const Ref traced = stand_in(x, tensor);
  load_gradient(x, traced.get(), x.session.real_of(traced.get()));
  const Ref gradient = differentiation(x).gradient(traced.get());
  if (PyObject* real = gradient.get() == Py_None ? nullptr : x.session.real_of(gradient.get())) {
    return Owned::borrow(real, x.prov.recall(real, real));
  }
  return Owned(gradient);
}

bool set_gradient(Executor& x, Value tensor, Value gradient) {
  const Ref traced = stand_in(x, tensor);
  load_gradient(x, traced.get(), x.session.real_of(traced.get()));
  if (gradient.object == nullptr) gradient = {Py_None, kNoSource};   // del tensor.grad
  if (gradient.object == Py_None) {
    x.prov.use_constant(gradient);
  } else if (x.prov.category(gradient.object) != Category::Tensor) {
    x.fail("a gradient that is no tensor");
  }
  const Ref value = gradient.object == Py_None ? Ref::borrow(Py_None) : stand_in(x, gradient);
  check(differentiation(x).set_gradient(traced.get(), value.get()));
  return true;
}

void load_gradients(Executor& x, Value roots) {
  std::vector<Ref> owned;
  std::vector<PyObject*> tensors;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(roots.object); i++) {
    const Value root = x.prov.item_of(roots, PyTuple_GET_ITEM(roots.object, i), i);
    if (x.prov.category(root.object) != Category::Tensor) x.fail("a backward pass from what is no tensor");
    owned.push_back(stand_in(x, root));
    tensors.push_back(owned.back().get());
  }
  const Result<std::vector<PyObject*>> receivers = differentiation(x).receivers(tensors);
  if (!receivers.ok()) throw Abort{receivers.why()};
  for (PyObject* traced : *receivers) load_gradient(x, traced, x.session.real_of(traced));
}

}  // namespace braze::capture
